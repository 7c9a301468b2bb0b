//! The same work on several threads at once.

use anyhow::Result;

/// Does `work` on so many threads, each told its number, and waits for all.
///
/// # Errors
/// That of the first thread that failed.
pub(crate) fn on_threads(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })
}
