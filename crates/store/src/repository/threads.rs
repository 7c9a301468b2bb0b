//! Work on many items by several threads at a time: parts of large pieces, and requests.

use crate::Result;
use tierflow_sync::{Mutex, rank};

/// Bytes of one write, a multiple of the block that a checksum covers.
pub(super) const WRITE_BYTES: u64 = 4 << 20;

/// Does `work` with each of `items` on so many threads, of which this is one. `begin` makes what a thread keeps from one item to the
/// next. Returns the first error, after which no item is begun.
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
            // A thread that cannot be had is one less.
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

/// Does `work` with each of `items`, so many at a time, and calls `done` with each outcome. Returns the first error.
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
