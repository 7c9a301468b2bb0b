//! Open calls of the application.

use crate::command::Piece;
use crate::event::Misuse;
use crate::ledger::Base;
use crate::traffic::Suspension;
use crate::{Ticket, TierId, Version};
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// A checkpoint that waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct BlockedCheckpoint {
    pub(super) ticket: Ticket,
    pub(super) version: Version,
    pub(super) size: u64,
}

/// A call that waits for a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SuspendCall {
    pub(super) ticket: Ticket,
    pub(super) suspension: Suspension,
}

/// A caller that copies out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadCall {
    pub(super) version: Version,
    /// The extents that it reads, by their first bytes, and the tiers that it reads them from.
    pub(super) parts: SmallVec<[(u64, TierId); 1]>,
    /// Replicas of other versions that it reads.
    pub(super) bases: Vec<Base>,
}

/// The calls that are not over yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    pub(super) open: HashSet<Ticket>,
    /// Open calls that hold or want a slot in place.
    pub(super) in_place: HashSet<Ticket>,
    /// Checkpoints without room, in the order of their calls.
    pub(super) blocked: VecDeque<BlockedCheckpoint>,
    /// Versions that callers copy in, by call.
    pub(super) writing: HashMap<Ticket, Version>,
    pub(super) reading: HashMap<Ticket, ReadCall>,
    /// Waits for all versions: the tick up to which versions must be on the lowest tier, ascending, and the call.
    pub(super) waiting: VecDeque<(u64, Ticket)>,
    /// Waits for one version each, by version.
    pub(super) awaiting: BTreeMap<Version, Vec<Ticket>>,
    pub(super) suspending: Option<SuspendCall>,
    /// Memory of lists that callers gave back.
    pub(super) lists: Vec<Vec<Piece>>,
}

impl Calls {
    /// Begins a call.
    pub(super) fn begin(&mut self, ticket: Ticket) -> Result<(), Misuse> {
        let is_new = self.open.insert(ticket);
        is_new.then_some(()).ok_or(Misuse::TicketInUse(ticket))
    }

    /// Ends a call.
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.open.remove(&ticket);
        self.in_place.remove(&ticket);
    }

    /// Takes a checkpoint out of those that wait for room.
    pub(super) fn unblock(
        &mut self,
        is_it: impl Fn(&BlockedCheckpoint) -> bool,
    ) -> Option<BlockedCheckpoint> {
        let at = self.blocked.iter().position(is_it)?;
        self.blocked.remove(at)
    }

    pub(super) fn is_any_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub(super) fn is_any_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.awaiting.is_empty()
    }

    /// Returns true if a caller is in the middle of a copy, which ends by itself; a lent slot does not.
    pub(super) fn is_any_copying(&self) -> bool {
        let mut copying = self.writing.keys().chain(self.reading.keys());
        copying.any(|ticket| !self.in_place.contains(ticket))
    }
}
