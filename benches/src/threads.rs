//! Work on several threads at once.

use anyhow::Result;

/// Does `work` with each item on a thread of its own, and waits for all. Returns their results in the items' order.
///
/// # Errors
/// The error of the first item whose work failed.
pub(crate) fn on_threads<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    std::thread::scope(|scope| {
        let items = items.into_iter();
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All threads end before the first error is returned.
        let joined: Vec<Result<R>> = joined.collect();
        joined.into_iter().collect()
    })
}
