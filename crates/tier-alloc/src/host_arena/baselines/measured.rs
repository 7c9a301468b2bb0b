//! The performance model's inputs, measured while the arena is used.

use std::ops::Range;
use std::time::{Duration, Instant};

use tierflow_sync::{Mutex, rank};

use super::model::{Figures, Touching};
use crate::host_arena::growing::Growing;

/// The weight that older measurements keep when a new one is added.
const KEPT: f64 = 0.8;

/// The pages that a flush went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Untouched,
    Touched,
    /// Pages of either kind, while other pages were being touched.
    BesideTouch,
}

/// The behaviour of touching, and the measurements that decide it.
#[derive(Debug, Default)]
pub(in crate::host_arena) struct Concurrency {
    touching: Mutex<Option<Touching>, { rank::ARENA_LEAF }>,
    pub(super) measured: Measured,
}

impl Concurrency {
    /// Sets the behaviour of touching from now on.
    pub(super) fn set(&self, touching: Touching) {
        *self.touching.lock() = Some(touching);
    }

    /// Returns the last behaviour of touching.
    pub(in crate::host_arena) fn touching(&self) -> Option<Touching> {
        *self.touching.lock()
    }
}

/// A flush that is under way. Dropping the value measures the flush's rate.
#[derive(Debug)]
pub(in crate::host_arena) struct Flush<'arena> {
    measured: &'arena Measured,
    bytes: usize,
    target: Target,
    begun: Instant,
}

impl<'arena> Flush<'arena> {
    pub(in crate::host_arena) fn begin(growing: &'arena Growing, range: &Range<usize>) -> Self {
        let concurrency = &growing.concurrency;
        let beside =
            growing.touched.end().is_none() && concurrency.touching() == Some(Touching::Concurrent);
        let target = match () {
            () if beside => Target::BesideTouch,
            () if range.end <= growing.touched.level() => Target::Touched,
            () => Target::Untouched,
        };
        Self {
            measured: &concurrency.measured,
            bytes: range.len(),
            target,
            begun: Instant::now(),
        }
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.measured.flushed(self.bytes, self.begun, self.target);
    }
}

#[derive(Debug, Default)]
pub(super) struct Measured(Mutex<Sums, { rank::ARENA_LEAF }>);

#[derive(Debug, Default)]
struct Sums {
    touch: Rate,
    touch_beside_flush: Rate,
    flush_untouched: Rate,
    flush_touched: Rate,
    flush_beside_touch: Rate,
    /// Bytes of checkpoints, per checkpoint.
    checkpoints: Rate,
    /// Seconds between the starts of flushes, per interval.
    intervals: Rate,
    last: Option<Instant>,
}

/// Two sums, such as bytes and seconds, in which later values weigh more.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    amount: f64,
    over: f64,
}

impl Rate {
    fn add(&mut self, amount: f64, over: f64) {
        self.amount = self.amount * KEPT + amount;
        self.over = self.over * KEPT + over;
    }

    fn get(self) -> Option<f64> {
        (self.amount > 0.0 && self.over > 0.0).then(|| self.amount / self.over)
    }
}

impl Measured {
    pub(super) fn touched(&self, bytes: usize, took: Duration, beside_flush: bool) {
        let mut sums = self.0.lock();
        let rate = if beside_flush {
            &mut sums.touch_beside_flush
        } else {
            &mut sums.touch
        };
        rate.add(bytes as f64, took.as_secs_f64());
    }

    fn flushed(&self, bytes: usize, begun: Instant, target: Target) {
        let took = begun.elapsed().as_secs_f64();
        let mut sums = self.0.lock();
        let rate = match target {
            Target::Untouched => &mut sums.flush_untouched,
            Target::Touched => &mut sums.flush_touched,
            Target::BesideTouch => &mut sums.flush_beside_touch,
        };
        rate.add(bytes as f64, took);
        sums.checkpoints.add(bytes as f64, 1.0);
        if let Some(last) = sums.last.replace(begun) {
            let interval = begun.saturating_duration_since(last).as_secs_f64();
            sums.intervals.add(interval, 1.0);
        }
    }

    /// Returns the model's inputs, or `None` before the first touch, flush and interval. Rates that were not measured yet
    /// are derived from measured ones in the paper's proportions: a flush to touched pages is twice as fast, and a flush
    /// and touching that run at once have half their rates.
    pub(super) fn figures(&self) -> Option<Figures> {
        let sums = self.0.lock();
        let touch = sums
            .touch
            .get()
            .or_else(|| sums.touch_beside_flush.get().map(|rate| rate * 2.0))?;
        let flush_touched = sums
            .flush_touched
            .get()
            .or_else(|| sums.flush_beside_touch.get().map(|rate| rate * 2.0))
            .or_else(|| sums.flush_untouched.get().map(|rate| rate * 2.0))?;
        Some(Figures {
            checkpoint: sums.checkpoints.get()?,
            interval: sums.intervals.get()?,
            touch,
            touch_beside_flush: sums.touch_beside_flush.get().unwrap_or(touch / 2.0),
            flush_untouched: sums.flush_untouched.get().unwrap_or(flush_touched / 2.0),
            flush_touched,
            flush_beside_touch: sums.flush_beside_touch.get().unwrap_or(flush_touched / 2.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_taken_from_what_was() {
        let measured = Measured::default();
        assert_eq!(measured.figures(), None);
        measured.touched(8_000_000, Duration::from_millis(1), false);
        assert_eq!(measured.figures(), None, "no flush yet");
        let begun = Instant::now();
        for late in [30, 20, 10] {
            let begun = begun - Duration::from_millis(late);
            measured.flushed(1_000_000, begun, Target::Untouched);
        }
        let figures = measured.figures().unwrap();
        assert!((figures.touch - 8e9).abs() < 1e3);
        assert_eq!(figures.touch_beside_flush, figures.touch / 2.0);
        assert_eq!(figures.flush_touched, figures.flush_untouched * 2.0);
        assert!((figures.interval - 0.010).abs() < 1e-4, "{figures:?}");
        assert!((figures.checkpoint - 1e6).abs() < 1.0);
    }
}
