//! How much of a tier may be used, and how the rest of it is emptied.
//!
//! A tier keeps to its first bytes. More of them may be used at once. Fewer: whatever reaches beyond leaves as soon as
//! nobody reads or writes it, after its flush if no other tier has it; nothing new goes there; and when all of it is
//! gone, [`Command::Released`] says so.

use super::event::{Command, TierId};
use super::{AfterRestore, Cause, Plan};
use crate::Version;

impl Plan {
    /// Only the first `bytes` of `tier` may be used from now on.
    pub(super) fn limit(&mut self, tier: TierId, bytes: u64) {
        let Some(this) = self.tiers.get_mut(tier.0) else {
            return;
        };
        this.table.set_limit(bytes);
        this.vacating = true;
        // What is large enough for the tier, and how far it reaches along the restore order, has changed.
        self.rewind();
    }

    /// Bytes that may be set aside on `tier` and are not; 0 while there is no such tier.
    #[must_use]
    pub fn free(&self, tier: TierId) -> u64 {
        self.tiers.get(tier.0).map_or(0, |tier| tier.table.free())
    }

    /// Bytes that `tier` has a use for, whatever its limit: what lies there, or else all that is held and has no room
    /// above.
    #[must_use]
    pub fn demand(&self, tier: TierId) -> u64 {
        let Some(this) = self.tiers.get(tier.0) else {
            return 0;
        };
        let above = self.tiers[..tier.0].iter();
        let above: u64 = above.map(|tier| tier.table.limit()).sum();
        let held = self.records.values().filter(|r| !r.doomed);
        let held: u64 = held.map(|r| this.table.reserved(r.size_on(tier))).sum();
        held.saturating_sub(above).max(this.table.used())
    }

    /// Empties what lies beyond the limits, as far as that can be done now.
    pub(super) fn vacate_all(&mut self) {
        for tier in (0..self.tiers.len()).map(TierId) {
            if self.tiers[tier.0].vacating {
                self.vacate_tier(tier);
            }
        }
    }

    fn vacate_tier(&mut self, tier: TierId) {
        let beyond: Vec<_> = self.tiers[tier.0].table.beyond_limit().collect();
        for version in beyond {
            if self.may_leave(version, tier) {
                self.evict(tier, version, Cause::Limit);
            } else {
                self.queue_to_leave(version, tier);
            }
        }
        let this = &mut self.tiers[tier.0];
        if this.table.beyond_limit().next().is_none() {
            this.vacating = false;
            let bytes = this.table.limit();
            self.commands.push(Command::Released { tier, bytes });
        }
    }

    /// Whether the copy of `version` on `tier` can go at once: idle, and its bytes are elsewhere.
    fn may_leave(&self, version: Version, tier: TierId) -> bool {
        let Some(record) = self.records.get(&version) else {
            return false;
        };
        let is_idle = record.copy(tier).is_some_and(super::history::Copy::is_idle);
        let above = self.after_restore == AfterRestore::Discard
            && record.heirs == 0
            && record.is_pinned_above(tier);
        is_idle && (record.has_lower(tier) || above)
    }

    /// Has a copy that stands in the way flushed, unless that is under way or cannot be.
    fn queue_to_leave(&mut self, version: Version, tier: TierId) {
        let Some(record) = self.records.get(&version) else {
            return;
        };
        let Some(copy) = record.copy(tier) else {
            return;
        };
        let this = &mut self.tiers[tier.0];
        if let Some(at) = this.deferred.iter().position(|&v| v == version) {
            this.deferred.swap_remove(at);
            this.flushes.push(version);
        }
        let under_way = record.copies.iter().skip(tier.0 + 1).any(Option::is_some);
        let is_stuck = !record.is_needed(tier) || record.unreadable || !copy.is_readable();
        if copy.queued_at.is_none() && !under_way && !is_stuck {
            self.enqueue_flush(version, tier);
        }
    }

    /// A copy that stands in the way and waits to be flushed.
    pub(super) fn flush_to_leave(&self, tier: TierId) -> Option<Version> {
        let this = &self.tiers[tier.0];
        let mut beyond = this.table.beyond_limit();
        this.vacating
            .then(|| beyond.find(|&version| this.flushes.contains(version)))?
    }

    /// Whether a copy on `tier` stands in the way.
    pub(super) fn is_beyond_limit(&self, version: Version, tier: TierId) -> bool {
        let table = &self.tiers[tier.0].table;
        table
            .get(&version)
            .is_some_and(|slot| slot.offset + slot.reserved > table.limit())
    }
}
