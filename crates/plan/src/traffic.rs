//! Transfers under way: their start, their end, their failure.

mod lanes;
mod pace;

pub(crate) use lanes::{Pressure, Suspension};

use crate::command::{Coding, Command, Piece, Place, Transfer};
use crate::config::TierConfig;
use crate::event::{Misuse, Stored, TransferFailure};
use crate::ledger::{Base, Ledger};
use crate::order::ExtentId;
use crate::{TierId, TransferId, Version};
use hashbrown::HashMap;
use pace::{Pace, Service};
use tierflow_lifecycle::{Event as Move, State};

/// Why a transfer was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// To a slower tier, so that the source becomes evictable, or the version durable.
    WriteBack,
    /// To a faster tier, so that a restore finds the version near.
    Prefetch,
}

/// One transfer under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) purpose: Purpose,
    pub(crate) version: Version,
    /// The extents that it carries, by their first bytes, and whence.
    pub(crate) parts: Vec<(u64, TierId)>,
    pub(crate) to: TierId,
    /// Bytes that it moves, as they lie where it goes.
    pub(crate) bytes: u64,
    pub(crate) begun_ns: u64,
    /// How far it was served, if it goes into the lowest tier.
    pub(crate) service: Service,
    /// Replicas of other versions that it reads.
    pub(crate) bases: Vec<Base>,
    /// It makes a difference, to a version if there is one to build upon.
    pub(crate) encodes: Option<Option<Version>>,
}

impl Flight {
    /// The slowest tier that it reads.
    pub(crate) fn from(&self) -> TierId {
        let tiers = self.parts.iter().map(|&(_, tier)| tier);
        tiers.max().unwrap_or(self.to)
    }
}

/// Which transfers share a depth: those into one tier from above, or those out of it upwards.
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
    /// Whether one more may begin.
    fn has_room(self, config: &TierConfig) -> bool {
        self.transfers < config.depth.max(1) || self.bytes < config.small
    }
}

/// What an ended transfer leaves to be done.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) version: Version,
}

/// The ledger, and what is on its way between its tiers.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) ledger: Ledger,
    pub(crate) flights: HashMap<TransferId, Flight>,
    pub(crate) depths: Vec<Depths>,
    pub(crate) next: u64,
    /// The driver's clock, in ns.
    pub(crate) now_ns: u64,
    /// Prefetches found no room: what holds it is to be written down.
    pub(crate) starved: bool,
    /// How fast the lowest tier takes what is written there.
    pub(crate) pace: Pace,
    /// The application is about to go.
    pub(crate) suspension: Option<Suspension>,
}

impl Traffic {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            flights: HashMap::new(),
            depths: vec![Depths::default(); ledger.tiers.len()],
            next: 0,
            now_ns: 0,
            starved: false,
            pace: Pace::default(),
            suspension: None,
            ledger,
        }
    }

    /// Starts to copy extents of `version` from where they lie to their offsets on a tier.
    fn start(
        &mut self,
        purpose: Purpose,
        version: Version,
        parts: Vec<(u64, TierId)>,
        (to, offsets): (TierId, Vec<u64>),
    ) {
        let id = TransferId(self.next);
        self.next += 1;
        let ledger = &mut self.ledger;
        let mut from: Vec<Piece> = Vec::new();
        for &(start, tier) in &parts {
            let extent = ledger.extent((version, start));
            let found = extent.and_then(|extent| Some((extent, extent.on(tier)?)));
            from.extend(found.map(|(extent, replica)| ledger.piece(extent, replica)));
            ledger.read((version, start), tier, true);
        }
        let source = parts.first().map_or(to, |&(_, tier)| tier);
        let began = match purpose {
            Purpose::WriteBack => Move::WriteBegan,
            Purpose::Prefetch => Move::ReadBegan,
        };
        let mut targets = Vec::new();
        for (piece, &offset) in from.iter().zip(&offsets) {
            let len = ledger
                .extent((version, piece.start))
                .map_or(0, |extent| extent.len);
            let size = ledger.room_on(version, to, len);
            let reserved = ledger.tier(to).space.reserved(size);
            ledger.receive((version, piece.start), (to, offset, size), (id, began));
            targets.push(Piece {
                start: piece.start,
                place: Place {
                    tier: to,
                    offset,
                    size,
                    reserved,
                },
            });
        }
        let coding = ledger.code(version, source, to);
        let (bases, encodes) = match &coding {
            Coding::Plain | Coding::Stored { .. } => (Vec::new(), None),
            Coding::Encode { base } => (Vec::new(), Some(*base)),
            Coding::Decode { bases } => {
                let bases = bases.iter().map(|&(base, place)| (base, place.tier));
                (bases.collect(), None)
            }
        };
        self.keep_pace();
        let flight = Flight {
            purpose,
            version,
            parts,
            to,
            bytes: targets.iter().map(|piece| piece.place.size).sum(),
            begun_ns: self.now_ns,
            service: self.pace.begin(),
            bases,
            encodes,
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

    /// Time passed for the transfers into the lowest tier, of which one comes or goes.
    fn keep_pace(&mut self) {
        let last = self.ledger.last();
        let transfers = self.depths[last.0].entering.transfers;
        self.pace.pass(self.now_ns, transfers);
    }

    /// A version on its way into the lowest tier waits for others to be there before it, or does so no longer.
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

    /// What a transfer's depth counts.
    fn depth(&mut self, flight: &Flight) -> &mut Depth {
        match flight.purpose {
            Purpose::WriteBack => &mut self.depths[flight.to.0].entering,
            Purpose::Prefetch => &mut self.depths[flight.from().0].rising,
        }
    }

    /// Takes a transfer off the books: its sources are no longer read by it.
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

    /// A transfer delivered.
    pub(crate) fn done(&mut self, id: TransferId, stored: Option<Stored>) -> Result<Ended, Misuse> {
        let asked = self.flights.get(&id).ok_or(Misuse::NoTransfer(id))?;
        if asked.encodes.is_none() && stored.is_some() {
            return Err(Misuse::WrongCoding(id));
        }
        let flight = self.end(id)?;
        let from = flight.from();
        let Flight {
            purpose,
            version,
            parts,
            to,
            bytes: _,
            begun_ns,
            service,
            bases,
            encodes,
        } = flight;
        if let Some(base) = encodes {
            self.ledger.encoded(version, to, base, stored);
        }
        let mut bytes = 0;
        for &(start, source) in &parts {
            let id = (version, start);
            let on = self.ledger.extent(id).and_then(|extent| extent.on(to));
            bytes += on.map_or(0, |replica| replica.size);
            self.arrived(purpose, id, source, to);
        }
        let hop = self.ledger.counts.hop(from, to);
        hop.carried(bytes, begun_ns, self.now_ns);
        if purpose == Purpose::WriteBack && to == self.ledger.last() {
            self.pace.delivered(bytes, service);
        }
        self.ledger.let_go(&bases);
        for &(start, _) in &parts {
            self.ledger.merge((version, start));
        }
        Ok(Ended { version })
    }

    fn arrived(&mut self, purpose: Purpose, id: ExtentId, from: TierId, to: TierId) {
        let ledger = &mut self.ledger;
        let state = |ledger: &Ledger, tier| {
            let extent = ledger.extent(id);
            extent.and_then(|extent| extent.on(tier)).map(|r| r.state)
        };
        let is_discarded = |ledger: &Ledger| {
            let record = ledger.records.get(&id.0);
            record.is_some_and(|record| record.discarded)
        };
        match purpose {
            Purpose::WriteBack => {
                ledger.step(id, to, Move::WriteEnded);
                // Two tiers may have been written at the same time.
                if state(ledger, from) != Some(State::Flushed) {
                    ledger.step(id, from, Move::Flushed);
                }
            }
            Purpose::Prefetch => {
                ledger.step(id, to, Move::ReadEnded);
                // The replica nearer to the application is the one that will be read.
                if state(ledger, from) == Some(State::ReadComplete) {
                    ledger.step(id, from, Move::Consumed);
                }
                // If it is kept at all, it is for others: it will not be consumed.
                if is_discarded(ledger) {
                    ledger.step(id, to, Move::Consumed);
                }
            }
        }
    }

    /// A transfer did not deliver.
    pub(crate) fn failed(&mut self, id: TransferId, why: TransferFailure) -> Result<Ended, Misuse> {
        let flight = self.end(id)?;
        let (version, to) = (flight.version, flight.to);
        for &(start, _) in &flight.parts {
            self.ledger.release((version, start), to);
        }
        if let Some(base) = flight.encodes {
            self.ledger.not_encoded(base);
        }
        self.ledger.let_go(&flight.bases);
        let hop = self.ledger.counts.hop(flight.from(), to);
        match why {
            TransferFailure::Cancelled => hop.cancelled += 1,
            TransferFailure::Source | TransferFailure::Destination => hop.failed += 1,
        }
        match why {
            TransferFailure::Cancelled => {}
            TransferFailure::Destination => self.ledger.tier_mut(to).closed = true,
            // Not tried again by itself: a restore still asks every tier that has it.
            TransferFailure::Source => {
                self.ledger
                    .change_record(version, |record| record.unreadable = true);
            }
        }
        for &(start, _) in &flight.parts {
            self.ledger.merge((version, start));
        }
        Ok(Ended { version })
    }
}
