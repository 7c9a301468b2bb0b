//! Work of several threads on many items, such as parts of large pieces, or requests.

use crate::Result;
use tierflow_sync::{Mutex, rank};

/// Bytes of one write, a multiple of the block under one checksum.
pub(super) const WRITE_BYTES: u64 = 4 << 20;

/// Calls `work` with each of `items` on `threads` threads, including the calling one. `begin` makes the state that a thread keeps
/// from item to item. Returns the first error; after an error, no further item is started.
pub(super) fn side_by_side<T, S>(
    threads: usize,
    items: impl Iterator<Item = T> + Send,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T) -> Result<()> + Sync,
) -> Result<()> {
    let items: Mutex<_> = Mutex::new(items);
    let next = || items.lock().next();
    let run = || {
        let mut state = begin();
        while let Some(item) = next() {
            work(&mut state, item).inspect_err(|_| while next().is_some() {})?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            // If a thread cannot be started, fewer threads work.
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut result = run();
        for other in others {
            match other.join() {
                Ok(theirs) => result = result.and(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}

/// Calls `work` with each of `items`, up to `at_a_time` at the same time, and `done` with each result. Returns the first error.
pub(super) fn in_parallel<T: Send, O>(
    at_a_time: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<O> + Sync,
    done: impl FnMut(O) + Send,
) -> Result<()> {
    let done: Mutex<_, { rank::PACKER }> = Mutex::new(done);
    let threads = items.len().min(at_a_time);
    let one = |(): &mut (), item| {
        let outcome = work(item)?;
        done.lock()(outcome);
        Ok(())
    };
    side_by_side(threads, items.into_iter(), || (), one)
}
