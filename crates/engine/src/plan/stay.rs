//! What had better stay where it was written: what is read first, and what would push something else out.

use super::event::TierId;
use super::in_place::FASTEST;
use super::{AfterRestore, Plan};
use crate::Version;

/// What is read first is this part of the restore order, and no more versions than that.
const NEXT_PART: u64 = 16;
const NEXT_MOST: u64 = 32;

/// It takes no more than this part of the fastest tier.
const KEPT_PART: u64 = 4;

/// Room for so many versions of the largest size is enough for a tier to take in what is written, and what is read.
const ROOM_TO_WRITE: u64 = 5;
const ROOM_TO_READ: u64 = 3;

impl Plan {
    /// Where in the restore order the versions end that stay on `tier` rather than be flushed; 0 where none do.
    ///
    /// They are read first, before anything that is not near can have come up; and a tier that has passed them on may give
    /// them up. So the fastest tier keeps them, until somebody waits for room or for all flushes.
    pub(super) fn kept_until(&self, tier: TierId) -> u64 {
        let this = &self.tiers[tier.0];
        let keeps = tier == FASTEST
            && this.conduct.keeps_next
            && self.sizes_vary
            && self.after_restore == AfterRestore::Discard
            && !self.flushes_all
            && !self.hurry
            && !self.starved;
        if !keeps || !self.is_foretold(tier) {
            return 0;
        }
        let (head, end) = (self.order.head(), self.order.end());
        let most = (end - head).div_ceil(NEXT_PART).min(NEXT_MOST);
        let room = this.table.limit() / KEPT_PART;
        let mut bytes = 0_u64;
        let fits = |&at: &u64| {
            let record = self.order.at(at).and_then(|v| self.records.get(&v));
            bytes = bytes.saturating_add(record.map_or(0, |r| r.size));
            bytes <= room
        };
        head + (head..head + most).take_while(fits).count() as u64
    }

    /// Whether the flush of `version` from `tier` can wait. While the tier has room for what comes next, a copy below is
    /// only one more: it takes room that something else has to leave, or that a prefetch wants.
    pub(super) fn is_held_back(&self, version: Version, tier: TierId) -> bool {
        if self.hurry || self.starved || self.is_beyond_limit(version, tier) {
            return false;
        }
        let this = &self.tiers[tier.0];
        let reads = this.conduct.holds_back && self.rests(tier) && !self.is_last_hop(tier);
        let enough = if reads { ROOM_TO_READ } else { ROOM_TO_WRITE };
        // All but what waits to be flushed can go, or will be read soon.
        let room = this.table.limit().saturating_sub(this.backlog.queued());
        let can_wait = room > enough.saturating_mul(self.largest_size);
        can_wait && (reads || self.pushes_out(version, tier))
    }

    /// Whether the flush of `version` from `tier`, for somebody who waits for all flushes, had better go past the next
    /// tier: it goes on to a lower one in any case, and the tier that it comes from needs no room.
    pub(super) fn passes_by(&self, version: Version, tier: TierId) -> bool {
        !self.starved
            && self.callers.anyone_waiting()
            && !self.is_beyond_limit(version, tier)
            && self.pushes_out(version, tier)
    }

    /// Whether the next tier has to give something up for `version`.
    fn pushes_out(&self, version: Version, tier: TierId) -> bool {
        let lower = TierId(tier.0 + 1);
        let holds = self.tiers[tier.0].conduct.holds_back
            && self.after_restore == AfterRestore::Discard
            && !self.flushes_all
            && lower < self.last_tier();
        let table = &self.tiers[lower.0].table;
        holds
            && table
                .first_gap(table.reserved(self.room_on(version, lower)))
                .is_none()
    }
}
