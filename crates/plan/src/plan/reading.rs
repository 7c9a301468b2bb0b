//! Restores: served from the fastest replicas, past any cache that is full.

use super::Plan;
use super::calls::ReadCall;
use crate::command::Command;
use crate::config::AfterRestore;
use crate::event::{Event, Misuse};
use crate::ledger::{Ledger, RoomRequest, Urgency};
use crate::order::Position;
use crate::record::{Extent, Record};
use crate::statistics::{EvictionCause, PrefetchDistance};
use crate::{Ticket, TierId, Version};
use smallvec::SmallVec;
use tierflow_lifecycle::{Event as Move, State};

/// The most expected reads of unwritten versions that one reading forgets: other calls wait meanwhile.
const MOST_OVERDUE: usize = 64;

/// Hints of a program that names the next reading each time: that one, and the one that is about to begin.
const ONE_AHEAD: usize = 2;

impl Plan {
    pub(super) fn change_hints(
        &mut self,
        versions: Vec<Version>,
        change: fn(&mut Ledger, Version),
    ) {
        let versions = versions.into_iter();
        versions.for_each(|version| change(self.ledger_mut(), version));
        let ledger = self.ledger_mut();
        let given = ledger.hints.last_before(ledger.predictor.first_hinted());
        ledger.hints_reach_far = given.take(ONE_AHEAD + 1).count() > ONE_AHEAD;
    }

    /// Returns true if `tier` and those below have a held version, whole and not known to be [damaged](Event::Damaged), and every version
    /// that it builds upon there.
    #[must_use]
    pub fn is_sound_from(&self, version: Version, tier: TierId) -> bool {
        let record = |version| self.ledger().records.get(&version);
        let is_there = |version| record(version).is_some_and(|record| record.is_sound_from(tier));
        self.ledger().held(version).is_some() && self.chain(version).all(is_there)
    }

    pub(super) fn restore(&mut self, ticket: Ticket, version: Version, in_place: bool) {
        self.begin_restore();
        if self.ledger().held(version).is_none() {
            return self.refuse(ticket, self.absence(version));
        }
        if !self.ledger().is_sound(version) {
            self.ledger_mut().read_damaged(version);
        }
        if in_place {
            self.calls.in_place.insert(ticket);
        }
        self.begin_reading(version);
        self.serve(ticket, version);
    }

    /// Notes that the application asks for a version.
    pub(super) fn begin_restore(&mut self) {
        self.phase.prefetches = true;
        self.phase.is_reading = true;
        self.go_on();
    }

    /// Notes that a reading of `version` begins. Counts how far prefetching is ahead of it.
    pub(super) fn begin_reading(&mut self, version: Version) {
        self.ledger_mut().leave_last_read(version);
        self.ledger_mut().predict(version);
        let ledger = self.ledger();
        let from = ledger.hints.next(version).map_or(0, |at| at + 1);
        let following = ledger.hints.from(from).take(PrefetchDistance::MOST);
        let near = following.take_while(|&v| self.fastest_tier(v) == Some(TierId::FASTEST));
        let distance = near.count() as u64;
        self.ledger_mut().statistics.prefetch_distance.add(distance);
    }

    /// Returns true if the event begins one more copy out of a fastest tier of memory by a caller who gets there at once: its end follows
    /// soon, and all that there is to start can start then.
    pub(super) fn is_brief(&self, event: &Event) -> bool {
        let goes_on = self.phase.is_reading && self.traffic.suspension.is_none();
        let fastest = &self.ledger().tier(TierId::FASTEST).config;
        match *event {
            Event::Restore { version, .. } if goes_on && fastest.is_memory() => {
                self.fastest_tier(version) == Some(TierId::FASTEST)
            }
            _ => false,
        }
    }

    /// Serves a restore from the fastest replicas. If any bytes are on their way nearer already, the restore waits for
    /// them.
    pub(super) fn serve(&mut self, ticket: Ticket, version: Version) {
        let in_place = self.calls.in_place.contains(&ticket);
        if in_place && self.fastest_tier(version) != Some(TierId::FASTEST) {
            self.fetch_in_place(version);
        }
        let Some(record) = self.ledger_mut().records.get_mut(&version) else {
            return;
        };
        let is_arriving =
            |extent: &Extent| !extent.replicas.first().is_some_and(|r| r.is_readable());
        if record.extents.is_empty() || record.extents.iter().any(is_arriving) {
            return record.waiting.push(ticket);
        }
        let mut parts = SmallVec::new();
        let mut pieces = self.calls.lists.pop().unwrap_or_default();
        let ledger = self.ledger_mut();
        for extent in ledger.extents(version) {
            let Some(replica) = extent.fastest() else {
                continue;
            };
            parts.push((extent.start, replica.tier));
            ledger.piece(extent, replica).append(&mut pieces);
        }
        ledger.read_all(version, &parts, true);
        let slowest = parts.iter().map(|&(_, tier)| tier).max();
        let coding = ledger.decode(version, slowest.unwrap_or(TierId::FASTEST));
        let reading = ReadCall {
            version,
            parts,
            bases: coding.bases(),
        };
        if !in_place {
            for &(_, tier) in &reading.parts {
                self.ledger_mut().tier_mut(tier).callers += 1;
            }
        }
        self.calls.reading.insert(ticket, reading);
        self.emit(Command::Read {
            ticket,
            version,
            pieces,
            coding,
        });
    }

    /// Starts to fetch a version that is to be read in place into one run of the fastest tier, if nothing of it is
    /// there and there is room. Otherwise it is read in its present place.
    fn fetch_in_place(&mut self, version: Version) {
        self.look_out();
        for urgency in [Urgency::Idle, Urgency::Urgent] {
            let (grain, cause) = (self.ledger().grain(version), EvictionCause::Prefetch);
            let request = RoomRequest::new(urgency, Position::FIRST, grain, cause);
            if self.traffic.fetch_run(version, request) {
                return;
            }
        }
    }

    pub(super) fn read(&mut self, ticket: Ticket, ok: bool) -> Result<(), Misuse> {
        let reading = self.calls.reading.remove(&ticket);
        let reading = reading.ok_or(Misuse::NotGranted(ticket))?;
        if !self.calls.in_place.contains(&ticket) {
            for &(_, tier) in &reading.parts {
                let callers = &mut self.ledger_mut().tier_mut(tier).callers;
                *callers = callers.saturating_sub(1);
            }
        }
        self.calls.end(ticket);
        let version = reading.version;
        let is_consumed = ok && self.ledger().held(version).is_some();
        let ledger = self.ledger_mut();
        if !is_consumed {
            ledger.read_all(version, &reading.parts, false);
            ledger.forget_prediction(version);
        }
        ledger.release_bases(&reading.bases);
        match is_consumed {
            true => self.consumed(version, &reading.parts),
            false => self.keep_read(version),
        }
        Ok(())
    }

    /// Handles that a version stays after its reading ended.
    fn keep_read(&mut self, version: Version) {
        self.ledger_mut().give_up_damaged(version);
        self.ledger_mut().merge_all(version);
        self.settle(version);
    }

    /// Handles the reading of `version` by a caller that was counted in these parts; in none if it was over at once.
    pub(super) fn consumed(&mut self, version: Version, parts: &[(u64, TierId)]) {
        let slowest = parts.iter().map(|&(_, tier)| tier).max();
        let slowest = slowest.unwrap_or(TierId::FASTEST);
        self.ledger_mut().statistics.tiers[slowest.0].restores += 1;
        self.phase.has_read = true;
        self.learn(version);
        let sequence = self.ledger_mut().hints.consume(version);
        // A prediction announces nothing.
        let announced = sequence.filter(|&at| at < self.ledger().predictor.first_hinted());
        self.phase.follows_hints = announced.is_some();
        self.phase.reads[0] += u64::from(announced.is_some());
        let ledger = self.ledger_mut();
        let is_kept = ledger.after_restore == AfterRestore::Keep;
        let (tick, followed) = (ledger.tick, ledger.contest.followed());
        let reuse = match announced {
            None if is_kept => ledger.last_read.read(version, followed),
            _ => followed,
        };
        let change = |record: &mut Record| {
            if !parts.is_empty() {
                record.read(parts, false);
            }
            record.unreadable = false;
            if is_kept {
                record.read = Some(tick);
                record.reads = record.reads.saturating_add(1);
                record.reuse = reuse;
            }
            for extent in &mut record.extents {
                let replicas = extent.replicas.iter_mut();
                let complete = replicas.filter(|r| r.state == State::ReadComplete);
                complete.for_each(|replica| replica.advance(Move::Consumed));
            }
        };
        let under_way = match is_kept {
            true => {
                ledger.change_record(version, change);
                Vec::new()
            }
            false => ledger.discard(version, change),
        };
        // Unwritten versions that should have been read before will not be. If there are many, the next reading goes
        // on.
        for _ in 0..MOST_OVERDUE {
            let overdue = announced.and_then(|sequence| ledger.hints.overdue(sequence));
            let Some(overdue) = overdue else { break };
            ledger.forget_hints(overdue);
        }
        match is_kept {
            true => self.keep_read(version),
            false => self.discarded(version, under_way),
        }
    }

    /// Learns from a reading, unless hints named it with others: then versions without hints are used no more.
    fn learn(&mut self, version: Version) {
        let ledger = self.ledger_mut();
        let Some(record) = ledger.records.get(&version) else {
            return;
        };
        if ledger.tiers.len() == 1 || (ledger.is_hinted(version) && ledger.hints_reach_far) {
            return;
        }
        let mut reach = 0_u64;
        let above = ledger.tiers[..ledger.last().0].iter();
        let reaches = above.map(|tier| {
            reach = reach.saturating_add(tier.space.limit());
            reach
        });
        let reaches: SmallVec<[u64; 4]> = reaches.collect();
        ledger.contest.observe(record.use_so_far(), &reaches);
        ledger.order.set_scan(ledger.contest.scan());
    }
}
