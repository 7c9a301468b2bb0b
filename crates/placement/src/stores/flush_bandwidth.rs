use super::clock::{Ratio, Shares};

/// How fast chunks have reached the external storage lately, all flushes together (`AvgFlushBW` of
/// IPDPS'19, Algorithms 2 and 3).
///
/// The bytes of the last flushes over the time that they took, which those that run at once share. The paper says "moving average of the
/// observed flush throughput" and no more. The mean of what single flushes see, times their number, is not it:
/// where the external storage serves them in turn that is several times too much.
#[derive(Clone, Debug)]
pub struct FlushBandwidth {
    /// Bytes over seconds.
    samples: Ratio,
    /// Seconds of each.
    shares: Shares,
}

impl FlushBandwidth {
    /// An average over the last `window` flushes; at least one.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self {
            samples: Ratio::over(window),
            shares: Shares::default(),
        }
    }

    /// In bytes per second; `None` before the first flush has finished.
    pub fn get(&self) -> Option<f64> {
        self.samples.get()
    }

    /// Begins a flush. The result is an argument of [`ended`](Self::ended).
    pub fn started(&mut self, now_ns: u64) -> f64 {
        self.shares.advance(now_ns, |_| 1.0);
        self.shares.started()
    }

    /// Ends a flush of so many bytes.
    pub fn ended(&mut self, now_ns: u64, started: f64, flushed: u64) {
        self.shares.advance(now_ns, |_| 1.0);
        let took = self.shares.ended(started);
        self.samples.push(flushed as f64, took);
    }
}
