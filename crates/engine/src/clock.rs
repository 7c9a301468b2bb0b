//! The engine's clock, in plain nanoseconds. Subtracting two `Instant`s would take about 56 instructions.

use crate::blocked::nanoseconds;
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// The clock of the plan, of the time line and of blocked time. The default clock counts from the start of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    origin_ns: u64,
}

impl Clock {
    /// Starts a clock at 0.
    pub(crate) fn start() -> Self {
        Self {
            origin_ns: Self::default().now_ns(),
        }
    }

    /// Returns the nanoseconds since the start. A reading takes about 60 ns.
    pub(crate) fn now_ns(self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        // The time since the machine started is never negative.
        (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).saturating_sub(self.origin_ns)
    }

    /// Returns the nanoseconds from the start to `at`, or to now if `at` is past.
    pub(crate) fn at_ns(self, at: Instant) -> u64 {
        let now_ns = self.now_ns();
        now_ns.saturating_add(nanoseconds(at.saturating_duration_since(Instant::now())))
    }
}
