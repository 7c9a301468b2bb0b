//! What is expected of each copy: all that an eviction policy is told.

use super::event::TierId;
use super::history::Copy;
use super::space::Urgency;
use super::{AfterRestore, Backlog, Bandwidth, Plan, Record, RestoreOrder};
use crate::Version;
use tierflow_evict::{Distance, Outlook};
use tierflow_lifecycle::State;

impl Plan {
    /// Asks the policy what it would give up next if all were flushed, and has that flushed first. True if there is
    /// anything.
    pub(super) fn choose_flushes(&mut self, tier: TierId) -> bool {
        let Self {
            tiers,
            records,
            order,
            after_restore,
            last_size,
            ..
        } = self;
        let this = &mut tiers[tier.0];
        let judge = Judge {
            tier,
            order,
            backlog: &this.backlog,
            fetches: &this.fetches,
            below_open: true,
            urgency: Urgency::Patient,
            after: *after_restore,
            kept_until: 0,
        };
        let flushes = &this.flushes;
        let reserved = this.table.reserved(*last_size);
        this.candidates.clear();
        this.candidates
            .set_flush_bandwidth(this.backlog.bytes_per_second());
        let limit = this.table.limit();
        let usable = this.table.fragments().iter();
        for fragment in usable.take_while(|f| f.offset + f.size <= limit) {
            let outlook = match fragment.occupant {
                // Room without any eviction: not the question.
                None if fragment.size >= reserved => Some(Outlook::NEVER),
                None => None,
                Some(version) => {
                    let outlook = judge.outlook(version, records.get(&version));
                    let can_go = outlook.evictable_in == Some(0) || flushes.contains(version);
                    Some(Outlook {
                        evictable_in: (can_go && !flushes.is_chosen(version)).then_some(0),
                        ..outlook
                    })
                }
            };
            this.candidates.push(fragment.size, outlook);
        }
        let window = this.policy.choose_victims(&this.candidates, reserved);
        let chosen = window.and_then(|w| this.table.fragments().get(w.first..w.last));
        let chosen = chosen.unwrap_or_default().iter().filter_map(|f| f.occupant);
        this.flushes.choose(chosen)
    }
}

/// What the policy is told about each fragment of one tier.
pub(super) struct Judge<'a> {
    pub(super) tier: TierId,
    pub(super) order: &'a RestoreOrder,
    pub(super) backlog: &'a Backlog,
    pub(super) fetches: &'a [Bandwidth],
    /// Whether some lower tier takes flushes.
    pub(super) below_open: bool,
    pub(super) urgency: Urgency,
    pub(super) after: AfterRestore,
    /// What stands before this in the restore order stays here rather than be flushed.
    pub(super) kept_until: u64,
}

impl Judge<'_> {
    pub(super) fn outlook(&self, version: Version, record: Option<&Record>) -> Outlook {
        let copy = record.and_then(|r| r.copy(self.tier));
        let next = self.order.next(version);
        let is_kept = next.is_some_and(|sequence| sequence < self.kept_until);
        let evictable_in = record.and_then(|r| self.evictable_in(r));
        Outlook {
            evictable_in: evictable_in.filter(|&wait| wait == 0 || !is_kept),
            distance: self
                .order
                .distance(version)
                .map_or(Distance::Unhinted, Distance::At),
            refetch: record.map_or(0, |r| self.refetch(version, r)),
            written: copy.map_or(0, |c| c.written),
            used: copy.map_or(0, |c| c.used),
        }
    }

    /// ns that it takes to bring the copy back once it is lost; 0 if nobody will ask for it.
    fn refetch(&self, version: Version, record: &Record) -> u64 {
        let Some(copy) = record.copy(self.tier) else {
            return 0;
        };
        let is_wanted = self.order.next(version).is_some() || copy.state != State::Consumed;
        if record.doomed || !is_wanted || record.is_pinned_above(self.tier) {
            return 0;
        }
        let below = record.copies.iter().skip(self.tier.0 + 1);
        let next = below
            .map(|c| c.as_ref().is_some_and(Copy::is_readable))
            .position(|readable| readable);
        // What is not below yet will be on the next tier before it can be lost.
        let from = self.tier.0 + 1 + next.unwrap_or(0);
        self.fetches
            .get(from)
            .map_or(0, |bandwidth| bandwidth.ns(record.size))
    }

    /// `state_ts` of Algorithm 1: ns until the copy may be overwritten; `None` if that is not in sight.
    fn evictable_in(&self, record: &Record) -> Option<u64> {
        let copy = record.copy(self.tier)?;
        let soon = u64::from(!copy.is_idle());
        if !record.is_needed(self.tier) {
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
                self.flushed_in(record)
            }
            State::ReadComplete => None,
            _ if record.has_lower(self.tier) => Some(soon),
            // The copy above will be consumed and discarded, and this one with it.
            _ if self.after == AfterRestore::Discard
                && record.heirs == 0
                && record.is_pinned_above(self.tier) =>
            {
                Some(soon)
            }
            _ if !self.below_open || record.unreadable => None,
            State::WriteInProgress => Some(self.backlog.wait_ns(u64::MAX)),
            _ => self.flushed_in(record),
        }
    }

    /// `predict_evictable` of Algorithm 1: ns until the copy is flushed.
    fn flushed_in(&self, record: &Record) -> Option<u64> {
        let mark = record.copy(self.tier)?.queued_at?;
        Some(self.backlog.wait_ns(mark))
    }
}
