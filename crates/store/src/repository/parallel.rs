//! Requests that are sent side by side.

use crate::Result;
use std::sync::{Mutex, PoisonError};

/// Calls `work` with each of `items`, so many at a time, and `done` with each result. Returns the first error.
pub(super) fn in_parallel<T: Send, O: Send>(
    at_a_time: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<O> + Sync,
    done: impl FnMut(O) + Send,
) -> Result<()> {
    let threads = items.len().min(at_a_time);
    let queue = Mutex::new(items.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (done, failed) = (Mutex::new(done), Mutex::new(None));
    let work = || {
        while let Some(item) = next() {
            match work(item) {
                Ok(outcome) => (done.lock().unwrap_or_else(PoisonError::into_inner))(outcome),
                Err(error) => {
                    // The rest is not begun.
                    while next().is_some() {}
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
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
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}
