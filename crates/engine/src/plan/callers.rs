//! The application's calls: admitted, made to wait, answered.

use super::differences::Base;
use super::event::{Coding, Command, Place, Refusal, Ticket, TierId};
use super::flush::READING;
use super::history::{Copy, Record};
use super::in_place::FASTEST;
use super::prefetch::advance;
use super::space::{Found, Urgency};
use super::{AfterRestore, Cause, Plan};
use crate::Version;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use tierflow_lifecycle::{Event as Move, State};

/// A checkpoint that waits for room.
#[derive(Debug, Clone, Copy)]
struct Blocked {
    ticket: Ticket,
    version: Version,
    size: u64,
}

/// A caller copying out.
#[derive(Debug)]
struct Reading {
    version: Version,
    tier: TierId,
    /// Copies of other versions that it reads.
    bases: Vec<Base>,
}

/// Calls that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Callers {
    /// Checkpoints without room, in the order of their calls.
    blocked: VecDeque<Blocked>,
    /// Callers copying in, and out.
    writing: HashMap<Ticket, (Version, TierId)>,
    reading: HashMap<Ticket, Reading>,
    /// Of all these, and of restores that wait, those in place.
    pub(super) lent: HashSet<Ticket>,
    /// Calls of `wait`.
    waiting: Vec<Ticket>,
}

impl Callers {
    pub(super) fn anyone_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub(super) fn anyone_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A caller is in the middle of a copy, which ends by itself; a slot that is lent does not.
    pub(super) fn anyone_copying(&self) -> bool {
        let mut copying = self.writing.keys().chain(self.reading.keys());
        copying.any(|ticket| !self.lent.contains(ticket))
    }

    pub(super) fn is_blocked(&self, version: Version) -> bool {
        self.blocked.iter().any(|b| b.version == version)
    }

    /// All that the answers depend on; calls are told apart by what they are about.
    pub(super) fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        let is_lent = |ticket: &Ticket| self.lent.contains(ticket);
        let blocked = self.blocked.iter();
        let blocked = blocked.map(|b| (b.version, b.size, is_lent(&b.ticket)));
        let writing = self.writing.iter();
        let mut writing: Vec<_> = writing.map(|(t, call)| (call, is_lent(t))).collect();
        let reading = self.reading.iter();
        let reading = reading.map(|(t, r)| (r.version, r.tier, &r.bases, is_lent(t)));
        let mut reading: Vec<_> = reading.collect();
        writing.sort_unstable();
        reading.sort_unstable();
        (blocked.collect::<Vec<_>>(), writing, reading).hash(hasher);
        self.waiting.len().hash(hasher);
    }

    /// Callers reading the copy of `version` on `tier`.
    pub(super) fn readers(&self, version: Version, tier: TierId) -> usize {
        let copies = self.reading.values().flat_map(|reading| {
            let own = (reading.version, reading.tier);
            reading.bases.iter().copied().chain([own])
        });
        copies.filter(|&copy| copy == (version, tier)).count()
    }
}

impl Plan {
    pub(super) fn finish(&mut self, ticket: Ticket, result: Result<(), Refusal>) {
        self.callers.lent.remove(&ticket);
        self.commands.push(Command::Finish { ticket, result });
    }

    /// The application acts, so a tier that failed gets another chance.
    fn reopen(&mut self) {
        self.tiers.iter_mut().for_each(|tier| tier.closed = false);
    }

    pub(super) fn checkpoint(&mut self, ticket: Ticket, version: Version, size: u64) {
        let refusal = if size == 0 {
            Some(Refusal::Empty)
        } else if self.records.contains_key(&version) || self.discarded.contains(version) {
            Some(Refusal::VersionUsed)
        } else {
            self.beyond_capacity(size)
        };
        if let Some(refusal) = refusal {
            return self.finish(ticket, Err(refusal));
        }
        self.reopen();
        self.sizes_vary |= self.last_size != 0 && self.last_size != size;
        self.last_size = size;
        self.restores_in_a_row = 0;
        self.measure_pace();
        self.largest_size = self.largest_size.max(size);
        let is_hinted = self.order.next(version).is_some();
        if is_hinted {
            self.unwritten = self.unwritten.saturating_sub(1);
        }
        self.foresight.begun(size, is_hinted);
        let record = Record {
            produced: self.callers.lent.contains(&ticket),
            ..Record::new(size, self.tiers.len())
        };
        self.records.insert(version, record);
        self.callers.blocked.push_back(Blocked {
            ticket,
            version,
            size,
        });
    }

    /// The refusal of what is too large for every tier, whatever its limit.
    fn beyond_capacity(&self, size: u64) -> Option<Refusal> {
        let capacities = self.tiers.iter().map(|tier| tier.table.capacity());
        let largest = capacities.max().unwrap_or(0);
        let fits = |tier: &super::Tier| tier.table.reserved(size) <= tier.table.capacity();
        (!self.tiers.iter().any(fits)).then_some(Refusal::TooLarge { largest })
    }

    /// The fastest tier that is large enough; smaller ones are bypassed.
    fn first_fitting(&self, size: u64) -> Option<TierId> {
        (0..self.tiers.len())
            .map(TierId)
            .find(|&tier| self.fits(tier, size))
    }

    /// Lets blocked checkpoints in, first come first served. True if flushes are wanted now that were not before.
    pub(super) fn admit_blocked(&mut self) -> bool {
        while let Some(&blocked) = self.callers.blocked.front() {
            match self.room_for(blocked) {
                Found::At(place) => {
                    self.callers.blocked.pop_front();
                    self.grant(blocked, place);
                }
                Found::Wait | Found::Never if !self.starved => {
                    self.starved = true;
                    return true;
                }
                Found::Wait => return false,
                Found::Never
                    if !self.hurry && self.tiers.iter().any(|t| !t.deferred.is_empty()) =>
                {
                    self.hurry = true;
                    return true;
                }
                Found::Never if self.is_idle() => {
                    self.callers.blocked.pop_front();
                    self.abandon(blocked.version, Refusal::Unknown);
                    self.finish(blocked.ticket, Err(Refusal::NoRoom));
                }
                Found::Never => return false,
            }
        }
        self.starved = false;
        self.hurry = self.callers.anyone_waiting();
        false
    }

    /// Room for a blocked checkpoint: on its own tier if it will be there without harm, else at the cost of prefetched
    /// copies, else on a lower tier. `Never` if there is none at the moment.
    fn room_for(&mut self, blocked: Blocked) -> Found {
        let Blocked { version, size, .. } = blocked;
        let in_place = self.callers.lent.contains(&blocked.ticket);
        let own = self.first_fitting(size);
        let Some(own) = own.filter(|&own| !in_place || own == FASTEST) else {
            return Found::Never;
        };
        match self.claim(own, version, size, (Urgency::Patient, Cause::Checkpoint)) {
            Found::At(place) => return Found::At(place),
            Found::Wait | Found::Never if !self.starved => return Found::Wait,
            Found::Wait if !self.is_idle() => return Found::Wait,
            Found::Wait | Found::Never => {}
        }
        match self.claim(own, version, size, (Urgency::Urgent, Cause::Checkpoint)) {
            found @ Found::At(_) => return found,
            Found::Wait if !self.is_idle() => return Found::Wait,
            Found::Wait | Found::Never => {}
        }
        for lower in (own.0 + 1..self.tiers.len()).map(TierId) {
            if in_place {
                break;
            }
            if self.tiers[lower.0].closed || !self.fits(lower, size) {
                continue;
            }
            if let found @ Found::At(_) =
                self.claim(lower, version, size, (Urgency::Patient, Cause::Checkpoint))
            {
                return found;
            }
        }
        Found::Never
    }

    fn grant(&mut self, blocked: Blocked, place: Place) {
        let Blocked {
            ticket, version, ..
        } = blocked;
        let tick = self.tick;
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        let mut state = State::Init;
        advance(&mut state, Move::WriteBegan);
        record.copies[place.tier.0] = Some(Copy {
            place,
            state,
            readers: 0,
            incoming: None,
            queued_at: None,
            written: tick,
            used: tick,
        });
        self.lies_whole(version, place.tier);
        self.callers.writing.insert(ticket, (version, place.tier));
        self.tiers[place.tier.0].statistics.checkpoints += 1;
        self.commands.push(Command::Write {
            ticket,
            version,
            place,
        });
    }

    pub(super) fn written(&mut self, ticket: Ticket, ok: bool) {
        let Some((version, tier)) = self.callers.writing.remove(&ticket) else {
            return;
        };
        self.callers.lent.remove(&ticket);
        let dropped = self.records.get(&version).is_some_and(|r| r.doomed);
        if !ok {
            self.release(tier, version);
            return if dropped {
                self.reap(version)
            } else {
                self.abandon(version, Refusal::Unknown)
            };
        }
        if let Some(copy) = self.records.get_mut(&version).and_then(|r| {
            r.produced = false;
            r.copy_mut(tier)
        }) {
            advance(&mut copy.state, Move::WriteEnded);
        }
        if !dropped {
            self.guesses.written(version);
            self.enqueue_flush(version, tier);
            if self.order.next(version).is_some() {
                self.rewind();
            }
        }
        self.settle_version(version);
    }

    /// A checkpoint never came to be: its version is free again.
    fn abandon(&mut self, version: Version, answer: Refusal) {
        if self.order.next(version).is_some() {
            self.unwritten += 1;
        }
        let Some(record) = self.records.remove(&version) else {
            return;
        };
        if !record.doomed {
            self.foresight.gone(record.size);
        }
        for ticket in record.waiting {
            self.finish(ticket, Err(answer));
        }
    }

    pub(super) fn restore(&mut self, ticket: Ticket, version: Version) {
        self.prefetch_started = true;
        if self.size_of(version).is_none() {
            let absence = self.absence(version);
            return self.finish(ticket, Err(absence));
        }
        self.measure_distance(version);
        self.serve(ticket, version);
    }

    /// Serves a restore from the fastest readable copy, past any cache that is full; if a better one is on its way in
    /// already, waits for that.
    pub(super) fn serve(&mut self, ticket: Ticket, version: Version) {
        if self.callers.lent.contains(&ticket) {
            self.fetch_to_lend(version);
        }
        let tick = self.tick;
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        let fastest = record.fastest();
        let faster = fastest.map_or(record.copies.len(), |tier| tier.0);
        let better_under_way = record.copies[..faster].iter().any(Option::is_some);
        match fastest
            .filter(|_| !better_under_way)
            .and_then(|tier| Some((tier, record.copy_mut(tier)?)))
        {
            Some((tier, copy)) => {
                copy.readers += 1;
                copy.used = tick;
                let place = copy.place;
                let coding = self.decode(version, tier);
                let bases = match &coding {
                    Coding::Decode { bases } => bases.as_slice(),
                    _ => &[],
                };
                let bases = bases.iter().map(|&(base, place)| (base, place.tier));
                let reading = Reading {
                    version,
                    tier,
                    bases: bases.collect(),
                };
                self.callers.reading.insert(ticket, reading);
                self.commands.push(Command::Read {
                    ticket,
                    version,
                    place,
                    coding,
                });
            }
            None => record.waiting.push(ticket),
        }
    }

    pub(super) fn read(&mut self, ticket: Ticket, ok: bool) {
        let Some(Reading {
            version,
            tier,
            bases,
        }) = self.callers.reading.remove(&ticket)
        else {
            return;
        };
        self.callers.lent.remove(&ticket);
        self.let_go(&bases);
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        let size = record.size;
        if let Some(copy) = record.copy_mut(tier) {
            copy.readers = copy.readers.saturating_sub(1);
        }
        if ok {
            record.unreadable = false;
            self.tiers[tier.0].statistics.restores += 1;
            if let Some(sequence) = self.order.consume(version) {
                self.settle(sequence, size);
            }
            self.guesses.consumed(version);
            self.restores_in_a_row = self.restores_in_a_row.saturating_add(1).min(READING);
            self.consumed(version, tier);
        }
        self.settle_version(version);
    }

    fn consumed(&mut self, version: Version, tier: TierId) {
        match self.after_restore {
            AfterRestore::Discard => self.doom(version),
            AfterRestore::Keep => {
                let Some(record) = self.records.get_mut(&version) else {
                    return;
                };
                for (index, copy) in record.copies.iter_mut().enumerate() {
                    if let Some(copy) = copy
                        .as_mut()
                        .filter(|c| c.is_pinned() || (index == tier.0 && c.is_readable()))
                    {
                        advance(&mut copy.state, Move::Consumed);
                    }
                }
                if self.order.next(version).is_some() {
                    self.rewind();
                }
            }
        }
    }

    pub(super) fn drop_version(&mut self, ticket: Ticket, version: Version) {
        if self.size_of(version).is_none() {
            let absence = self.absence(version);
            return self.finish(ticket, Err(absence));
        }
        self.finish(ticket, Ok(()));
        if let Some(index) = self
            .callers
            .blocked
            .iter()
            .position(|b| b.version == version)
            && let Some(blocked) = self.callers.blocked.remove(index)
        {
            self.finish(blocked.ticket, Err(Refusal::Discarded));
        }
        self.doom(version);
        self.settle_version(version);
    }

    /// Answers `wait` once nothing is left to flush, or nothing more can be.
    pub(super) fn answer_waits(&mut self) {
        if !self.callers.anyone_waiting() {
            return;
        }
        let queued = self
            .tiers
            .iter()
            .any(|tier| tier.flushing > 0 || !tier.flushes.is_empty());
        let busy = self.callers.anyone_blocked() || !self.callers.writing.is_empty();
        if (queued || busy) && !self.is_idle() {
            return;
        }
        let last = self.last_tier();
        let copies = self
            .records
            .values()
            .filter(|r| {
                r.is_needed(last)
                    && r.fastest().is_some()
                    && !r.copy(last).is_some_and(Copy::is_readable)
            })
            .count() as u64;
        let result = if copies == 0 {
            Ok(())
        } else {
            Err(Refusal::Stalled { copies })
        };
        for ticket in std::mem::take(&mut self.callers.waiting) {
            self.finish(ticket, result);
        }
        self.hurry = self.callers.anyone_blocked();
    }

    pub(super) fn wait(&mut self, ticket: Ticket) {
        self.reopen();
        self.hurry = true;
        self.callers.waiting.push(ticket);
    }
}
