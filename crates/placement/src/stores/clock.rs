//! What several writes or flushes at a time do together, seen from one of them.

use std::collections::VecDeque;

/// Jobs that run beside one another, and for how long.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    running: u32,
    /// Jobs times nanoseconds so far.
    work: u128,
    now_ns: u64,
}

/// When a job started, for [`Clock::ended`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    at_ns: u64,
    work: u128,
}

/// What a job saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Bytes per second of all jobs together.
    pub(super) bandwidth: f64,
    /// How many they were, on average.
    pub(super) running: f64,
}

impl Clock {
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

    /// Ends a job; one that failed saw nothing.
    pub(super) fn ended(&mut self, started: Started, bytes: Option<u64>) -> Option<Seen> {
        self.running = self.running.saturating_sub(1);
        let took_ns = self.now_ns - started.at_ns;
        let bytes = bytes.filter(|_| took_ns > 0)?;
        let took = took_ns as f64;
        let running = (self.work - started.work) as f64 / took;
        Some(Seen {
            bandwidth: running * bytes as f64 / took * 1e9,
            running,
        })
    }
}

/// The mean of the last samples.
#[derive(Clone, Debug)]
pub(super) struct Average {
    pub(super) window: usize,
    samples: VecDeque<f64>,
}

impl Average {
    /// Over the last `window` samples; at least one.
    pub(super) fn new(window: usize) -> Self {
        Self {
            window: window.max(1),
            samples: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, sample: f64) {
        while self.samples.len() >= self.window {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    pub(super) fn get(&self) -> Option<f64> {
        let count = self.samples.len();
        (count > 0).then(|| self.samples.iter().sum::<f64>() / count as f64)
    }
}
