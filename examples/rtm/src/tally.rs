//! Times and counts of a migration.

use std::time::{Duration, Instant};

/// Durations of a migration's parts.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// All of it.
    pub total: Duration,
    /// How long each checkpoint blocked.
    pub checkpoints: Vec<Duration>,
    /// How long each restore blocked.
    pub restores: Vec<Duration>,
    /// Giving hints.
    pub hints: Duration,
    /// Waiting for the pace that was asked for.
    pub paused: Duration,
    /// Keeping and comparing what `verify` needs.
    pub verify: Duration,
}

impl Times {
    /// The time left for the application.
    pub fn computing(&self) -> Duration {
        let blocked: Duration = self.checkpoints.iter().chain(&self.restores).sum();
        self.total
            .saturating_sub(blocked + self.hints + self.paused + self.verify)
    }
}

/// Counts what was proven equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proven {
    pub snapshots: u64,
    pub different: u64,
}

/// Sizes of arrays.
#[derive(Clone, Copy, Debug)]
pub struct ArrayBytes {
    pub device: u64,
    pub host: u64,
}

/// Adds the time that `work` takes to `total`.
pub fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
