//! Checkpoints: granted room, made to wait for it, or sent past a full tier.

use super::Plan;
use super::calls::BlockedCheckpoint;
use crate::command::{Command, Refusal};
use crate::event::Misuse;
use crate::ledger::{KeepReason, Outlook, RoomBytes, RoomRequest, Tier, Urgency};
use crate::space::Space;
use crate::statistics::EvictionCause;
use crate::{Ticket, TierId, Version};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Free runs for a checkpoint, and their tiers: mostly one, which needs no allocation.
type Room = SmallVec<[(TierId, Range<u64>); 1]>;

impl Plan {
    pub(super) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.calls.end(ticket);
        self.emit(Command::Refuse { ticket, refusal });
    }

    /// The application acts, so a tier that failed gets another chance, and so does a source that is not known to be damaged.
    pub(super) fn reopen(&mut self) {
        let ledger = self.ledger_mut();
        ledger.tiers.iter_mut().for_each(|tier| tier.closed = false);
        ledger.retry_failing();
    }

    pub(super) fn checkpoint(
        &mut self,
        ticket: Ticket,
        version: Version,
        size: u64,
        in_place: bool,
    ) {
        if let Some(refusal) = self.permanent_refusal(version, size, in_place) {
            return self.refuse(ticket, refusal);
        }
        self.begin_checkpoint(size);
        if in_place {
            self.calls.in_place.insert(ticket);
        }
        self.ledger_mut().insert(version, size, in_place, false);
        self.calls.blocked.push_back(BlockedCheckpoint {
            ticket,
            version,
            size,
        });
    }

    /// Notes that the application takes a checkpoint.
    pub(super) fn begin_checkpoint(&mut self, size: u64) {
        self.reopen();
        self.go_on();
        let ledger = self.ledger_mut();
        ledger.contest.write();
        ledger.order.set_scan(ledger.contest.scan());
        ledger.predictor.write();
        ledger.forget_predictions();
        self.phase.begin_checkpoint(size);
    }

    /// Returns the reason for which a checkpoint can never be taken in, if there is one.
    fn permanent_refusal(&self, version: Version, size: u64, in_place: bool) -> Option<Refusal> {
        let ledger = self.ledger();
        if size == 0 {
            return Some(Refusal::Empty);
        }
        if !self.is_new(version) {
            return Some(Refusal::VersionUsed);
        }
        let count = if in_place { 1 } else { ledger.tiers.len() };
        let mut spaces = ledger.tiers[..count].iter().map(|tier| &tier.space);
        let largest = spaces.clone().map(Space::capacity).max();
        let largest = largest.unwrap_or(0);
        let fits = spaces.any(|space| space.reserved(size) <= space.capacity());
        (!fits).then_some(Refusal::TooLarge { largest })
    }

    /// Grants room to blocked checkpoints, in the order of their calls. If the versions that could make room are still being
    /// copied, the first checkpoint stays blocked, and the end of each transfer tries again.
    pub(super) fn admit(&mut self, outlook: &Outlook) {
        while let Some(&blocked) = self.calls.blocked.front() {
            let Some(tier) = self.first_fitting(&blocked) else {
                return;
            };
            let (grain, unit) = (self.ledger().grain(blocked.version), self.ledger().unit);
            let room = self.room_for(&blocked, tier, grain, outlook);
            let Some(room) = room.or_else(|| self.room_for(&blocked, tier, unit, outlook)) else {
                return;
            };
            self.calls.blocked.pop_front();
            self.grant(blocked, tier, &room);
        }
    }

    /// Returns the fastest tier that is large enough. Smaller ones are passed by, except in place.
    fn first_fitting(&self, blocked: &BlockedCheckpoint) -> Option<TierId> {
        let mut tiers = self.ledger().tiers.iter();
        let fitting = tiers.position(|tier| tier.space.holds(blocked.size));
        let fitting = fitting.map(TierId);
        let in_place = self.calls.in_place.contains(&blocked.ticket);
        fitting.filter(|&tier| !in_place || tier == TierId::FASTEST)
    }

    /// Returns room for a checkpoint on a tier. If versions are cut, the room is in runs, and the tiers above hold as
    /// much of a larger checkpoint as they can at once.
    fn room_for(
        &mut self,
        blocked: &BlockedCheckpoint,
        tier: TierId,
        grain: u64,
        outlook: &Outlook,
    ) -> Option<Room> {
        let in_place = self.calls.in_place.contains(&blocked.ticket);
        let ledger = self.ledger_mut();
        let request = RoomRequest {
            urgency: Urgency::Urgent,
            position: ledger.position(blocked.version),
            grain,
            cause: EvictionCause::Checkpoint,
            keep: KeepReason::Nothing,
        };
        let is_cut = |tier: &Tier| !in_place && !tier.config.whole && ledger.are_cut();
        if !is_cut(ledger.tier(tier)) {
            let bytes = ledger.tier(tier).space.reserved(blocked.size);
            let run = ledger.make_run(tier, bytes, request, outlook)?;
            return Some(smallvec![(tier, run)]);
        }
        // Several tiers make room for one checkpoint. A replica that one of them evicts has to stay on another one.
        let shared = RoomRequest {
            keep: KeepReason::Superseded,
            ..request
        };
        let mut shares = Vec::new();
        let mut left = blocked.size;
        for (above, this) in (0..tier.0).map(TierId).zip(&ledger.tiers) {
            let most = left.min(this.space.limit()) / grain * grain;
            if is_cut(this) && !this.closed {
                let share = ledger.at_hand(above, most, shared, outlook);
                shares.push((above, share));
                left -= share;
            }
        }
        let rest = ledger.tier(tier).space.reserved(left);
        let below = if left < blocked.size { shared } else { request };
        let mut room = Room::new();
        for run in ledger.make_room(tier, RoomBytes::exactly(rest), below, outlook)? {
            room.push((tier, run));
        }
        for (above, share) in shares.into_iter().rev() {
            let runs = ledger.make_room(above, RoomBytes::exactly(share), shared, outlook)?;
            room.insert_many(0, runs.into_iter().map(|run| (above, run)));
        }
        room.retain(|(_, run)| !run.is_empty());
        Some(room)
    }

    /// Handles the first blocked checkpoint when nothing is under way that could make room for it: it gets any gaps of
    /// its tier, or is written past the full caches to a lower tier, or is refused. If that tier's write fails, as on a full disk,
    /// the call fails, no other tier is tried, and the version's number is free again.
    pub(super) fn pass_by_or_refuse(&mut self, outlook: &Outlook) {
        let Some(blocked) = self.calls.blocked.pop_front() else {
            return;
        };
        let in_place = self.calls.in_place.contains(&blocked.ticket);
        let own = self.first_fitting(&blocked).filter(|_| !in_place);
        let tiers = own.map_or(0..0, |own| own.0..self.ledger().tiers.len());
        for tier in tiers.map(TierId) {
            let this = self.ledger().tier(tier);
            if !this.closed
                && this.space.holds(blocked.size)
                && !self.ledger().is_fed(tier, blocked.size)
                && let Some(room) = self.room_for(&blocked, tier, self.ledger().unit, outlook)
            {
                return self.grant(blocked, tier, &room);
            }
        }
        self.forget(blocked.version, Refusal::Unknown);
        self.refuse(blocked.ticket, Refusal::NoRoom);
    }

    /// Grants a caller its room: on `tier`, and on tiers above that have a share of it.
    fn grant(&mut self, blocked: BlockedCheckpoint, tier: TierId, room: &[(TierId, Range<u64>)]) {
        let (ticket, version) = (blocked.ticket, blocked.version);
        let mut pieces = self.calls.lists.pop().unwrap_or_default();
        let ledger = self.ledger_mut();
        ledger.grant(version, room);
        ledger.lies_whole(version, tier);
        ledger.counts.tiers[tier.0].checkpoints += 1;
        for extent in ledger.extents(version) {
            if let Some(replica) = extent.replicas.first() {
                ledger.piece(extent, replica).append(&mut pieces);
            }
        }
        self.calls.writing.insert(ticket, version);
        self.emit(Command::Write {
            ticket,
            version,
            pieces,
        });
    }

    pub(super) fn written(&mut self, ticket: Ticket, ok: bool) -> Result<(), Misuse> {
        let writing = self.calls.writing.remove(&ticket);
        let version = writing.ok_or(Misuse::NotGranted(ticket))?;
        self.calls.end(ticket);
        if !ok {
            let is_discarded = self.ledger().is_discarded(version);
            let extents = self.ledger().extents(version).iter();
            let places = extents.filter_map(|e| Some((e.start, e.replicas.first()?.tier)));
            for (start, tier) in places.collect::<Vec<_>>() {
                self.ledger_mut().release((version, start), tier);
            }
            match is_discarded {
                true => self.settle(version),
                false => self.forget(version, Refusal::Unknown),
            }
            return Ok(());
        }
        let ledger = self.ledger_mut();
        let tick = ledger.tick;
        let begun = ledger.records.get(&version).map(|record| record.written);
        // If no event came since the version was begun, its place in the order is right already.
        if begun.is_some_and(|begun| begun + 1 < tick) {
            ledger.change_record(version, |record, _| record.written = tick);
        }
        ledger.take_in(version);
        ledger.merge_all(version);
        self.settle(version);
        Ok(())
    }

    /// Removes a checkpoint that never came to be: its version is free again.
    pub(super) fn forget(&mut self, version: Version, answer: Refusal) {
        self.phase.forget_checkpoint();
        let record = self.ledger_mut().remove(version);
        for ticket in record.into_iter().flat_map(|record| record.waiting) {
            self.refuse(ticket, answer);
        }
    }
}
