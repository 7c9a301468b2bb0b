//! What the tests of the placement share.

use tierflow_benches::papers::veloc::{ChunkPlacement, Command, Event};
use tierflow_placement::stores::Calibration;

pub(crate) const CHUNK: u64 = 64 << 20;

/// As fast for any number of writers, in bytes per second.
pub(crate) fn flat(throughput: f64) -> Calibration {
    Calibration::new(1, 1, &[throughput]).unwrap()
}

/// What the backend says to an event.
pub(crate) fn after(backend: &mut ChunkPlacement, now_ns: u64, event: Event) -> Vec<Command> {
    let mut commands = Vec::new();
    backend.handle(now_ns, event, &mut commands).unwrap();
    commands
}
