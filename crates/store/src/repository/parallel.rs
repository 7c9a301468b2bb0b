//! Requests that are sent side by side.

use crate::Result;
use tierflow_sync::{Mutex, rank};

/// Calls `work` with each of `items`, so many at a time, and `done` with each result. Returns the first error.
pub(super) fn in_parallel<T: Send, O: Send>(
    at_a_time: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<O> + Sync,
    done: impl FnMut(O) + Send,
) -> Result<()> {
    let threads = items.len().min(at_a_time);
    let queue: Mutex<_> = Mutex::new(items.into_iter());
    let next = || queue.lock().next();
    let done: Mutex<_, { rank::PACKER }> = Mutex::new(done);
    let failed: Mutex<_> = Mutex::new(None);
    let work = || {
        while let Some(item) = next() {
            match work(item) {
                Ok(outcome) => done.lock()(outcome),
                Err(error) => {
                    // The rest is not begun.
                    while next().is_some() {}
                    failed.lock().get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A thread that cannot be started is one less.
            let _ended_with_the_scope = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    failed.into_inner().map_or(Ok(()), Err)
}
