//! Large pieces are written, read and checked by several threads at a time.

use crate::Result;

/// Bytes of one write, a multiple of the block that a checksum covers.
pub(super) const WRITE_BYTES: u64 = 4 << 20;

/// Runs `work` on so many threads, of which this is one, and returns the first error.
pub(super) fn side_by_side(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            // A thread that cannot be had is one less.
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, &work).ok())
            .collect();
        let mut result = work();
        for other in others {
            match other.join() {
                Ok(theirs) => result = result.and(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}
