//! Calls of the application that are not over yet.

use crate::event::{Misuse, Scope};
use crate::ledger::Base;
use crate::{Ticket, TierId, Version};
use hashbrown::{HashMap, HashSet};
use std::collections::{BTreeMap, VecDeque};

/// A checkpoint that waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Blocked {
    pub(super) ticket: Ticket,
    pub(super) version: Version,
    pub(super) size: u64,
}

/// A caller that is about to be preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Suspending {
    pub(super) ticket: Ticket,
    pub(super) version: Version,
    pub(super) scope: Scope,
}

/// A caller that copies out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) version: Version,
    /// The extents that it reads, by their first bytes, and where.
    pub(super) parts: Vec<(u64, TierId)>,
    /// Replicas of other versions that it reads.
    pub(super) bases: Vec<Base>,
}

impl Reading {
    /// The tiers that it reads, each once.
    pub(super) fn tiers(&self) -> Vec<TierId> {
        let mut tiers: Vec<_> = self.parts.iter().map(|&(_, tier)| tier).collect();
        tiers.sort_unstable();
        tiers.dedup();
        tiers
    }
}

/// Calls that are not over yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) open: HashSet<Ticket>,
    /// Of the open ones, those that hold or want a slot in place.
    pub(super) in_place: HashSet<Ticket>,
    /// Checkpoints without room, in the order of their calls.
    pub(super) blocked: VecDeque<Blocked>,
    /// Versions that callers copy in.
    pub(super) writing: HashMap<Ticket, Version>,
    pub(super) reading: HashMap<Ticket, Reading>,
    /// Waits for all versions: up to which moment they have to be on the lowest tier, ascending, and for whom.
    pub(super) waiting: VecDeque<(u64, Ticket)>,
    /// Waits for one version each.
    pub(super) awaiting: BTreeMap<Version, Vec<Ticket>>,
    pub(super) suspending: Option<Suspending>,
}

impl Calls {
    /// A call begins.
    pub(super) fn begin(&mut self, ticket: Ticket) -> Result<(), Misuse> {
        match self.open.insert(ticket) {
            true => Ok(()),
            false => Err(Misuse::TicketInUse(ticket)),
        }
    }

    /// A call is over.
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.open.remove(&ticket);
        self.in_place.remove(&ticket);
    }

    pub(super) fn is_open(&self, ticket: Ticket) -> bool {
        self.open.contains(&ticket)
    }

    pub(super) fn is_any_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub(super) fn is_any_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.awaiting.is_empty()
    }

    /// A caller is in the middle of a copy, which ends by itself; a slot that is lent does not.
    pub(super) fn is_any_copying(&self) -> bool {
        let mut copying = self.writing.keys().chain(self.reading.keys());
        copying.any(|ticket| !self.in_place.contains(ticket))
    }
}
