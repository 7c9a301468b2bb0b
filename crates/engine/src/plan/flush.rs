//! What goes down next: each tier flushes its copies in the order of their writes (HPDC'23 §4.3.2).

use super::event::{Place, TierId};
use super::space::{Found, Urgency};
use super::transfers::Purpose;
use super::{AfterRestore, Cause, Plan, Tier};
use crate::{Flush, Version};
use tierflow_evict::FlushOrder;

/// So many restores without a checkpoint in between, and the application is taken to read only.
pub(super) const READING: u32 = 2;

/// What to do with the version at the head of a flush queue.
enum Head {
    /// It needs no flush any more.
    Settled,
    /// It will be consumed and discarded soon: a flush would be for nothing.
    Defer,
    /// It goes.
    Flush,
}

impl Plan {
    /// A complete copy arrived on `tier` and no lower tier has it.
    pub(super) fn enqueue_flush(&mut self, version: Version, tier: TierId) {
        if tier >= self.last_tier() {
            return;
        }
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        if let Some(copy) = record.copy_mut(tier) {
            let this = &mut self.tiers[tier.0];
            copy.queued_at = Some(this.backlog.join(copy.place.size));
            this.flushes.push(version);
        }
    }

    /// Takes a copy's mark off the flush queue; the queue's own entry is skipped when it comes up.
    pub(super) fn leave_flush_queue(&mut self, version: Version, tier: TierId) {
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        if let Some(copy) = record.copy_mut(tier)
            && copy.queued_at.take().is_some()
        {
            self.tiers[tier.0].backlog.leave(copy.place.size);
        }
    }

    /// Starts every flush that may start.
    pub(super) fn flush_all(&mut self) {
        for tier in (0..self.tiers.len().saturating_sub(1)).map(TierId) {
            if self.hurry {
                let this = &mut self.tiers[tier.0];
                for version in this.deferred.drain(..) {
                    this.flushes.push(version);
                }
            }
            self.flush_from(tier);
        }
    }

    /// Whether flushes from `tier` are wanted: by what is known of the history, or as somebody waits.
    fn is_pressed(&self, tier: TierId) -> bool {
        if self.hurry || self.starved {
            return true;
        }
        // What is flushed now would only be read back, over the same disk.
        if self.is_last_hop(tier) && self.rests(tier) {
            return false;
        }
        let this = &self.tiers[tier.0];
        match this.flush {
            Flush::Eager => true,
            Flush::Above { percent } => {
                let full = u128::from(this.table.limit()) * u128::from(percent);
                u128::from(this.table.used()) * 100 > full
            }
            Flush::Foreseen => !self.is_foreseen_to_fit(tier) && !self.holds_what_comes(tier),
        }
    }

    /// Whether the policy of `tier` wants no more flushes than are needed, as the application seems to do nothing any more
    /// but restore versions, which go with that.
    pub(super) fn rests(&self, tier: TierId) -> bool {
        let only_reads = self.after_restore == AfterRestore::Discard
            && !self.flushes_all
            && self.restores_in_a_row >= READING;
        only_reads && self.tiers[tier.0].conduct.rests
    }

    /// Whether the next tier is the last one.
    pub(super) fn is_last_hop(&self, tier: TierId) -> bool {
        tier.0 + 1 == self.last_tier().0
    }

    /// Starts flushes from `tier`: first of what lies beyond its limit, then, if they are wanted, of all that are queued.
    fn flush_from(&mut self, tier: TierId) {
        let this = &self.tiers[tier.0];
        if this.flushing >= this.flush_depth {
            return;
        }
        let pressed = self.is_pressed(tier);
        while let Some(version) = self
            .flush_to_leave(tier)
            .or_else(|| pressed.then(|| self.next_flush(tier))?)
        {
            match self.head(version, tier) {
                Head::Settled => {
                    self.leave_flush_queue(version, tier);
                    self.tiers[tier.0].flushes.remove(version);
                }
                Head::Defer => {
                    let this = &mut self.tiers[tier.0];
                    this.flushes.remove(version);
                    this.deferred.push(version);
                }
                Head::Flush => {
                    if self.tiers[tier.0].flushing >= self.tiers[tier.0].flush_depth {
                        return;
                    }
                    let Some(to) = self.flush_target(version, tier) else {
                        return;
                    };
                    self.tiers[tier.0].flushes.remove(version);
                    self.start(Purpose::Flush, version, tier, to);
                }
            }
        }
    }

    /// The version to flush next, if any waits that may go.
    fn next_flush(&mut self, tier: TierId) -> Option<Version> {
        // Without hints one copy is as good as another, and the oldest as good as any.
        let knows = self.is_foretold(tier);
        let must_choose = |this: &mut Tier| {
            knows
                && this.conduct.flush_order == FlushOrder::Evicted
                && this.flushing < this.flush_depth
                && !this.flushes.is_empty()
                && !this.flushes.is_front_chosen()
        };
        if self.sizes_vary {
            if must_choose(&mut self.tiers[tier.0]) {
                self.choose_run(tier);
            }
        } else {
            // Each turn chooses copies that were not chosen before; some are flushed already.
            while must_choose(&mut self.tiers[tier.0]) && self.choose_flushes(tier) {}
        }
        let kept_until = self.kept_until(tier);
        let Self { tiers, order, .. } = self;
        tiers[tier.0]
            .flushes
            .first(|version| order.next(version).is_none_or(|next| next >= kept_until))
    }

    /// Whether hints tell the copies on `tier` apart.
    pub(super) fn is_foretold(&self, tier: TierId) -> bool {
        self.order.end() - self.order.head() >= self.tiers[tier.0].table.len() as u64
    }

    /// Asks the policy what it would give up next if all were flushed, and has that flushed first. True if there is
    /// anything.
    fn choose_flushes(&mut self, tier: TierId) -> bool {
        self.look_again(tier);
        let this = &mut self.tiers[tier.0];
        let reserved = this.table.reserved(self.last_size);
        let candidates = this
            .known
            .for_flush(&this.table, reserved, self.order.head());
        candidates.set_flush_bandwidth(this.backlog.bytes_per_second());
        let window = this.policy.choose_victims(candidates, reserved);
        let chosen = window.and_then(|w| this.table.fragments().get(w.first..w.last));
        let chosen = chosen.unwrap_or_default().iter().filter_map(|f| f.occupant);
        this.flushes.choose(chosen)
    }

    fn head(&self, version: Version, tier: TierId) -> Head {
        let Some(record) = self.records.get(&version) else {
            return Head::Settled;
        };
        let Some(copy) = record.copy(tier) else {
            return Head::Settled;
        };
        let is_over = record.unreadable || copy.queued_at.is_none() || record.has_lower(tier);
        if is_over || !record.is_needed(tier) {
            Head::Settled
        } else if self.after_restore == AfterRestore::Discard
            && copy.is_pinned()
            && !self.hurry
            && !self.is_beyond_limit(version, tier)
        {
            Head::Defer
        } else {
            Head::Flush
        }
    }

    /// The next tier that takes the bytes now. One that has no room in sight, because all it holds is about to be
    /// read, is passed over; one that will have room is waited for.
    fn flush_target(&mut self, version: Version, tier: TierId) -> Option<Place> {
        if self.is_held_back(version, tier) {
            return None;
        }
        let past = usize::from(self.passes_by(version, tier));
        for lower in (tier.0 + 1 + past..self.tiers.len()).map(TierId) {
            let size = self.room_on(version, lower);
            let taken = self
                .records
                .get(&version)
                .is_some_and(|r| r.copy(lower).is_some());
            if taken || self.tiers[lower.0].closed || !self.fits(lower, size) {
                continue;
            }
            match self.claim(lower, version, size, (Urgency::Patient, Cause::Flush)) {
                Found::At(place) => return Some(place),
                Found::Wait if !self.is_idle() => return None,
                Found::Wait | Found::Never => {}
            }
        }
        None
    }
}
