use super::clock::{Ratio, Shares};

/// The bandwidth at which all flushes together have lately reached the external storage (`AvgFlushBW` of IPDPS'19,
/// Algorithms 2 and 3).
///
/// The bytes of the last flushes are divided by the time that they took. Flushes that run at once share their time. The
/// paper says "moving average of the observed flush throughput" and no more. The mean bandwidth of single flushes, times
/// their number, would be several times too much if the external storage serves them in turn.
#[derive(Clone, Debug)]
pub struct FlushBandwidth {
    /// Bytes of flushes over their seconds.
    samples: Ratio,
    /// Seconds of each flush.
    shares: Shares,
}

impl FlushBandwidth {
    /// Makes an average over the last `window` flushes, at least one.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self {
            samples: Ratio::over(window),
            shares: Shares::default(),
        }
    }

    /// Returns the bandwidth in bytes per second; `None` before the first flush has ended.
    pub fn get(&self) -> Option<f64> {
        self.samples.get()
    }

    /// Begins a flush. Returns an argument of [`ended`](Self::ended).
    pub fn started(&mut self, now_ns: u64) -> f64 {
        self.shares.advance(now_ns, |_| 1.0);
        self.shares.started()
    }

    /// Ends a flush of `flushed` bytes.
    pub fn ended(&mut self, now_ns: u64, started: f64, flushed: u64) {
        self.shares.advance(now_ns, |_| 1.0);
        let took = self.shares.ended(started);
        self.samples.push(flushed as f64, took);
    }
}
