//! Groups whose ranks are threads.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "it serves several tests, and not all of them use all of it"
)]

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use tierflow_store::{Collective, Result};

/// Calls `each` with every rank at the same time, and returns the results.
pub(crate) fn together<T: Send>(ranks: u32, each: impl Fn(u32) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || each(rank)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(std::result::Result::unwrap).collect()
    })
}

/// A group that meets in memory.
#[derive(Debug)]
pub(crate) struct InMemory {
    given: Mutex<Vec<Vec<u8>>>,
    barrier: Barrier,
}

impl InMemory {
    pub(crate) fn new(ranks: usize) -> Arc<Self> {
        Arc::new(Self {
            given: Mutex::new(vec![Vec::new(); ranks]),
            barrier: Barrier::new(ranks),
        })
    }
}

/// A rank that meets the others in memory.
#[derive(Debug)]
pub(crate) struct Member(pub(crate) Arc<InMemory>, pub(crate) usize);

impl Collective for Member {
    fn all_gather(&self, mine: &[u8], _: Duration) -> Result<Vec<Vec<u8>>> {
        self.0.given.lock().unwrap()[self.1] = mine.to_vec();
        self.0.barrier.wait();
        let all = self.0.given.lock().unwrap().clone();
        self.0.barrier.wait();
        Ok(all)
    }
}
