//! The total bandwidth of several writes or flushes at once.

use std::collections::VecDeque;

/// The bytes of jobs that run at the same time and share evenly.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    running: u32,
    now_ns: u64,
    /// Bytes of a job that has run since the first.
    each: f64,
}

impl Shares {
    /// Lets time pass, in which so many jobs together get `rate` a second. A time before the last one counts as
    /// that.
    pub(super) fn advance(&mut self, now_ns: u64, rate: impl Fn(u32) -> f64) {
        let passed = now_ns.saturating_sub(self.now_ns) as f64 / 1e9;
        self.now_ns = self.now_ns.max(now_ns);
        if self.running > 0 && passed > 0.0 {
            self.each += passed * rate(self.running) / f64::from(self.running);
        }
    }

    /// A job begins; what it is to be ended with.
    pub(super) fn started(&mut self) -> f64 {
        self.running += 1;
        self.each
    }

    /// Ends a job. Returns its bytes.
    pub(super) fn ended(&mut self, started: f64) -> f64 {
        self.running = self.running.saturating_sub(1);
        self.each - started
    }
}

/// The quotient of two sums over the last jobs.
///
/// Sums are divided and not quotients averaged: of jobs that are served one after the other the first seems fast
/// and the last slow, and the mean of their rates would be several times what all got together.
#[derive(Clone, Debug)]
pub(super) struct Ratio {
    window: usize,
    samples: VecDeque<(f64, f64)>,
}

impl Ratio {
    /// Over the last `window` samples; at least one.
    pub(super) fn over(window: usize) -> Self {
        Self {
            window: window.max(1),
            samples: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, done: f64, measure: f64) {
        while self.samples.len() >= self.window {
            self.samples.pop_front();
        }
        self.samples.push_back((done, measure));
    }

    /// `None` as long as there is nothing to divide by.
    pub(super) fn get(&self) -> Option<f64> {
        self.with(0.0, 0.0)
    }

    /// The same if so much more had been done.
    pub(super) fn with(&self, done: f64, measure: f64) -> Option<f64> {
        let sum = |(a, b): (f64, f64), &(c, d): &(f64, f64)| (a + c, b + d);
        let (done, measure) = self.samples.iter().fold((done, measure), sum);
        (measure > 0.0).then(|| done / measure)
    }
}
