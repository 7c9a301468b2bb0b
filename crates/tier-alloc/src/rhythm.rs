//! Predicts the application's next copy from the intervals between its last copies.
//!
//! Checkpoints come at regular intervals. Background work on a piece delays a copy by up to the time of that piece, so it
//! should not begin a piece just before a copy.

use std::time::{Duration, Instant};

use tierflow_sync::{Mutex, rank};

/// Number of remembered intervals.
const GAPS: usize = 5;
/// Fewest intervals that give a prediction.
const ENOUGH: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Rhythm(Mutex<IntervalHistory, { rank::ARENA_LEAF }>);

#[derive(Debug, Default)]
struct IntervalHistory {
    last: Option<Instant>,
    /// Number of copies so far.
    count: u64,
    gaps: [Duration; GAPS],
    next: usize,
    known: usize,
}

/// A prediction of the next copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) at: Instant,
    /// Largest expected error of the prediction, earlier or later.
    pub(crate) tolerance: Duration,
    pub(crate) interval: Duration,
    /// Number of copies so far.
    pub(crate) count: u64,
}

impl Rhythm {
    /// Records that a copy begins.
    pub(crate) fn beat(&self, now: Instant) {
        let mut history = self.0.lock();
        history.count += 1;
        if let Some(last) = history.last.replace(now) {
            let at = history.next;
            history.gaps[at] = now.saturating_duration_since(last);
            history.next = (at + 1) % GAPS;
            history.known = (history.known + 1).min(GAPS);
        }
    }

    /// Returns the time at which the last copy began.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.0.lock().last
    }

    /// Returns the number of copies so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Predicts the next copy, if the last few came regularly. A single gap of another length, for example between two
    /// passes, does not hide a rhythm.
    pub(crate) fn expected(&self) -> Option<Expected> {
        let history = self.0.lock();
        let mut gaps = history.gaps;
        let gaps = gaps.get_mut(..history.known)?;
        if gaps.len() < ENOUGH {
            return None;
        }
        gaps.sort_unstable();
        let interval = gaps[gaps.len() / 2];
        // The longest and the shortest gap are left out, if there are five.
        let inner = if gaps.len() == GAPS {
            &gaps[1..GAPS - 1]
        } else {
            &gaps[..]
        };
        let off = inner.iter().map(|gap| gap.abs_diff(interval)).max()?;
        let regular = off <= (interval / 5).max(Duration::from_micros(200));
        regular.then_some(Expected {
            at: history.last? + interval,
            tolerance: off,
            interval,
            count: history.count,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn after(gaps: &[u64]) -> (Rhythm, Instant) {
        let rhythm = Rhythm::default();
        let mut now = Instant::now();
        rhythm.beat(now);
        for &gap in gaps {
            now += ms(gap);
            rhythm.beat(now);
        }
        (rhythm, now)
    }

    #[test]
    fn a_regular_rhythm_goes_on() {
        let (rhythm, now) = after(&[10, 10, 11]);
        let expected = rhythm.expected().unwrap();
        assert_eq!(expected.at, now + ms(10));
        assert_eq!((expected.tolerance, expected.count), (ms(1), 4));
    }

    #[test]
    fn one_long_gap_does_not_hide_it() {
        let (rhythm, now) = after(&[10, 10, 500, 10, 10]);
        assert_eq!(rhythm.expected().unwrap().at, now + ms(10));
    }

    #[test]
    fn too_few_or_irregular_gaps_promise_nothing() {
        assert_eq!(after(&[10, 10]).0.expected(), None);
        assert_eq!(after(&[10, 3, 25, 40, 7]).0.expected(), None);
    }
}
