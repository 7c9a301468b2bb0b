//! The total bandwidth of several writes or flushes at once.

use std::collections::VecDeque;

/// The bytes of jobs that run at the same time and share a bandwidth evenly.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    running: u32,
    now_ns: u64,
    /// Bytes of a job that has run since the first job began.
    each: f64,
}

impl Shares {
    /// Lets time pass until `now_ns`. All running jobs together get `rate` of their number per second. A time before the last
    /// one has no effect.
    pub(super) fn advance(&mut self, now_ns: u64, rate: impl Fn(u32) -> f64) {
        let passed = now_ns.saturating_sub(self.now_ns) as f64 / 1e9;
        self.now_ns = self.now_ns.max(now_ns);
        if self.running > 0 && passed > 0.0 {
            self.each += passed * rate(self.running) / f64::from(self.running);
        }
    }

    /// Begins a job. Returns the argument of [`ended`](Self::ended).
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
/// Sums are divided; quotients are not averaged. If jobs are served one after the other, the first seems fast and the last
/// slow, and the mean of their rates would be several times their rate together.
#[derive(Clone, Debug)]
pub(super) struct Ratio {
    window: usize,
    samples: VecDeque<(f64, f64)>,
}

impl Ratio {
    /// Makes a quotient over the last `window` samples, at least one.
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

    /// Returns the quotient; `None` while the divisor is 0.
    pub(super) fn get(&self) -> Option<f64> {
        self.with(0.0, 0.0)
    }

    /// Returns the quotient with `done` and `measure` added to its sums; `None` while the divisor is 0.
    pub(super) fn with(&self, done: f64, measure: f64) -> Option<f64> {
        let sum = |(a, b): (f64, f64), &(c, d): &(f64, f64)| (a + c, b + d);
        let (done, measure) = self.samples.iter().fold((done, measure), sum);
        (measure > 0.0).then(|| done / measure)
    }
}
