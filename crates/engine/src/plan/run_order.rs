//! Which copies go down first where sizes differ: runs of those that were written together.

use super::Plan;
use super::event::TierId;
use crate::Version;

/// A run is this part of its tier, and at least so many versions of the largest size.
const RUN_PART: u64 = 32;
const RUN_VERSIONS: u64 = 4;

/// What is spared of reading late has to be more than this part of a run: to go on where the last run ended leaves no hole.
const WORTH_A_HOLE: u64 = 8;

/// Calls after which what was measured counts half.
const MEMORY: u64 = 64;

/// How much a hop carries from one call of the application to the next, while it has enough to do. The plan has no clock;
/// in these terms what is read back has to keep pace with its readers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Pace {
    bytes: u64,
    calls: u64,
    /// Carried since the last call.
    since: u64,
    was_busy: bool,
}

impl Pace {
    pub(super) fn carried(&mut self, bytes: u64) {
        self.since = self.since.saturating_add(bytes);
    }

    /// The application called, and the hop is as busy as it can be, or not.
    fn called(&mut self, is_busy: bool) {
        if self.was_busy && is_busy {
            self.bytes = self.bytes.saturating_add(self.since);
            self.calls += 1;
            if self.calls >= MEMORY {
                (self.bytes, self.calls) = (self.bytes / 2, self.calls / 2);
            }
        }
        (self.since, self.was_busy) = (0, is_busy);
    }

    /// Bytes that it carries during so many calls; `None` before anything was measured.
    fn during(&self, calls: u64) -> Option<u64> {
        let bytes = u128::from(self.bytes) * u128::from(calls);
        let bytes = bytes.checked_div(u128::from(self.calls))?;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Bytes to be brought up, by the distance of the version.
type ToComeUp = Vec<(u64, u64)>;

impl Plan {
    /// The application asked for a checkpoint.
    pub(super) fn measure_pace(&mut self) {
        for tier in &mut self.tiers {
            let is_busy = tier.flushing >= tier.flush_depth && !tier.flushes.is_empty();
            tier.pace.called(is_busy);
        }
    }

    /// Has a run of copies flushed next, if there are several.
    ///
    /// What is flushed is given up, and has to come up again before it is read. So much comes up between two readings as
    /// goes down between two checkpoints: of several runs the first goes, unless after another nobody has to wait as long.
    pub(super) fn choose_run(&mut self, tier: TierId) {
        let this = &self.tiers[tier.0];
        let part = this.table.limit() / RUN_PART;
        let enough = part.max(self.largest_size.saturating_mul(RUN_VERSIONS));
        if !self.is_last_hop(tier)
            || this.backlog.queued() < enough.saturating_mul(2)
            || this.pace.during(1).is_none()
        {
            return;
        }
        let below = self.below(tier);
        let mut best: Option<(u64, Vec<Version>)> = None;
        for run in self.runs(tier, enough) {
            let late = self.late(tier, &below, &run);
            let is_better = |least: u64| least.saturating_sub(late) > enough / WORTH_A_HOLE;
            if best.as_ref().is_none_or(|&(least, _)| is_better(least)) {
                best = Some((late, run));
            }
        }
        if let Some((_, run)) = best {
            self.tiers[tier.0].flushes.choose(run.into_iter());
        }
    }

    /// What waits to be flushed from `tier`, in runs of at least `enough` bytes.
    fn runs(&self, tier: TierId, enough: u64) -> Vec<Vec<Version>> {
        let (mut runs, mut run, mut bytes) = (Vec::new(), Vec::new(), 0);
        for version in self.tiers[tier.0].flushes.not_chosen() {
            run.push(version);
            bytes += self.room_on(version, tier);
            if bytes >= enough {
                runs.push(std::mem::take(&mut run));
                bytes = 0;
            }
        }
        runs
    }

    /// What is hinted and has a copy below `tier`, or gets one.
    fn below(&self, tier: TierId) -> ToComeUp {
        let records = self.records.iter();
        let below = records.filter(|(_, r)| r.copies[tier.0 + 1..].iter().any(Option::is_some));
        below
            .filter_map(|(&version, r)| Some((self.order.distance(version)?, r.size_on(tier))))
            .collect()
    }

    /// Bytes that are still to come when some reader wants the last of them, at worst, if `run` has to come up, too.
    fn late(&self, tier: TierId, below: &ToComeUp, run: &[Version]) -> u64 {
        let run = run.iter();
        let run = run.filter_map(|&v| Some((self.order.distance(v)?, self.room_on(v, tier))));
        let mut all: Vec<_> = below.iter().copied().chain(run).collect();
        all.sort_unstable();
        let (mut bytes, mut worst) = (0_u64, 0);
        for (distance, size) in all {
            bytes = bytes.saturating_add(size);
            let come = self.tiers[tier.0].pace.during(distance).unwrap_or(u64::MAX);
            worst = worst.max(bytes.saturating_sub(come));
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_measured_between_calls_that_find_the_hop_busy() {
        let mut pace = Pace::default();
        pace.carried(1_000);
        pace.called(true);
        assert_eq!(pace.during(1), None, "it may have been idle before");
        pace.carried(100);
        pace.called(true);
        pace.carried(300);
        pace.called(true);
        assert_eq!((pace.during(1), pace.during(10)), (Some(200), Some(2_000)));
        pace.carried(7);
        pace.called(false);
        pace.carried(7);
        pace.called(true);
        assert_eq!(pace.during(1), Some(200));
    }

    #[test]
    fn old_measurements_fade_and_extremes_do_not_overflow() {
        let mut pace = Pace::default();
        pace.called(true);
        for _ in 0..1_000 {
            pace.called(true);
        }
        for _ in 0..1_000 {
            pace.carried(64);
            pace.called(true);
        }
        assert!(pace.during(1) >= Some(63), "{pace:?}");
        pace.carried(u64::MAX);
        pace.called(true);
        assert_eq!(pace.during(u64::MAX), Some(u64::MAX));
    }
}
