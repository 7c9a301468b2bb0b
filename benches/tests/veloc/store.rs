//! Functions that the tests of the placement share.

use tierflow_benches::papers::veloc::{ChunkFlush, ChunkPlacement, ChunkWrite};
use tierflow_placement::stores::Calibration;

pub(crate) const CHUNK: u64 = 64 << 20;

/// As fast for any number of writers, in bytes per second.
pub(crate) fn flat(throughput: f64) -> Calibration {
    Calibration::new(1, 1, &[throughput]).unwrap()
}

/// Serves all producers that need not wait.
pub(crate) fn writes(plan: &mut ChunkPlacement, now_ns: u64) -> Vec<ChunkWrite> {
    std::iter::from_fn(|| plan.next_write(now_ns)).collect()
}

/// Starts all flushes that are to start.
pub(crate) fn flushes(plan: &mut ChunkPlacement, now_ns: u64) -> Vec<ChunkFlush> {
    std::iter::from_fn(|| plan.next_flush(now_ns)).collect()
}
