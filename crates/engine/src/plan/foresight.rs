//! How large a history will be, as far as anybody can tell.

use super::Plan;
use super::event::TierId;
use tierflow_evict::AllocationTable;

/// Where sizes differ, versions to come are taken to be so many times as large as the largest one: compressed wavefields of a
/// shot grow by two orders of magnitude, and who begins to flush in time has an idle disk to make up for nothing.
const GROWTH: u64 = 16;

/// A history may exceed the one before by this part of it.
const MORE_PART: u64 = 8;

/// Bytes of this history and of the last one. A history begins with a checkpoint when nothing is held, and ends when
/// nothing is held any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Foresight {
    /// Of all versions that are held.
    held: u64,
    /// The most that was held in this history.
    peak: u64,
    /// The most that was held in the one before.
    last: Option<u64>,
    /// All of it was hinted before it began.
    foretold: bool,
}

impl Foresight {
    /// A version is hinted that is not written yet. Who tells more of it piece by piece may well tell more again.
    pub(super) fn hinted(&mut self) {
        self.foretold = self.held == 0;
    }

    /// A checkpoint begins.
    pub(super) fn begun(&mut self, bytes: u64, is_hinted: bool) {
        self.foretold &= is_hinted;
        self.held = self.held.saturating_add(bytes);
        self.peak = self.peak.max(self.held);
    }

    /// A version is not held any more.
    pub(super) fn gone(&mut self, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        if self.held == 0 {
            (self.last, self.peak, self.foretold) = (Some(self.peak), 0, false);
        }
    }

    /// The most that will be held, with `unwritten` bytes of what is foretold to come; `None` if nothing tells.
    fn most(&self, unwritten: u64) -> Option<u64> {
        if self.foretold {
            return Some(self.held.saturating_add(unwritten));
        }
        let most = self
            .last
            .map(|last| last.saturating_add(last / MORE_PART))?;
        (self.held <= most).then_some(most)
    }
}

impl Plan {
    /// Whether all that is foreseen fits `tier`, so that nothing has to leave it.
    pub(super) fn is_foreseen_to_fit(&self, tier: TierId) -> bool {
        let table = &self.tiers[tier.0].table;
        let each = if self.sizes_vary {
            self.largest_size.saturating_mul(GROWTH)
        } else {
            self.last_size
        };
        let unwritten = self.unwritten.saturating_mul(table.reserved(each));
        let most = self.foresight.most(unwritten);
        most.is_some_and(|most| most <= table.limit())
    }

    /// As long as hints tell what is still to be written, and how much it is (all checkpoints so far were of one size):
    /// whether `tier` has room for all of it that the tiers above cannot keep. What has a copy below counts as room where
    /// the tier below is full: there, a flush that is not needed would push out what has to be read back later.
    pub(super) fn holds_what_comes(&self, tier: TierId) -> bool {
        if self.unwritten == 0 || self.sizes_vary {
            return false;
        }
        let mut to_come = self.unwritten;
        for (this, below) in std::iter::zip(&self.tiers[..=tier.0], &self.tiers[1..]) {
            let reserved = this.table.reserved(self.last_size).max(1);
            let has_gap = |table: &AllocationTable<_>| {
                table.first_gap(table.reserved(self.last_size)).is_some()
            };
            // Of what was prefetched some stays, whatever lies below.
            let stays = if self.prefetch_started || has_gap(&below.table) {
                this.table.used().div_ceil(reserved)
            } else {
                this.backlog.queued().div_ceil(self.last_size.max(1))
            };
            to_come = (stays + to_come).saturating_sub(this.table.limit() / reserved);
        }
        to_come == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hinted_beforehand_tells_and_what_trickles_in_does_not() {
        let mut foresight = Foresight::default();
        assert_eq!(foresight.most(0), None);
        foresight.hinted();
        foresight.begun(10, true);
        assert_eq!(foresight.most(30), Some(40));
        foresight.hinted();
        assert_eq!(foresight.most(30), None);
    }

    #[test]
    fn a_history_is_expected_to_be_like_the_last_one_until_it_is_larger() {
        let mut foresight = Foresight::default();
        for _ in 0..4 {
            foresight.begun(20, false);
        }
        assert_eq!(foresight.most(0), None, "the first one");
        (0..4).for_each(|_| foresight.gone(20));
        foresight.begun(50, false);
        assert_eq!(foresight.most(0), Some(90));
        foresight.begun(50, false);
        assert_eq!(foresight.most(0), None);
    }
}
