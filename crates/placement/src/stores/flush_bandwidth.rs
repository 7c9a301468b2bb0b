use std::collections::VecDeque;

/// How fast chunks have reached the external storage lately, all flushes together (`AvgFlushBW` of
/// IPDPS'19, Algorithms 2 and 3).
///
/// A flush that took d seconds for its bytes while n were running on average saw a throughput of n ·
/// bytes / d. The average is over the last flushes.
#[derive(Clone, Debug)]
pub struct FlushBandwidth {
    window: usize,
    samples: VecDeque<f64>,
    /// What counts before there is a sample.
    before: Option<f64>,
    running: u32,
    /// Flushes times nanoseconds so far.
    work: u128,
    now_ns: u64,
}

/// When a flush started, for [`FlushBandwidth::ended`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    at_ns: u64,
    work: u128,
}

impl FlushBandwidth {
    /// An average over the last `window` flushes; at least one.
    pub(super) fn new(window: usize) -> Self {
        Self {
            window: window.max(1),
            samples: VecDeque::new(),
            before: None,
            running: 0,
            work: 0,
            now_ns: 0,
        }
    }

    pub(super) fn set_window(&mut self, window: usize) {
        self.window = window.max(1);
    }

    pub(super) fn set_before(&mut self, bandwidth: f64) {
        self.before = Some(bandwidth);
    }

    /// In bytes per second; before the first flush has finished, what was known at the start.
    pub fn get(&self) -> Option<f64> {
        let count = self.samples.len();
        match count {
            0 => self.before,
            _ => Some(self.samples.iter().sum::<f64>() / count as f64),
        }
    }

    /// Lets time pass. A time before the last one counts as that.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.now_ns);
        self.work += u128::from(passed) * u128::from(self.running);
        self.now_ns = self.now_ns.max(now_ns);
    }

    pub(super) fn started(&mut self) -> Started {
        self.running += 1;
        Started {
            at_ns: self.now_ns,
            work: self.work,
        }
    }

    /// Ends a flush; one that failed shows no throughput.
    pub(super) fn ended(&mut self, started: Started, flushed: Option<u64>) {
        self.running = self.running.saturating_sub(1);
        let took_ns = self.now_ns - started.at_ns;
        let (Some(bytes), true) = (flushed, took_ns > 0) else {
            return;
        };
        let took = took_ns as f64;
        let running = (self.work - started.work) as f64 / took;
        if self.samples.len() >= self.window {
            self.samples.pop_front();
        }
        self.samples.push_back(running * bytes as f64 / took * 1e9);
    }
}
