use super::clock::{Average, Clock, Started};

/// How fast chunks have reached the external storage lately, all flushes together (`AvgFlushBW` of
/// IPDPS'19, Algorithms 2 and 3).
///
/// A flush that took d seconds for its bytes while n were running on average saw a throughput of n ·
/// bytes / d. The average is over the last flushes.
#[derive(Clone, Debug)]
pub struct FlushBandwidth {
    samples: Average,
    /// What counts before there is a sample.
    before: Option<f64>,
    clock: Clock,
}

impl FlushBandwidth {
    /// An average over the last `window` flushes; at least one.
    pub(super) fn new(window: usize) -> Self {
        Self {
            samples: Average::new(window),
            before: None,
            clock: Clock::default(),
        }
    }

    pub(super) fn set_window(&mut self, window: usize) {
        self.samples.window = window.max(1);
    }

    pub(super) fn set_before(&mut self, bandwidth: f64) {
        self.before = Some(bandwidth);
    }

    /// In bytes per second; before the first flush has finished, what was known at the start.
    pub fn get(&self) -> Option<f64> {
        self.samples.get().or(self.before)
    }

    /// Lets time pass. A time before the last one counts as that.
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.clock.advance(now_ns);
    }

    pub(super) fn started(&mut self) -> Started {
        self.clock.started()
    }

    /// Ends a flush; one that failed shows no throughput.
    pub(super) fn ended(&mut self, started: Started, flushed: Option<u64>) {
        if let Some(seen) = self.clock.ended(started, flushed) {
            self.samples.push(seen.bandwidth);
        }
    }
}
