//! Transfers under way: their start, their end, their failure.

mod links;
mod pace;

pub(crate) use links::Suspension;

use crate::command::{Coding, Command, Piece, Place, Transfer};
use crate::config::TierConfig;
use crate::event::{Misuse, Stored, TransferFailure};
use crate::ledger::{Base, Ledger};
use crate::order::ExtentId;
use crate::record::Extent;
use crate::{TierId, TransferId, Version};
use hashbrown::HashMap;
pub(crate) use pace::ParallelTime;
use pace::{Pace, Service};
use tierflow_lifecycle::{Event as Move, State};

/// The reason for a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// To a slower tier, so that the source becomes evictable or the version durable.
    WriteBack,
    /// To a faster tier, so that a restore finds the version near.
    Prefetch,
}

/// A transfer under way.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) purpose: Purpose,
    pub(crate) version: Version,
    /// The extents that it carries, by their first bytes, and the tiers that it reads them from.
    pub(crate) parts: Vec<(u64, TierId)>,
    pub(crate) to: TierId,
    /// Bytes that it moves, as the target tier holds them.
    pub(crate) bytes: u64,
    pub(crate) begun_ns: u64,
    /// The time for which it was served, if it goes into the lowest tier.
    pub(crate) service: Service,
    /// Replicas of other versions that it reads.
    pub(crate) bases: Vec<Base>,
    /// The progress of the encoding, if it makes a difference.
    pub(crate) encodes: Option<Encoding>,
}

/// The progress of an encoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Encoding {
    /// The result, once it is known; the room is as large as the result then. `Some(None)`: the version is written as
    /// it is.
    pub(crate) made: Option<Option<Stored>>,
    /// The difference, once it arrived before its base.
    pub(crate) arrived: Option<Stored>,
    /// True if the base never comes.
    pub(crate) is_baseless: bool,
}

impl Flight {
    /// Returns the slowest tier that it reads.
    pub(crate) fn from(&self) -> TierId {
        let tiers = self.parts.iter().map(|&(_, tier)| tier);
        tiers.max().unwrap_or(self.to)
    }
}

/// The transfers that share a depth: those into one tier from above, and those out of it upwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Depths {
    pub(crate) entering: Depth,
    pub(crate) rising: Depth,
}

/// Transfers under way that share a depth, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Depth {
    pub(crate) transfers: usize,
    pub(crate) bytes: u64,
}

impl Depth {
    /// Returns true if one more transfer may begin.
    fn has_room(self, config: &TierConfig) -> bool {
        self.transfers < config.depth.max(1) || self.bytes < config.small
    }
}

/// The ledger, and the transfers under way between its tiers.
#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    pub(crate) ledger: Ledger,
    pub(crate) flights: HashMap<TransferId, Flight>,
    pub(crate) depths: Vec<Depths>,
    pub(crate) next: u64,
    /// The driver's clock, in ns.
    pub(crate) now_ns: u64,
    /// True if a checkpoint waits for room.
    pub(crate) write_waits: bool,
    /// True if a call waits for everything to be on the lowest tier.
    pub(crate) settles: bool,
    /// True if prefetches found no room: the replicas that hold it are to be written back.
    pub(crate) prefetch_blocked: bool,
    /// The measured speed of writes to the lowest tier.
    pub(crate) pace: Pace,
    /// Versions whose transfers ended, since that was last handled.
    pub(crate) ended: Vec<Version>,
    /// Set while the application is about to be preempted.
    pub(crate) suspension: Option<Suspension>,
}

impl Traffic {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            flights: HashMap::new(),
            depths: vec![Depths::default(); ledger.tiers.len()],
            next: 0,
            now_ns: 0,
            write_waits: false,
            settles: false,
            prefetch_blocked: false,
            pace: Pace::default(),
            ended: Vec::new(),
            suspension: None,
            ledger,
        }
    }

    /// Starts to copy extents of `version` from the tiers in `parts` to their offsets on a tier.
    fn start(
        &mut self,
        purpose: Purpose,
        version: Version,
        parts: Vec<(u64, TierId)>,
        to: TierId,
        offsets: Vec<u64>,
    ) {
        let id = TransferId(self.next);
        self.next += 1;
        let ledger = &mut self.ledger;
        let mut from: Vec<Piece> = Vec::new();
        for &(start, tier) in &parts {
            let extent = ledger.extent((version, start));
            let piece = |extent: &Extent| Some(ledger.piece(extent, extent.on(tier)?));
            from.extend(extent.and_then(piece));
            ledger.read((version, start), tier, true);
        }
        let source = parts.first().map_or(to, |&(_, tier)| tier);
        let began = match purpose {
            Purpose::WriteBack => Move::WriteBegan,
            Purpose::Prefetch => Move::ReadBegan,
        };
        let mut targets = Vec::new();
        for (piece, &offset) in from.iter().zip(&offsets) {
            let size = ledger.room_on(version, to, ledger.len((version, piece.start)));
            let place = Place {
                tier: to,
                offset,
                size,
                reserved: ledger.tier(to).space.reserved(size),
            };
            ledger.receive((version, piece.start), place, id, began);
            targets.push(Piece {
                start: piece.start,
                place,
            });
        }
        let coding = ledger.code(version, source, to);
        let encodes = matches!(coding, Coding::Encode { .. });
        self.keep_pace();
        let flight = Flight {
            purpose,
            version,
            parts,
            to,
            bytes: targets.iter().map(|piece| piece.place.size).sum(),
            begun_ns: self.now_ns,
            service: self.pace.begin(),
            bases: coding.bases(),
            encodes: encodes.then(Encoding::default),
        };
        let depth = self.depth(&flight);
        depth.transfers += 1;
        depth.bytes += flight.bytes;
        self.flights.insert(id, flight);
        self.ledger.commands.push(Command::Transfer(Transfer {
            id,
            version,
            from,
            to: targets,
            coding,
        }));
    }

    /// Accounts for the time that passed before a transfer into the lowest tier comes or goes.
    fn keep_pace(&mut self) {
        let last = self.ledger.last();
        let transfers = self.depths[last.0].entering.transfers;
        self.pace.pass(self.now_ns, transfers);
    }

    /// Handles [`Event::Hold`](crate::Event::Hold).
    pub(crate) fn hold(&mut self, version: Version, is_held: bool) {
        self.keep_pace();
        let last = self.ledger.last();
        let flights = self.flights.values_mut();
        let flights = flights.filter(|flight| {
            (flight.version, flight.to, flight.purpose) == (version, last, Purpose::WriteBack)
        });
        for flight in flights {
            self.pace.hold(&mut flight.service, is_held);
        }
    }

    /// Returns the depth that counts a transfer.
    fn depth(&mut self, flight: &Flight) -> &mut Depth {
        match flight.purpose {
            Purpose::WriteBack => &mut self.depths[flight.to.0].entering,
            Purpose::Prefetch => &mut self.depths[flight.from().0].rising,
        }
    }

    /// Removes a transfer, and its reads of its sources.
    fn end(&mut self, id: TransferId) -> Result<Flight, Misuse> {
        let mut flight = self.flights.remove(&id).ok_or(Misuse::NoTransfer(id))?;
        self.keep_pace();
        flight.service = self.pace.end(flight.service);
        let depth = self.depth(&flight);
        depth.transfers -= 1;
        depth.bytes -= flight.bytes;
        for &(start, tier) in &flight.parts {
            self.ledger.read((flight.version, start), tier, false);
        }
        Ok(flight)
    }

    /// Returns true if the end of a transfer was reported already.
    pub(crate) fn has_arrived(&self, id: TransferId) -> bool {
        let encodes = self.flights.get(&id).and_then(|flight| flight.encodes);
        encodes.is_some_and(|encoding| encoding.arrived.is_some())
    }

    /// Notes the result of an encoding. The room of the encoding shrinks to the result, and encodings without a result move up.
    pub(crate) fn encoded(&mut self, id: TransferId, stored: Option<Stored>) -> Result<(), Misuse> {
        let flight = self.flights.get_mut(&id).ok_or(Misuse::NoTransfer(id))?;
        let encoding = flight.encodes.as_mut().filter(|e| e.made.is_none());
        encoding.ok_or(Misuse::WrongCoding(id))?.made = Some(stored);
        let (version, to) = (flight.version, flight.to);
        self.ledger
            .set_aside(version, to, stored.map(|stored| stored.bytes));
        let flights = self.flights.iter();
        let unmade = flights.filter(|(_, flight)| {
            flight.to == to && flight.encodes.is_some_and(|e| e.made.is_none())
        });
        let mut unmade: Vec<_> = unmade.map(|(id, flight)| (*id, flight.version)).collect();
        unmade.sort_unstable();
        for (_, version) in unmade {
            self.ledger.move_to_smallest_gap((version, 0), to);
        }
        Ok(())
    }

    /// Handles a transfer that delivered, or did not. Notes the versions whose transfers [ended](Self::ended).
    pub(crate) fn take_in(
        &mut self,
        id: TransferId,
        outcome: Result<Option<Stored>, TransferFailure>,
    ) -> Result<(), Misuse> {
        match outcome {
            _ if self.has_arrived(id) => Err(Misuse::NoTransfer(id)),
            Ok(stored) => self.finish(id, stored),
            Err(why) => self.fail(id, why),
        }
    }

    /// Delivers a transfer, unless it waits for its base.
    fn finish(&mut self, id: TransferId, stored: Option<Stored>) -> Result<(), Misuse> {
        let asked = self.flights.get_mut(&id).ok_or(Misuse::NoTransfer(id))?;
        let version = asked.version;
        let encodes = asked.encodes.is_some();
        match (&mut asked.encodes, stored) {
            (None, Some(_)) => return Err(Misuse::WrongCoding(id)),
            (Some(encoding), stored) if encoding.made.is_some_and(|made| made != stored) => {
                return Err(Misuse::WrongCoding(id));
            }
            (Some(encoding), Some(difference)) if !difference.alone => {
                if encoding.is_baseless {
                    return self.fail(id, TransferFailure::Cancelled);
                }
                encoding.arrived = stored;
                let base = self.ledger.base_of(version);
                if base.is_some_and(|base| self.is_encoded(base)) {
                    return Ok(());
                }
            }
            _ => {}
        }
        self.deliver(id, stored)?;
        let dependents = encodes.then(|| self.dependents(version));
        for (dependent, encoding) in dependents.into_iter().flatten() {
            match stored {
                None => self.lose_base(dependent)?,
                Some(_) if encoding.arrived.is_some() => {
                    self.finish(dependent, encoding.arrived)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Returns true if a transfer encodes a version.
    fn is_encoded(&self, version: Version) -> bool {
        let mut flights = self.flights.values();
        flights.any(|flight| flight.version == version && flight.encodes.is_some())
    }

    /// Returns the transfers that make differences to a version.
    fn dependents(&self, version: Version) -> Vec<(TransferId, Encoding)> {
        let flights = self.flights.iter();
        let dependents = flights.filter_map(|(&id, flight)| {
            let encoding = flight.encodes?;
            (self.ledger.base_of(flight.version) == Some(version)).then_some((id, encoding))
        });
        let mut dependents: Vec<_> = dependents.collect();
        dependents.sort_unstable();
        dependents
    }

    /// Notes that the base of an encoding never comes.
    fn lose_base(&mut self, id: TransferId) -> Result<(), Misuse> {
        let flight = self.flights.get_mut(&id).ok_or(Misuse::NoTransfer(id))?;
        let encoding = flight.encodes.get_or_insert_default();
        encoding.is_baseless = true;
        let has_arrived = encoding.arrived.is_some();
        self.ledger.lose_base(flight.version);
        match has_arrived {
            true => self.fail(id, TransferFailure::Cancelled),
            false => Ok(()),
        }
    }

    fn deliver(&mut self, id: TransferId, stored: Option<Stored>) -> Result<(), Misuse> {
        let flight = self.end(id)?;
        let (purpose, version, to) = (flight.purpose, flight.version, flight.to);
        if flight.encodes.is_some() {
            self.ledger.encoded(version, to, stored);
        }
        let mut bytes = 0;
        for &(start, source) in &flight.parts {
            let id = (version, start);
            let replica = self.ledger.replica(id, to);
            bytes += replica.map_or(0, |replica| replica.size);
            self.arrived(purpose, id, source, to);
        }
        let hop = self.ledger.statistics.hop(flight.from(), to);
        hop.carried(bytes, flight.begun_ns, self.now_ns);
        if purpose == Purpose::WriteBack && to == self.ledger.last() {
            self.pace.delivered(bytes, flight.service);
        }
        self.ledger.release_bases(&flight.bases);
        for &(start, _) in &flight.parts {
            self.ledger.merge((version, start));
        }
        self.ended.push(version);
        Ok(())
    }

    fn arrived(&mut self, purpose: Purpose, id: ExtentId, from: TierId, to: TierId) {
        let ledger = &mut self.ledger;
        let state = ledger.replica(id, from).map(|replica| replica.state);
        match purpose {
            Purpose::WriteBack => {
                ledger.step(id, to, Move::WriteEnded);
                // Two tiers may have been written at the same time.
                if state != Some(State::Flushed) {
                    ledger.step(id, from, Move::Flushed);
                }
            }
            Purpose::Prefetch => {
                ledger.step(id, to, Move::ReadEnded);
                // The replica nearer to the application will be read.
                if state == Some(State::ReadComplete) {
                    ledger.step(id, from, Move::Consumed);
                }
                // A discarded version is kept for its dependents only: it will not be consumed.
                if ledger.is_discarded(id.0) {
                    ledger.step(id, to, Move::Consumed);
                }
            }
        }
    }

    fn fail(&mut self, id: TransferId, why: TransferFailure) -> Result<(), Misuse> {
        let flight = self.end(id)?;
        let (version, to) = (flight.version, flight.to);
        let dependents = flight.encodes.map(|_| self.dependents(version));
        for &(start, _) in &flight.parts {
            self.ledger.release((version, start), to);
        }
        if flight.encodes.is_some() {
            self.ledger.not_encoded(version);
        }
        for (dependent, _) in dependents.into_iter().flatten() {
            self.lose_base(dependent)?;
        }
        self.ledger.release_bases(&flight.bases);
        let parts = flight.parts.iter();
        let parts = parts.map(|&(start, from)| self.ledger.replica((version, start), from));
        let bases = flight.bases.iter();
        let bases = bases.map(|&(base, from)| self.ledger.replica((base, 0), from));
        let read_damage = parts.chain(bases).flatten().any(|read| read.damaged);
        let hop = self.ledger.statistics.hop(flight.from(), to);
        match why {
            TransferFailure::Cancelled => hop.cancelled += 1,
            TransferFailure::Source | TransferFailure::Destination => hop.failed += 1,
        }
        match why {
            TransferFailure::Cancelled => {}
            TransferFailure::Destination => self.ledger.tier_mut(to).closed = true,
            // The next attempt reads other replicas, but on the way down of a difference.
            TransferFailure::Source
                if read_damage
                    && self.ledger.is_sound(version)
                    && !(flight.from() < to && self.ledger.lies_encoded(flight.from())) => {}
            // Not tried again by the plan itself: a restore still asks every tier that has it.
            TransferFailure::Source => self.ledger.set_unreadable(version, read_damage),
        }
        self.ledger.give_up_damaged(version);
        for &(start, _) in &flight.parts {
            self.ledger.merge((version, start));
        }
        self.ended.push(version);
        Ok(())
    }
}
