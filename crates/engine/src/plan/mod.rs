//! The plan: which bytes go where, and when. A deterministic state machine without threads, clock, memory or I/O.
//!
//! [`Plan::handle`] takes one [`Event`] and returns [`Command`]s. Whoever drives the plan (threads and streams in
//! [`run`](crate), a simulator, a model checker) carries the commands out in any order and speed and reports what
//! became of them. Everything the plan does follows from the order of its events.
//!
//! Every copy of a version goes through the life cycle of HPDC'23 §4.1.3 ([`tierflow_lifecycle`]); room is found by a
//! [`tierflow_evict`] policy over each tier's allocation table. What always holds is written, and checked, in
//! [`Plan::check`].
//!
//! | file | its question |
//! |---|---|
//! | `event` | what can be said to the plan, and by it? |
//! | `history` | which versions are there, with which copies? |
//! | `restore_order` | what will be read next? |
//! | `limit` | how much of a tier may be used, and how does the rest become empty? |
//! | `adopt` | what was there before? |
//! | `outlook` | what is the policy told of each copy? |
//! | `known`, `touched` | and of which copies has that changed? |
//! | `space` | where in a tier can these bytes go, and who has to leave? |
//! | `give_up` | what becomes of versions that nobody wants any more? |
//! | `callers` | how is a checkpoint, a restore, a wait answered? |
//! | `differences` | which versions are stored as differences, and to what? |
//! | `in_place` | how is a part of the cache itself lent? |
//! | `flush`, `flush_queue` | what goes down next? |
//! | `foresight` | how large will the history be? |
//! | `run_order` | of copies of different sizes, which go down first? |
//! | `stay` | what had better stay where it was written? |
//! | `prefetch` | what comes up next? |
//! | `guess` | what comes up though nobody asked for it? |
//! | `transfers` | what becomes of a copy under way? |
//! | `check` | does everything that must hold, hold? |
//! | `fingerprint` | will two plans do the same? |

mod adopt;
mod bandwidth;
mod callers;
mod check;
mod differences;
mod event;
mod fingerprint;
mod flush;
mod flush_queue;
mod foresight;
mod give_up;
mod guess;
mod history;
mod in_place;
mod known;
mod limit;
mod outlook;
mod prefetch;
mod restore_order;
mod run_order;
mod space;
mod statistics;
mod stay;
mod touched;
mod transfers;

pub use check::Violation;
pub use differences::Differences;
pub use event::{
    Coding, Command, Difference, Event, Place, Refusal, Stored, Ticket, TierId, TransferFailure,
    TransferId,
};
pub use statistics::{
    Cause, Eviction, HopStatistics, PrefetchDistance, Statistics, TierStatistics,
};

use crate::{Flush, Version};
use bandwidth::{Backlog, Bandwidth};
use callers::Callers;
use differences::Newest;
use flush_queue::FlushQueue;
use foresight::Foresight;
use guess::Guesses;
use hashbrown::HashMap;
use history::{Discarded, Record, Records};
pub(crate) use in_place::FASTEST;
use known::Known;
use prefetch::Cursor;
use restore_order::RestoreOrder;
use run_order::Pace;
use tierflow_evict::{AllocationTable, Conduct, Policy, TableError};
use transfers::Transfer;

/// What becomes of a version once the application has restored it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterRestore {
    /// It stays and can be restored again, until it is dropped.
    #[default]
    Keep,
    /// It goes, with all its copies and its pending flushes: adjoint codes read each version once.
    Discard,
}

/// One tier as the plan sees it.
#[derive(Debug)]
pub struct TierConfig {
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Offsets and sizes are multiples of this many bytes.
    pub alignment: u64,
    /// Which copies it gives up first.
    pub policy: Box<dyn Policy + Send>,
    /// A first guess, in bytes/s, of how fast its copies are flushed; replaced by what is measured.
    pub flush_bandwidth: u64,
    /// When its copies are flushed without being asked for.
    pub flush: Flush,
    /// How many flushes may leave it at a time.
    pub flush_depth: usize,
    /// How many prefetches into it may be under way at a time.
    pub prefetch_depth: usize,
}

/// Everything the plan needs to know at the start.
#[derive(Debug)]
pub struct PlanConfig {
    /// From the fastest to the slowest.
    pub tiers: Vec<TierConfig>,
    /// What becomes of restored versions.
    pub after_restore: AfterRestore,
    /// Whether what leaves the fastest tier is stored as differences: of each version to the one before it.
    pub differences: Option<Differences>,
}

/// A tier's share of the plan.
#[derive(Debug)]
struct Tier {
    table: AllocationTable<Version>,
    policy: Box<dyn Policy + Send>,
    conduct: Conduct,
    known: Known,
    /// Versions whose copy here waits to be flushed.
    flushes: FlushQueue,
    /// Flushes set aside because their copy is about to be consumed and discarded.
    deferred: Vec<Version>,
    backlog: Backlog,
    pace: Pace,
    /// By tier, what comes up from there.
    fetches: Vec<Bandwidth>,
    flush: Flush,
    flush_depth: usize,
    prefetch_depth: usize,
    flushing: usize,
    prefetching: usize,
    cursor: Cursor,
    /// Whether it was said yet that nothing lies beyond the limit.
    vacating: bool,
    /// A write failed: nothing is sent here until the application asks for something again.
    closed: bool,
    statistics: TierStatistics,
}

/// The state machine. See the [module](self).
#[derive(Debug)]
pub struct Plan {
    tiers: Vec<Tier>,
    after_restore: AfterRestore,
    records: Records,
    discarded: Discarded,
    order: RestoreOrder,
    guesses: Guesses,
    prefetch_started: bool,
    /// Hinted versions that were not begun yet.
    unwritten: u64,
    foresight: Foresight,
    /// Checkpoints of different sizes were asked for, so that of the next one is anybody's guess.
    sizes_vary: bool,
    /// Bytes of the last checkpoint that was asked for.
    last_size: u64,
    /// The most bytes that any checkpoint had.
    largest_size: u64,
    /// A caller found no room: tiers flush whatever their level.
    starved: bool,
    /// Every version is to reach the lowest tier, restored soon or not.
    flushes_all: bool,
    /// Restores since the last checkpoint was asked for, as far as that matters.
    restores_in_a_row: u32,
    /// Flushes set aside are wanted after all: somebody waits for room or for durability.
    hurry: bool,
    callers: Callers,
    transfers: HashMap<TransferId, Transfer>,
    differences: Option<Differences>,
    /// What the next difference can build upon.
    newest: Option<Newest>,
    next_transfer: u64,
    /// Logical time: one tick an event.
    tick: u64,
    commands: Vec<Command>,
    hops: Vec<HopStatistics>,
    prefetch_distance: PrefetchDistance,
    /// Those that nobody took yet; `None` if nobody will.
    evictions: Option<Vec<Eviction>>,
}

impl Plan {
    /// A plan over empty tiers.
    ///
    /// # Errors
    /// [`TableError::BadCapacity`] if a tier's capacity is smaller than its alignment, or absurdly large.
    pub fn new(config: PlanConfig) -> Result<Self, TableError> {
        let fetches = bandwidth::guesses(&config.tiers);
        let tiers = std::iter::zip(config.tiers, fetches).enumerate();
        let tiers = tiers.map(|(index, (tier, fetches))| {
            let conduct = tier.policy.conduct();
            Ok(Tier {
                table: AllocationTable::new(tier.capacity, tier.alignment)?,
                policy: tier.policy,
                conduct,
                known: Known::default(),
                flushes: FlushQueue::default(),
                deferred: Vec::new(),
                backlog: Backlog::new(tier.flush_bandwidth),
                pace: Pace::default(),
                fetches,
                flush: tier.flush,
                // Differences are made one after the other.
                flush_depth: match config.differences {
                    Some(_) if TierId(index) == FASTEST => 1,
                    _ => tier.flush_depth.max(1),
                },
                prefetch_depth: tier.prefetch_depth.max(1),
                flushing: 0,
                prefetching: 0,
                cursor: Cursor::default(),
                vacating: false,
                closed: false,
                statistics: TierStatistics::default(),
            })
        });
        Ok(Self {
            tiers: tiers.collect::<Result<_, _>>()?,
            after_restore: config.after_restore,
            records: Records::default(),
            discarded: Discarded::default(),
            order: RestoreOrder::default(),
            guesses: Guesses::default(),
            prefetch_started: false,
            unwritten: 0,
            foresight: Foresight::default(),
            sizes_vary: false,
            last_size: 0,
            largest_size: 0,
            starved: false,
            flushes_all: false,
            restores_in_a_row: 0,
            hurry: false,
            callers: Callers::default(),
            transfers: HashMap::new(),
            differences: config.differences,
            newest: None,
            next_transfer: 0,
            tick: 0,
            commands: Vec::new(),
            hops: Vec::new(),
            prefetch_distance: PrefetchDistance::default(),
            evictions: None,
        })
    }

    /// Every version is to reach the lowest tier, as it outlives the application: flushes never rest, whatever the
    /// policies want.
    pub fn flush_all_versions(&mut self) {
        self.flushes_all = true;
    }

    /// Takes in one event and appends what is to be done to `commands`.
    ///
    /// An event about a ticket or transfer that the plan does not know is ignored: it can only be the echo of
    /// something already settled.
    pub fn handle(&mut self, event: Event, commands: &mut Vec<Command>) {
        self.tick += 1;
        match event {
            Event::Checkpoint {
                ticket,
                version,
                size,
            } => self.checkpoint(ticket, version, size),
            Event::Written { ticket, ok } => self.written(ticket, ok),
            Event::Restore { ticket, version } => self.restore(ticket, version),
            Event::Read { ticket, ok } => self.read(ticket, ok),
            Event::Produce {
                ticket,
                version,
                size,
            } => self.produce(ticket, version, size),
            Event::Consume { ticket, version } => self.consume(ticket, version),
            Event::Hint { versions } => versions.into_iter().for_each(|v| self.hint(v)),
            Event::PrefetchStart => self.prefetch_started = true,
            Event::Drop { ticket, version } => self.drop_version(ticket, version),
            Event::Wait { ticket } => self.wait(ticket),
            Event::Limit { tier, bytes } => self.limit(tier, bytes),
            Event::Adopt {
                version,
                size,
                tier,
                difference,
            } => self.adopt(version, size, tier, difference),
            Event::TransferDone {
                id,
                elapsed_ns,
                stored,
            } => self.transfer_done(id, elapsed_ns, stored),
            Event::TransferFailed { id, why } => self.transfer_failed(id, why),
        }
        self.pump();
        self.note_touched();
        commands.append(&mut self.commands);
    }

    fn hint(&mut self, version: Version) {
        let known = self.order.next(version).is_some()
            || self.records.contains_key(&version)
            || self.discarded.contains(version);
        if !known {
            self.unwritten += 1;
            self.foresight.hinted();
        }
        self.order.push(version);
    }

    /// Does all that can be done now: flushes first, since they make room; callers before prefetches.
    fn pump(&mut self) {
        loop {
            self.vacate_all();
            self.flush_all();
            if !self.admit_blocked() {
                break;
            }
        }
        if self.prefetch_started {
            self.prefetch_all();
        }
        self.answer_waits();
    }

    /// Bytes of a version's checkpoint, while it is held.
    #[must_use]
    pub fn size_of(&self, version: Version) -> Option<u64> {
        self.records
            .get(&version)
            .filter(|r| r.is_held())
            .map(|r| r.size)
    }

    /// The fastest tier with a readable copy of a version that is held.
    #[must_use]
    pub fn fastest_copy(&self, version: Version) -> Option<TierId> {
        let record = self.records.get(&version).filter(|r| !r.doomed)?;
        record.fastest()
    }

    /// Where the copy of a version on a tier lies, while there is one.
    #[must_use]
    pub fn place(&self, version: Version, tier: TierId) -> Option<Place> {
        let record = self.records.get(&version).filter(|r| !r.doomed)?;
        record.copy(tier).map(|copy| copy.place)
    }

    /// Why a version is not held: never seen, or gone.
    #[must_use]
    pub fn absence(&self, version: Version) -> Refusal {
        let is_doomed = |record: &Record| record.doomed;
        let gone =
            self.discarded.contains(version) || self.records.get(&version).is_some_and(is_doomed);
        if gone {
            Refusal::Discarded
        } else {
            Refusal::Unknown
        }
    }

    /// The versions held, unconsumed or kept, in no particular order.
    pub fn versions(&self) -> impl Iterator<Item = Version> + '_ {
        self.records
            .iter()
            .filter(|(_, r)| r.is_held())
            .map(|(&v, _)| v)
    }

    fn last_tier(&self) -> TierId {
        TierId(self.tiers.len().saturating_sub(1))
    }

    /// Nothing is under way that could change anything: no transfer, and no caller in the middle of a copy.
    fn is_idle(&self) -> bool {
        self.transfers.is_empty() && !self.callers.anyone_copying()
    }
}
