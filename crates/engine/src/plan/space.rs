//! Room in a tier: the eviction policy's view of every fragment, and the claim of a window.

use super::event::{Command, Place, TierId};
use super::history::Copy;
use super::outlook::Moment;
use super::prefetch::advance;
use super::{Cause, Eviction, Plan};
use crate::Version;
use tierflow_evict::Slot;
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
        (urgency, cause): (Urgency, Cause),
    ) -> Found {
        let reserved = self.tiers[tier.0].table.reserved(size);
        let offset = match self.tiers[tier.0].table.first_gap(reserved) {
            Some(offset) => offset,
            None => {
                self.look_again(tier);
                let kept_until = match urgency {
                    Urgency::Patient => self.kept_until(tier),
                    Urgency::Urgent => 0,
                };
                let now = Moment {
                    urgency,
                    below_open: self.tiers[tier.0 + 1..].iter().any(|t| !t.closed),
                    head: self.order.head(),
                    drain: self.tiers[tier.0].backlog.drain(),
                    kept_until,
                };
                let this = &mut self.tiers[tier.0];
                let candidates = this.known.for_room(&this.table, now);
                candidates.set_flush_bandwidth(this.backlog.bytes_per_second());
                // No gap holds it, so victims are what is asked for.
                let fits = reserved <= candidates.bytes();
                let Some(window) = fits
                    .then(|| this.policy.choose_victims(candidates, reserved))
                    .flatten()
                else {
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
                    .for_each(|victim| self.evict(tier, victim, cause));
                window.offset
            }
        };
        // What was evicted may have been all that it was still kept for.
        let record = self.records.get(&version);
        if !record.is_some_and(|record| record.is_needed(tier)) {
            return Found::Never;
        }
        self.take(tier, offset, version, size)
            .map_or(Found::Never, Found::At)
    }

    /// Puts `version` into a gap.
    pub(super) fn take(
        &mut self,
        tier: TierId,
        offset: u64,
        version: Version,
        size: u64,
    ) -> Option<Place> {
        let this = &mut self.tiers[tier.0];
        let slot = this.table.insert(offset, version, size).ok()?;
        this.statistics.peak_bytes = this.statistics.peak_bytes.max(this.table.used());
        Some(place(tier, slot))
    }

    /// Gives up the copy of `version` on `tier`, to make room or to empty what may not be used any more.
    pub(super) fn evict(&mut self, tier: TierId, version: Version, cause: Cause) {
        let Some(mut copy) = self.take_copy(tier, version) else {
            return;
        };
        let statistics = &mut self.tiers[tier.0].statistics;
        statistics.evicted(cause);
        if let Some(evictions) = &mut self.evictions {
            evictions.push(Eviction {
                version,
                tier,
                bytes: copy.place.size,
                cause,
            });
        }
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
        self.forget_form(version);
    }

    /// Takes a copy out of its record, and out of the flush queue's sums.
    fn take_copy(&mut self, tier: TierId, version: Version) -> Option<Copy> {
        let copy = self
            .records
            .get_mut(&version)?
            .copies
            .get_mut(tier.0)?
            .take()?;
        self.tiers[tier.0].flushes.gone(version);
        if copy.queued_at.is_some() {
            self.tiers[tier.0].backlog.leave(copy.place.size);
        }
        self.note(version);
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
