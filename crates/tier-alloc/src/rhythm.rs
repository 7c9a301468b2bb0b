//! Predicts when the application will copy next, from the intervals between its last copies.
//!
//! An application that checkpoints checkpoints at regular intervals. Background work that makes every copy wait for as
//! long as one piece of it takes had better not begin such a piece just before.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Intervals that are remembered.
const GAPS: usize = 5;
/// The fewest intervals from which a copy is predicted.
const ENOUGH: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Rhythm(Mutex<Beats>);

#[derive(Debug, Default)]
struct Beats {
    last: Option<Instant>,
    /// Copies so far.
    count: u64,
    gaps: [Duration; GAPS],
    next: usize,
    known: usize,
}

/// The next copy, as predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) at: Instant,
    /// How far the prediction may be off, earlier or later.
    pub(crate) tolerance: Duration,
    pub(crate) interval: Duration,
    /// Copies so far.
    pub(crate) count: u64,
}

impl Rhythm {
    /// A copy begins.
    pub(crate) fn beat(&self, now: Instant) {
        let mut beats = self.0.lock();
        beats.count += 1;
        if let Some(last) = beats.last.replace(now) {
            let at = beats.next;
            beats.gaps[at] = now.saturating_duration_since(last);
            beats.next = (at + 1) % GAPS;
            beats.known = (beats.known + 1).min(GAPS);
        }
    }

    /// When the last copy began.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.0.lock().last
    }

    /// How many copies there were until now.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// The next copy, if the last few came regularly. One gap of another length (between two passes, say) does not
    /// hide a rhythm.
    pub(crate) fn expected(&self) -> Option<Expected> {
        let beats = self.0.lock();
        let mut gaps = beats.gaps;
        let gaps = gaps.get_mut(..beats.known)?;
        if gaps.len() < ENOUGH {
            return None;
        }
        gaps.sort_unstable();
        let interval = gaps[gaps.len() / 2];
        // Without the longest and the shortest, if there are that many.
        let inner = if gaps.len() == GAPS {
            &gaps[1..GAPS - 1]
        } else {
            &gaps[..]
        };
        let off = inner.iter().map(|gap| gap.abs_diff(interval)).max()?;
        let regular = off <= (interval / 5).max(Duration::from_micros(200));
        regular.then_some(Expected {
            at: beats.last? + interval,
            tolerance: off,
            interval,
            count: beats.count,
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
