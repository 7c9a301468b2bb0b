//! Waits, versions that are discarded, and calls that are given up.

use super::Plan;
use crate::command::{Command, Piece, Refusal};
use crate::record::Record;
use crate::{Ticket, Version};

impl Plan {
    /// Takes back the list of a [`Command::Write`] or [`Command::Read`] that its caller needs no more: another such command
    /// uses its memory, so that calls allocate nothing.
    pub fn give_back(&mut self, mut pieces: Vec<Piece>) {
        if pieces.capacity() > 0 {
            pieces.clear();
            self.calls.lists.push(pieces);
        }
    }

    /// Returns true if a call waits, or if bytes may move: between tiers, or out of one.
    pub(super) fn can_start_any(&self) -> bool {
        let mut tiers = self.ledger().tiers.iter();
        self.ledger().tiers.len() > 1
            || tiers.any(|tier| tier.vacating)
            || self.calls.is_any_blocked()
            || self.calls.is_any_waiting()
            || self.calls.suspending.is_some()
            || self.traffic.suspension.is_some()
    }

    pub(super) fn drop_version(&mut self, ticket: Ticket, version: Version) {
        if self.ledger().held(version).is_none() {
            return self.refuse(ticket, self.absence(version));
        }
        self.done(ticket);
        if let Some(blocked) = self.calls.unblock(|own| own.version == version) {
            self.refuse(blocked.ticket, Refusal::Discarded);
        }
        self.discard(version);
    }

    pub(super) fn prune(&mut self, versions: Vec<Version>) {
        for version in versions {
            if self.ledger().held(version).is_some() && !self.is_asked_for(version) {
                self.ledger_mut().statistics.pruned += 1;
                self.discard(version);
            }
        }
    }

    /// Returns true if the application hinted a version, or is about to write, read or save it.
    fn is_asked_for(&self, version: Version) -> bool {
        let is_read = |record: &Record| record.readers > 0 || !record.waiting.is_empty();
        let suspending = self.calls.suspending.as_ref();
        self.ledger().is_hinted(version)
            || self.ledger().records.get(&version).is_some_and(is_read)
            || self.calls.writing.values().any(|&own| own == version)
            || self.calls.blocked.iter().any(|own| own.version == version)
            || suspending.is_some_and(|own| own.suspension.version == version)
    }

    pub(super) fn done(&mut self, ticket: Ticket) {
        self.calls.end(ticket);
        self.emit(Command::Done { ticket });
    }

    pub(super) fn wait(&mut self, ticket: Ticket, version: Option<Version>) {
        // A wait that is over asks for nothing to move.
        if version.is_some_and(|version| self.answer_about(ticket, version)) {
            return;
        }
        self.reopen();
        self.go_on();
        let now = self.ledger().tick;
        match version {
            Some(version) => self.calls.awaiting.entry(version).or_default().push(ticket),
            None => self.calls.waiting.push_back((now, ticket)),
        }
    }

    /// Answers a wait for a version if the version is settled or gone. Returns true if it did.
    fn answer_about(&mut self, ticket: Ticket, version: Version) -> bool {
        let is_held = self.ledger().held(version).is_some();
        match (self.is_settled(version), is_held) {
            (true, _) => self.done(ticket),
            (false, false) => self.refuse(ticket, self.absence(version)),
            (false, true) => return false,
        }
        true
    }

    /// Answers waits whose versions are all on the lowest tier, or cannot get there.
    pub(super) fn answer_waits(&mut self) {
        if !self.calls.is_any_waiting() {
            return self.ledger_mut().settled.clear();
        }
        for version in std::mem::take(&mut self.ledger_mut().settled) {
            let mut left = self.calls.awaiting.remove(&version).unwrap_or_default();
            left.retain(|ticket| !self.answer_about(*ticket, version));
            if !left.is_empty() {
                self.calls.awaiting.insert(version, left);
            }
        }
        let is_stuck = self.is_idle() && !self.calls.is_any_blocked();
        while let Some(&(moment, ticket)) = self.calls.waiting.front() {
            let lowest = self.ledger().tier(self.ledger().last());
            let owed = lowest.owed.iter();
            let mut owed = owed.flat_map(|owed| owed.range(..(moment + 1, 0)));
            if owed.next().is_none() {
                self.done(ticket);
            } else if is_stuck {
                let versions = 1 + owed.count() as u64;
                self.refuse(ticket, Refusal::Stalled { versions });
            } else {
                break;
            }
            self.calls.waiting.pop_front();
        }
        if is_stuck {
            let awaiting = std::mem::take(&mut self.calls.awaiting);
            for ticket in awaiting.into_values().flatten() {
                self.refuse(ticket, Refusal::Stalled { versions: 1 });
            }
        }
    }

    /// Gives up a call whose caller waits no longer.
    pub(super) fn abandon(&mut self, ticket: Ticket) {
        let calls = &mut self.calls;
        let is_granted = calls.writing.contains_key(&ticket) || calls.reading.contains_key(&ticket);
        if is_granted || !calls.open.contains(&ticket) {
            return;
        }
        calls.end(ticket);
        calls.waiting.retain(|(_, waits)| *waits != ticket);
        calls.awaiting.retain(|_, tickets| {
            tickets.retain(|waits| *waits != ticket);
            !tickets.is_empty()
        });
        calls.suspending.take_if(|own| own.ticket == ticket);
        let blocked = calls.unblock(|own| own.ticket == ticket);
        for record in self.ledger_mut().records.values_mut() {
            record.waiting.retain(|waits| *waits != ticket);
        }
        if let Some(blocked) = blocked {
            self.forget(blocked.version, Refusal::Unknown);
        }
    }
}
