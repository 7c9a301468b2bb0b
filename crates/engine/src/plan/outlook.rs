//! What is expected of each copy: all that an eviction policy is told.

use super::bandwidth::{Bandwidth, Drain};
use super::event::TierId;
use super::flush_queue::FlushQueue;
use super::history::Copy;
use super::space::Urgency;
use super::{AfterRestore, Record, RestoreOrder};
use crate::Version;
use tierflow_evict::{Distance, MAX_WAIT, Outlook};
use tierflow_lifecycle::State;

/// What is known of one copy, for as long as nothing happens to its version: no number in it has to follow the restores,
/// flushes and prefetches of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// Sequence number of its next reading.
    next: Option<u64>,
    leaves: Leaves,
    /// It was brought up to be read: only who is urgent may have it.
    pinned: bool,
    /// It could go if it were flushed, and was not chosen for that yet.
    pub(super) eligible: bool,
    /// Where it would be brought back from once it is lost, if anybody will ask for it; and its bytes there.
    fetched_from: Option<TierId>,
    bytes: u64,
    /// ns that this takes.
    refetch: u64,
    written: u64,
    used: u64,
}

/// When a copy may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Not in sight.
    Never,
    /// In so many ns.
    In(u64),
    /// Once it is flushed, if the tiers below take flushes: when what was queued up to this mark is through. Without a
    /// mark it is not even written.
    Flushed(Option<u64>),
}

/// Who asks for the outlook of all copies of a tier, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) urgency: Urgency,
    /// Whether some lower tier takes flushes.
    pub(super) below_open: bool,
    /// The front of the restore order.
    pub(super) head: u64,
    /// What stands before this in the restore order stays here rather than be flushed.
    pub(super) kept_until: u64,
    /// How the flushes that wait get through, if any wait.
    pub(super) drain: Option<Drain>,
}

impl Standing {
    /// Of no copy.
    pub(super) const NONE: Self = Self {
        next: None,
        leaves: Leaves::Never,
        pinned: false,
        eligible: false,
        fetched_from: None,
        bytes: 0,
        refetch: 0,
        written: 0,
        used: 0,
    };

    /// What this means to who asks now.
    #[inline]
    pub(super) fn outlook(&self, now: &Moment) -> Outlook {
        let evictable_in = match self.leaves {
            _ if self.pinned && now.urgency == Urgency::Patient => None,
            Leaves::Never => None,
            Leaves::In(ns) => Some(ns),
            Leaves::Flushed(_) if !now.below_open => None,
            Leaves::Flushed(None) => Some(MAX_WAIT),
            // Never 0, which were now.
            Leaves::Flushed(Some(mark)) => Some(now.drain.map_or(1, |drain| drain.wait_ns(mark))),
        };
        let is_kept = self.next.is_some_and(|next| next < now.kept_until);
        self.outlook_at(now.head, evictable_in.filter(|&ns| ns == 0 || !is_kept))
    }

    #[inline]
    pub(super) fn outlook_at(&self, head: u64, evictable_in: Option<u64>) -> Outlook {
        let distance = self.next.map(|sequence| sequence - head);
        Outlook {
            evictable_in,
            distance: distance.map_or(Distance::Unhinted, Distance::At),
            refetch: self.refetch,
            written: self.written,
            used: self.used,
        }
    }

    /// The transfers were measured anew.
    pub(super) fn measure(&mut self, fetches: &[Bandwidth]) {
        let bandwidth = self.fetched_from.and_then(|from| fetches.get(from.0));
        self.refetch = bandwidth.map_or(0, |bandwidth| bandwidth.ns(self.bytes));
    }
}

/// What the copies of one tier are judged by.
pub(super) struct Judge<'a> {
    pub(super) tier: TierId,
    pub(super) order: &'a RestoreOrder,
    pub(super) flushes: &'a FlushQueue,
    pub(super) fetches: &'a [Bandwidth],
    pub(super) after: AfterRestore,
}

impl Judge<'_> {
    pub(super) fn standing(&self, version: Version, record: &Record) -> Standing {
        let Some(copy) = record.copy(self.tier) else {
            return Standing::NONE;
        };
        let (pinned, leaves) = self.leaves(record, copy);
        let can_go = leaves == Leaves::In(0) && !pinned;
        let next = self.order.next(version);
        let mut standing = Standing {
            next,
            leaves,
            pinned,
            eligible: (can_go || self.flushes.contains(version))
                && !self.flushes.is_chosen(version),
            fetched_from: self.fetched_from(record, copy, next.is_some()),
            bytes: record.size,
            refetch: 0,
            written: copy.written,
            used: copy.used,
        };
        standing.measure(self.fetches);
        standing
    }

    /// Which tier has the copy next once this one is lost; `None` if nobody will ask for it.
    fn fetched_from(&self, record: &Record, copy: &Copy, is_hinted: bool) -> Option<TierId> {
        let is_wanted = is_hinted || copy.state != State::Consumed;
        if record.doomed || !is_wanted || record.is_pinned_above(self.tier) {
            return None;
        }
        let below = record.copies.iter().skip(self.tier.0 + 1);
        let next = below
            .map(|c| c.as_ref().is_some_and(Copy::is_readable))
            .position(|readable| readable);
        // What is not below yet will be on the next tier before it can be lost.
        Some(TierId(self.tier.0 + 1 + next.unwrap_or(0)))
    }

    /// `state_ts` of Algorithm 1: when the copy may be overwritten, and whether only by who is urgent.
    fn leaves(&self, record: &Record, copy: &Copy) -> (bool, Leaves) {
        let soon = Leaves::In(u64::from(!copy.is_idle()));
        let pinned = copy.state == State::ReadComplete;
        if !record.is_needed(self.tier) {
            return (false, soon);
        }
        let leaves = match copy.state {
            // On its way in to be read: it will be pinned.
            State::ReadInProgress => Leaves::Never,
            _ if record.has_lower(self.tier) => soon,
            // Its flush goes on; where it is discarded after its restore, it was put off.
            State::ReadComplete if self.after == AfterRestore::Discard => Leaves::Never,
            // The copy above will be consumed and discarded, and this one with it.
            _ if self.after == AfterRestore::Discard
                && record.heirs == 0
                && record.is_pinned_above(self.tier) =>
            {
                soon
            }
            _ if record.unreadable => Leaves::Never,
            State::WriteInProgress => Leaves::Flushed(None),
            // `predict_evictable` of Algorithm 1.
            _ => match copy.queued_at {
                None => Leaves::Never,
                mark => Leaves::Flushed(mark),
            },
        };
        (pinned, leaves)
    }
}
