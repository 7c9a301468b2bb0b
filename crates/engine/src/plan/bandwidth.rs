//! What each hop between two tiers carries, measured, and what waits for it: the basis of `predict_evictable`
//! (HPDC'23 §4.2).

use super::TierConfig;
use std::hash::{Hash, Hasher};

/// What was averaged so far loses 1/8 of its weight with each measurement.
const SHIFT: u32 = 3;

/// Bytes per second; starts from a guess that the first measurement replaces.
///
/// Bytes and times are averaged apart, so that a short time in between long ones weighs as little as it lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Bandwidth {
    bytes_per_second: u64,
    /// Bytes that were carried lately, and the ns that they took; older ones weigh less.
    lately: Option<(u64, u64)>,
}

impl Bandwidth {
    pub(super) fn new(guess_bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: guess_bytes_per_second.max(1),
            lately: None,
        }
    }

    /// One transfer was measured.
    pub(super) fn measure(&mut self, bytes: u64, elapsed_ns: u64) {
        let (old_bytes, old_ns) = self.lately.unwrap_or_default();
        let add = |old: u64, new: u64| (old - (old >> SHIFT)).saturating_add(new);
        let (bytes, ns) = (add(old_bytes, bytes), add(old_ns, elapsed_ns));
        self.lately = Some((bytes, ns));
        let seen = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
        self.bytes_per_second = u64::try_from(seen).unwrap_or(u64::MAX).max(1);
    }

    /// Nanoseconds that so many bytes need.
    pub(super) fn ns(&self, bytes: u64) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        match bytes.checked_mul(SECOND) {
            Some(product) => product / self.bytes_per_second,
            None => {
                let product = u128::from(bytes) * u128::from(SECOND);
                let ns = product / u128::from(self.bytes_per_second);
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

/// By tier, and by the tier below that a copy comes from: as fast as the slowest flush on the way, until measured.
pub(super) fn guesses(tiers: &[TierConfig]) -> Vec<Vec<Bandwidth>> {
    let from_to = |from: usize, to: usize| {
        let way = tiers.get(to..from).unwrap_or_default();
        let slowest = way.iter().map(|tier| tier.flush_bandwidth).min();
        Bandwidth::new(slowest.unwrap_or(1))
    };
    let all = 0..tiers.len();
    all.clone()
        .map(|to| all.clone().map(|from| from_to(from, to)).collect())
        .collect()
}

/// Bandwidth and backlog of the flushes that leave one tier.
#[derive(Debug)]
pub(super) struct Backlog {
    bandwidth: Bandwidth,
    /// Bytes that ever joined the queue, and that left it (done, cancelled or not needed any more).
    joined: u64,
    left: u64,
}

impl Backlog {
    pub(super) fn new(guess_bytes_per_second: u64) -> Self {
        Self {
            bandwidth: Bandwidth::new(guess_bytes_per_second),
            joined: 0,
            left: 0,
        }
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bandwidth.bytes_per_second
    }

    /// A copy joins the queue. Returns its mark, to be given to [`Drain::wait_ns`].
    pub(super) fn join(&mut self, bytes: u64) -> u64 {
        self.joined = self.joined.saturating_add(bytes);
        self.joined
    }

    /// A copy leaves the queue.
    pub(super) fn leave(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes).min(self.joined);
    }

    /// Bytes in the queue: they lie nowhere below.
    pub(super) fn queued(&self) -> u64 {
        self.joined - self.left
    }

    /// One flush was measured.
    pub(super) fn measure(&mut self, bytes: u64, elapsed_ns: u64) {
        self.bandwidth.measure(bytes, elapsed_ns);
    }

    /// Bytes that leave the queue before the copy with this mark has, its own included.
    pub(super) fn ahead(&self, mark: u64) -> u64 {
        mark.saturating_sub(self.left)
    }

    /// All that the waits of copies to come depend on.
    pub(super) fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        (self.bandwidth, self.queued()).hash(hasher);
    }

    /// How the queue drains from now on; `None` if nothing waits in it.
    pub(super) fn drain(&self) -> Option<Drain> {
        (self.joined > self.left).then_some(Drain {
            bandwidth: self.bandwidth,
            left: self.left,
        })
    }
}

/// A queue that drains at the measured bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drain {
    bandwidth: Bandwidth,
    left: u64,
}

impl Drain {
    /// Nanoseconds until the copy with this mark is through. Never 0.
    pub(super) fn wait_ns(&self, mark: u64) -> u64 {
        let ahead = mark.saturating_sub(self.left);
        self.bandwidth.ns(ahead).clamp(1, u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_marks_wait_longer_and_the_queue_drains() {
        let mut backlog = Backlog::new(1_000);
        let (first, second) = (backlog.join(1_000), backlog.join(3_000));
        let wait_ns = |backlog: &Backlog, mark| backlog.drain().unwrap().wait_ns(mark);
        assert_eq!(
            (wait_ns(&backlog, first), wait_ns(&backlog, second)),
            (1_000_000_000, 4_000_000_000)
        );
        backlog.measure(1_000, 500_000_000);
        backlog.leave(1_000);
        assert_eq!(
            wait_ns(&backlog, second),
            1_500_000_000,
            "the first measurement replaces the guess"
        );
        assert_eq!(
            wait_ns(&backlog, first),
            1,
            "never zero: zero means evictable now"
        );
        backlog.leave(3_000);
        assert_eq!(backlog.drain(), None);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut backlog = Backlog::new(0);
        let mark = backlog.join(u64::MAX);
        backlog.join(u64::MAX);
        backlog.measure(u64::MAX, 0);
        backlog.measure(0, u64::MAX);
        assert!(backlog.drain().unwrap().wait_ns(mark) < u64::MAX);
    }
}
