//! A vault that hangs while it is told to.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tierflow_store::{Piece, Repository, Result, Snapshot, Vault, VersionInfo};

#[derive(Debug, Default)]
pub(crate) struct Gate {
    halted: Mutex<bool>,
    resumed: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn halt(&self) {
        *self.halted.lock().unwrap() = true;
    }

    pub(crate) fn resume(&self) {
        *self.halted.lock().unwrap() = false;
        self.resumed.notify_all();
    }

    /// A call waits to pass.
    pub(crate) fn is_met(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn pass(&self) {
        let halted = self.halted.lock().unwrap();
        self.waiting
            .fetch_add(usize::from(*halted), Ordering::Relaxed);
        drop(self.resumed.wait_while(halted, |halted| *halted).unwrap());
    }
}

#[derive(Debug)]
pub(crate) struct Halting(Repository, Arc<Gate>);

impl Halting {
    pub(crate) fn new(repository: Repository) -> (Arc<Self>, Arc<Gate>) {
        let gate = Arc::<Gate>::default();
        (Arc::new(Self(repository, Arc::clone(&gate))), gate)
    }
}

impl Vault for Halting {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.1.pass();
        self.0.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.1.pass();
        self.0.piece(version)
    }

    fn save(&self, snapshot: &Snapshot<'_>) -> Result<()> {
        self.1.pass();
        self.0.save(snapshot)
    }

    fn copy(&self, piece: &Piece) -> Result<()> {
        self.1.pass();
        self.0.copy(piece)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.1.pass();
        self.0.remove(versions)
    }
}
