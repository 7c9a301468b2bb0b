//! Room in a tier: the eviction policy's view of every fragment, and the claim of a window.

use super::event::{Command, Place, TierId};
use super::history::Copy;
use super::prefetch::advance;
use super::{AfterRestore, Backlog, Plan, Record, RestoreOrder};
use crate::Version;
use tierflow_evict::{Distance, Outlook, Slot};
use tierflow_lifecycle::{Event as Move, State};

/// Whether copies that are prefetched and not yet consumed may be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// They stay (HPDC'23 §2, condition 4).
    Patient,
    /// Those that also lie on a lower tier may go: a caller is blocked and nothing else can help it.
    Urgent,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The window is free and taken.
    At(Place),
    /// A window will become evictable by itself.
    Wait,
    /// No window in sight.
    Never,
}

impl Plan {
    /// Whether `size` bytes fit into what may be used of the tier, when it is empty.
    pub(super) fn fits(&self, tier: TierId, size: u64) -> bool {
        let table = &self.tiers[tier.0].table;
        table.reserved(size) <= table.limit()
    }

    /// Takes room for `version`: the lowest gap that fits, else the window that the tier's policy gives up.
    pub(super) fn claim(
        &mut self,
        tier: TierId,
        version: Version,
        size: u64,
        urgency: Urgency,
    ) -> Found {
        let Self {
            tiers,
            records,
            order,
            after_restore,
            ..
        } = self;
        let below_open = tiers[tier.0 + 1..].iter().any(|t| !t.closed);
        let this = &mut tiers[tier.0];
        let reserved = this.table.reserved(size);
        let offset = match this.table.first_gap(reserved) {
            Some(offset) => offset,
            None => {
                let judge = Judge {
                    tier,
                    order,
                    backlog: &this.backlog,
                    below_open,
                    urgency,
                    after: *after_restore,
                };
                this.table
                    .candidates_into(&mut this.candidates, |v| judge.outlook(v, records.get(&v)));
                let Some(window) = this.policy.choose(&this.candidates, reserved) else {
                    return Found::Never;
                };
                if window.p_score > 0 {
                    return Found::Wait;
                }
                let victims = this
                    .table
                    .fragments()
                    .get(window.first..window.last)
                    .unwrap_or_default();
                let victims: Vec<_> = victims
                    .iter()
                    .filter_map(|fragment| fragment.occupant)
                    .collect();
                victims
                    .into_iter()
                    .for_each(|victim| self.evict(tier, victim));
                window.offset
            }
        };
        let this = &mut self.tiers[tier.0];
        let Ok(slot) = this.table.insert(offset, version, size) else {
            return Found::Never;
        };
        this.statistics.peak_bytes = this.statistics.peak_bytes.max(this.table.used());
        Found::At(place(tier, slot))
    }

    /// Gives up the copy of `version` on `tier`, to make room or to empty what may not be used any more.
    pub(super) fn evict(&mut self, tier: TierId, version: Version) {
        let Some(mut copy) = self.take_copy(tier, version) else {
            return;
        };
        let statistics = &mut self.tiers[tier.0].statistics;
        statistics.evictions += 1;
        match copy.state {
            State::ReadComplete => {
                statistics.dropped_prefetches += 1;
                advance(&mut copy.state, Move::Unpinned);
                self.rewind();
            }
            // The copy above is the one that will be read.
            State::WriteComplete => advance(&mut copy.state, Move::Consumed),
            _ => {}
        }
        advance(&mut copy.state, Move::Evicted);
        self.vacate(version, copy.place);
    }

    /// Frees the bytes of `version` on `tier`: their transfer failed, or nobody will read them again.
    pub(super) fn release(&mut self, tier: TierId, version: Version) {
        let Some(mut copy) = self.take_copy(tier, version) else {
            return;
        };
        if copy.state.in_transit() {
            advance(&mut copy.state, Move::Failed);
            let _ = self.tiers[tier.0].table.remove(&version);
        } else {
            advance(&mut copy.state, Move::Consumed);
            advance(&mut copy.state, Move::Evicted);
            self.vacate(version, copy.place);
        }
    }

    /// Makes a gap of the copy's place. The table holds every copy (Plan::check), so there is nothing to report.
    fn vacate(&mut self, version: Version, place: Place) {
        let _ = self.tiers[place.tier.0].table.remove(&version);
        self.commands.push(Command::Drop { version, place });
    }

    /// Takes a copy out of its record, and out of the flush queue's sums.
    fn take_copy(&mut self, tier: TierId, version: Version) -> Option<Copy> {
        let copy = self
            .records
            .get_mut(&version)?
            .copies
            .get_mut(tier.0)?
            .take()?;
        if copy.queued_at.is_some() {
            self.tiers[tier.0].backlog.leave(copy.place.size);
        }
        Some(copy)
    }
}

fn place(tier: TierId, slot: Slot) -> Place {
    Place {
        tier,
        offset: slot.offset,
        size: slot.size,
        reserved: slot.reserved,
    }
}

/// What the policy is told about each fragment of one tier.
struct Judge<'a> {
    tier: TierId,
    order: &'a RestoreOrder,
    backlog: &'a Backlog,
    /// Whether some lower tier takes flushes.
    below_open: bool,
    urgency: Urgency,
    after: AfterRestore,
}

impl Judge<'_> {
    fn outlook(&self, version: Version, record: Option<&Record>) -> Outlook {
        let copy = record.and_then(|r| r.copy(self.tier));
        Outlook {
            evictable_in: record.and_then(|r| self.evictable_in(r)),
            distance: self
                .order
                .distance(version)
                .map_or(Distance::Unhinted, Distance::At),
            written: copy.map_or(0, |c| c.written),
            used: copy.map_or(0, |c| c.used),
        }
    }

    /// `state_ts` of Algorithm 1: ns until the copy may be overwritten; `None` if that is not in sight.
    fn evictable_in(&self, record: &Record) -> Option<u64> {
        let copy = record.copy(self.tier)?;
        let soon = u64::from(!copy.is_idle());
        if record.doomed {
            return Some(soon);
        }
        match copy.state {
            // On its way in to be read: it will be pinned.
            State::ReadInProgress => None,
            State::ReadComplete
                if self.urgency == Urgency::Urgent && record.has_lower(self.tier) =>
            {
                Some(soon)
            }
            // Its flush goes on; where it is discarded after its restore, it was put off.
            State::ReadComplete
                if self.urgency == Urgency::Urgent
                    && self.after == AfterRestore::Keep
                    && self.below_open
                    && !record.unreadable =>
            {
                copy.queued_at.map(|mark| self.backlog.wait_ns(mark))
            }
            State::ReadComplete => None,
            _ if record.has_lower(self.tier) => Some(soon),
            // The copy above will be consumed and discarded, and this one with it.
            _ if self.after == AfterRestore::Discard && record.is_pinned_above(self.tier) => {
                Some(soon)
            }
            _ if !self.below_open || record.unreadable => None,
            State::WriteInProgress => Some(self.backlog.wait_ns(u64::MAX)),
            _ => copy.queued_at.map(|mark| self.backlog.wait_ns(mark)),
        }
    }
}
