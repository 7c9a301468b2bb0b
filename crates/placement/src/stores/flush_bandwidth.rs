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
    /// The bandwidth that counts before there is a sample.
    before: Option<f64>,
    /// Seconds of each.
    shares: Shares,
}

impl FlushBandwidth {
    /// An average over the last `window` flushes; at least one.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self {
            samples: Ratio::over(window),
            before: None,
            shares: Shares::default(),
        }
    }

    /// Sets the bandwidth, in bytes per second, that counts until the first flush has ended.
    pub fn set_before(&mut self, bandwidth: f64) {
        self.before = Some(bandwidth);
    }

    /// In bytes per second; before the first flush has finished, what was known at the start.
    pub fn get(&self) -> Option<f64> {
        self.samples.get().or(self.before)
    }

    /// Begins a flush. The result is an argument of [`ended`](Self::ended).
    pub fn started(&mut self, now_ns: u64) -> f64 {
        self.shares.advance(now_ns, |_| 1.0);
        self.shares.started()
    }

    /// Ends a flush; one that failed shows no throughput.
    pub fn ended(&mut self, now_ns: u64, started: f64, flushed: Option<u64>) {
        self.shares.advance(now_ns, |_| 1.0);
        let took = self.shares.ended(started);
        if let Some(bytes) = flushed {
            self.samples.push(bytes as f64, took);
        }
    }
}
