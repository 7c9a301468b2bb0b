//! The ledger: every version, every replica, every byte of every tier, and sets of replicas, updated with each change,
//! from which decisions are made. The ledger decides nothing.
//!
//! | set, by tier | its replicas |
//! |---|---|
//! | clean | at rest, and a lower tier has the bytes too |
//! | superseded | at rest, and a faster tier has the bytes too |
//! | dirty | no lower tier has the bytes or is about to, and they can be written there |
//! | sinkable | the next tier, of which there is one, does not have the bytes, nor is about to |
//! | promotable | no faster tier has the bytes or is about to, and no caller reads them past it |

mod differences;
mod extents;
mod membership;
mod outlook;
mod predictions;
mod replicas;
mod room;
mod settled;
pub(crate) mod windows;

pub(crate) use differences::{Base, EncodedSizes};
pub(crate) use membership::{Members, Set};
pub(crate) use outlook::{Outlook, Phase};
pub(crate) use room::{KeepReason, RoomBytes, RoomRequest, Urgency};

use crate::command::Command;
use crate::config::{AfterRestore, ConfigError, Differences, ExtentSize, PlanConfig, TierConfig};
use crate::discarded::Discarded;
use crate::hints::Hints;
use crate::order::{ExtentId, Key, Order, Point, Position, Ranked};
use crate::policy::{Policy, Usage};
use crate::predictor::Predictor;
use crate::record::{Extent, Record, Replica};
use crate::reuse::{Contest, LastRead};
use crate::space::Space;
use crate::statistics::{Eviction, Statistics, TierStatistics};
use crate::sums::Weight;
use crate::{Ticket, TierId, Version};
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The ledger's data about one tier.
#[derive(Debug, Clone)]
pub(crate) struct Tier {
    pub(crate) config: TierConfig,
    pub(crate) space: Space,
    /// The sets of its replicas, by [`Set`].
    pub(crate) sets: [Ranked; 5],
    /// Versions taken in that are not whole here or lower, by the tick of that; kept for the lowest tier and for eager
    /// ones. The lowest tier is owed a version until it has all that the version builds upon, too.
    pub(crate) owed: Option<BTreeSet<(u64, Version)>>,
    /// The owed versions of which some bytes are not even on their way here. Others may be among them until they are
    /// looked at.
    pub(crate) unsent: BTreeSet<(u64, Version)>,
    /// Extents that callers copy from here now, without those of slots lent in place.
    pub(crate) callers: usize,
    /// True after a failed write: nothing is sent here until the application asks for something again.
    pub(crate) closed: bool,
    /// True from a new limit on until `Released` was emitted for it.
    pub(crate) vacating: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) tiers: Vec<Tier>,
    pub(crate) records: HashMap<Version, Record>,
    pub(crate) discarded: Discarded,
    pub(crate) hints: Hints,
    /// True if hints name more than the next reading: versions without hints are used no more then.
    pub(crate) hints_reach_far: bool,
    pub(crate) predictor: Predictor,
    pub(crate) order: Order,
    /// The targets along the order of use, found anew before anything moves.
    pub(crate) outlook: Outlook,
    /// Chooses the order of versions without hints.
    pub(crate) contest: Contest,
    pub(crate) last_read: LastRead,
    pub(crate) policy: Arc<dyn Policy>,
    /// Chooses the neighbours to evict if the policy wants every version in one run.
    pub(crate) windows: Option<windows::Windows>,
    pub(crate) after_restore: AfterRestore,
    pub(crate) extents: ExtentSize,
    /// Extents begin at multiples of this many bytes of their version: the largest alignment of a tier.
    pub(crate) unit: u64,
    pub(crate) differences: Option<Differences>,
    /// Keeps the sets up with each change.
    pub(crate) members: Members,
    /// Bytes of the encoded versions, and bytes of their differences.
    pub(crate) encoded_sizes: EncodedSizes,
    /// The version whose difference was asked for last: the next one can build upon it.
    pub(crate) latest_encoding: Option<Version>,
    /// Logical time: one tick per event.
    pub(crate) tick: u64,
    /// The list of the caller whose events are handled; empty between two calls.
    pub(crate) commands: Vec<Command>,
    /// Unreadable versions of which no damage is known: they are tried again when the application asks for something.
    pub(crate) failing: BTreeSet<Version>,
    /// Versions that became durable on the lowest tier, or went, since waits for single versions were last answered.
    pub(crate) settled: Vec<Version>,
    /// All counts but the present sizes of the tiers.
    pub(crate) statistics: Statistics,
    /// Evictions that were not taken yet; `None` if they are not recorded.
    pub(crate) evictions: Option<Vec<Eviction>>,
}

impl Ledger {
    pub(crate) fn new(config: PlanConfig) -> Result<Self, ConfigError> {
        if config.tiers.is_empty() {
            return Err(ConfigError::NoTiers);
        }
        let count = config.tiers.len();
        if let Some(Differences { below, .. }) = config.differences.filter(|d| d.below.0 >= count) {
            return Err(ConfigError::NoSuchTier {
                tier: below.0,
                tiers: count,
            });
        }
        let last = count - 1;
        let windows = config.policy.windows().map(|chooser| windows::Windows {
            chooser: Arc::new(Mutex::new(chooser)),
            awaited: Vec::new(),
        });
        let mut tiers = Vec::new();
        for (tier, mut config) in config.tiers.into_iter().enumerate() {
            config.eager |= windows.is_some() && tier > 0;
            let TierConfig {
                capacity,
                alignment,
                ..
            } = config;
            let space = Space::new(capacity, alignment);
            if space.capacity() == 0 {
                return Err(ConfigError::TooSmall {
                    tier,
                    capacity,
                    alignment,
                });
            }
            tiers.push(Tier {
                space,
                sets: Default::default(),
                owed: (config.eager || tier == last).then(BTreeSet::new),
                unsent: BTreeSet::new(),
                callers: 0,
                closed: false,
                vacating: false,
                config,
            });
        }
        let units = tiers.iter().map(|tier: &Tier| tier.space.alignment());
        let unit = units.max().unwrap_or(1);
        let least = config.extents.least.max(1).next_multiple_of(unit);
        Ok(Self {
            statistics: Statistics {
                tiers: vec![TierStatistics::default(); tiers.len()],
                ..Statistics::default()
            },
            evictions: None,
            unit,
            tiers,
            records: HashMap::new(),
            discarded: Discarded::default(),
            hints: Hints::default(),
            hints_reach_far: false,
            predictor: Predictor::default(),
            order: Order::over(last + 1),
            outlook: Outlook::default(),
            contest: Contest::new(last + 1),
            last_read: LastRead::default(),
            windows,
            policy: config.policy.into(),
            after_restore: config.after_restore,
            extents: ExtentSize {
                least,
                most: config.extents.most.max(least).next_multiple_of(unit),
            },
            differences: config.differences,
            members: Members::new(TierId(last), config.differences),
            encoded_sizes: EncodedSizes::default(),
            latest_encoding: None,
            tick: 0,
            commands: Vec::new(),
            failing: BTreeSet::new(),
            settled: Vec::new(),
        })
    }

    /// Returns true if so many bytes come to `to` from the tier above alone. More than that tier can hold are tried from elsewhere.
    pub(crate) fn is_fed(&self, to: TierId, bytes: u64) -> bool {
        let above = to.0.checked_sub(1).and_then(|above| self.tiers.get(above));
        let holds = |above: &Tier| !above.closed && above.space.holds(bytes);
        self.tier(to).config.from_above && above.is_some_and(holds)
    }

    pub(crate) fn last(&self) -> TierId {
        TierId(self.tiers.len() - 1)
    }

    pub(crate) fn tier(&self, tier: TierId) -> &Tier {
        &self.tiers[tier.0]
    }

    pub(crate) fn tier_mut(&mut self, tier: TierId) -> &mut Tier {
        &mut self.tiers[tier.0]
    }

    /// Returns the bytes to set aside on a tier for an extent of `len` bytes, as the tier aligns them.
    pub(crate) fn reserved_on(&self, version: Version, tier: TierId, len: u64) -> u64 {
        let room = self.room_on(version, tier, len);
        self.tier(tier).space.reserved(room)
    }

    /// Returns the record of a version if the version is held.
    pub(crate) fn held(&self, version: Version) -> Option<&Record> {
        self.records.get(&version).filter(|record| record.is_held())
    }

    /// Takes the restores that wait for a version, so that they wait no longer.
    pub(crate) fn take_waiting(&mut self, version: Version) -> Vec<Ticket> {
        let record = self.records.get_mut(&version);
        record.map_or_else(Vec::new, |record| std::mem::take(&mut record.waiting))
    }

    pub(crate) fn position(&self, version: Version) -> Position {
        let record = self.records.get(&version);
        record.map_or(Position::LAST, |record| self.order.position(record.key))
    }

    /// Returns the point of the order of use at which an extent begins.
    pub(crate) fn point(&self, key: Key, (_, byte): ExtentId) -> Point {
        let position = self.order.position(key);
        Point { position, byte }
    }

    pub(crate) fn extent(&self, (version, start): ExtentId) -> Option<&Extent> {
        let record = self.records.get(&version)?;
        Some(&record.extents[record.index_of(start)?])
    }

    pub(crate) fn replica(&self, id: ExtentId, tier: TierId) -> Option<&Replica> {
        self.extent(id)?.on(tier)
    }

    /// Returns the bytes of an extent; 0 if it is not there.
    pub(crate) fn len(&self, id: ExtentId) -> u64 {
        self.extent(id).map_or(0, |extent| extent.len)
    }

    /// Returns true if a version was given up and is still there.
    pub(crate) fn is_discarded(&self, version: Version) -> bool {
        let record = self.records.get(&version);
        record.is_some_and(|record| record.discarded)
    }

    /// Returns true if a restore waits for a version.
    pub(crate) fn is_awaited(&self, version: Version) -> bool {
        let record = self.records.get(&version);
        record.is_some_and(|record| !record.waiting.is_empty())
    }

    /// Returns the extents of a version; none if it is not there.
    pub(crate) fn extents(&self, version: Version) -> &[Extent] {
        let record = self.records.get(&version);
        record.map_or(&[], |record| &record.extents)
    }

    /// Returns the versions whose differences build upon this one's.
    pub(crate) fn dependents(&self, version: Version) -> &[Version] {
        let record = self.records.get(&version);
        record.map_or(&[], |record| &record.dependents)
    }

    /// Changes one extent.
    pub(crate) fn change<R>(
        &mut self,
        (version, start): ExtentId,
        change: impl FnOnce(&mut Extent) -> R,
    ) -> Option<R> {
        let one = |record: &Record| record.index_of(start).map(|at| at..at + 1);
        self.change_extents(version, one, |record, at, _| {
            change(&mut record.extents[at.start])
        })
    }

    /// Changes these of a version's extents, of which there may be more or fewer afterwards, and nothing upon which its place in the order of use
    /// or its form depends.
    pub(crate) fn change_extents<R>(
        &mut self,
        version: Version,
        which: impl FnOnce(&Record) -> Option<Range<usize>>,
        change: impl FnOnce(&mut Record, &mut Range<usize>, &mut [Tier]) -> R,
    ) -> Option<R> {
        let record = self.records.get_mut(&version)?;
        let mut at = which(record)?;
        self.members.before(record, at.clone());
        let result = change(record, &mut at, &mut self.tiers);
        self.members.update(&mut self.tiers, version, record, at);
        Some(result)
    }

    /// Changes a version's record, and its place in the order of use if that follows.
    pub(crate) fn change_record<R>(
        &mut self,
        version: Version,
        change: impl FnOnce(&mut Record) -> R,
    ) -> Option<R> {
        let record = self.records.get_mut(&version)?;
        let (use_before, sizes_before) = (record.use_so_far(), EncodedSizes::of(record));
        let all = 0..record.extents.len();
        self.members.before(record, all.clone());
        let result = change(record);
        if record.use_so_far() != use_before {
            // Entered before left, so that nodes that hold both places stay.
            self.contest.enter(record.use_so_far());
            self.contest.leave(use_before);
        }
        self.encoded_sizes
            .replace(sizes_before, EncodedSizes::of(record));
        let asked = Self::key(&*self.policy, &self.hints, version, record);
        if asked != record.asked {
            let key = self.order.free(asked);
            let weight = Weight::written(record.size);
            // Entered before left, too.
            self.order.enter(key, weight);
            self.order.leave(record.key, weight);
            (record.asked, record.key) = (asked, key);
        }
        self.members.update(&mut self.tiers, version, record, all);
        Some(result)
    }

    /// Gives the version read last its place in the order that is followed, as another is about to be read.
    pub(crate) fn leave_last_read(&mut self, version: Version) {
        let followed = self.contest.followed();
        let last = self.last_read.leave_for(version);
        let moves = |last: &Version| self.records.get(last).is_some_and(|r| r.reuse != followed);
        if let Some(last) = last.filter(moves) {
            self.change_record(last, |record| record.reuse = followed);
        }
    }

    pub(crate) fn key(
        policy: &dyn Policy,
        hints: &Hints,
        version: Version,
        record: &Record,
    ) -> Key {
        Key::new(policy.standing(&Usage {
            version,
            bytes: record.size,
            hinted: hints.next(version),
            written: record.written,
            read: record.read,
            reads: record.reads,
            reuse: record.reuse,
        }))
    }

    // Versions.

    /// Inserts a version without extents.
    pub(crate) fn insert(&mut self, version: Version, size: u64, produced: bool, adopted: bool) {
        self.settle_hint(version, true);
        let mut record = Record {
            size,
            written: self.tick,
            reuse: self.contest.followed(),
            produced,
            adopted,
            ..Record::default()
        };
        record.asked = Self::key(&*self.policy, &self.hints, version, &record);
        record.key = self.order.free(record.asked);
        self.order.enter(record.key, Weight::written(size));
        self.contest.enter(record.use_so_far());
        self.records.insert(version, record);
    }

    /// Removes a version. The caller takes its replicas out of the sets and frees their room, if it has any.
    pub(crate) fn remove(&mut self, version: Version) -> Option<Record> {
        let record = self.records.remove(&version)?;
        self.encoded_sizes
            .replace(EncodedSizes::of(&record), EncodedSizes::default());
        self.order.leave(record.key, Weight::written(record.size));
        self.contest.leave(record.use_so_far());
        for tier in &mut self.tiers {
            if let Some(owed) = &mut tier.owed {
                owed.remove(&(record.written, version));
                tier.unsent.remove(&(record.written, version));
            }
        }
        self.settled.push(version);
        self.settle_hint(version, false);
        Some(record)
    }

    /// Counts the version of a first reading as written from now on, or as unwritten again.
    fn settle_hint(&mut self, version: Version, is_there: bool) {
        let Some(first) = self.hints.next(version) else {
            return;
        };
        self.hints.set_written(first, is_there);
        if self.policy.follows_hints() {
            let change = if is_there { Order::leave } else { Order::enter };
            let key = Key::new(crate::Standing::Known(first));
            change(&mut self.order, key, Weight::UNWRITTEN);
        }
    }

    /// Changes the readings of a version that are to come, and with them its place in the order of use.
    pub(crate) fn change_hints<R>(
        &mut self,
        version: Version,
        change: impl FnOnce(&mut Hints, Version) -> R,
    ) -> R {
        let is_there = self.records.contains_key(&version);
        if !is_there {
            self.settle_hint(version, true);
        }
        let result = change(&mut self.hints, version);
        match is_there {
            true => drop(self.change_record(version, |_| ())),
            false => self.settle_hint(version, false),
        }
        result
    }

    /// Adds a reading of `version` before all that the application named before.
    pub(crate) fn hint_next(&mut self, version: Version) {
        if !self.discarded.contains(version) {
            self.change_hints(version, Hints::push_front);
        }
    }

    /// Removes the readings of `version`.
    pub(crate) fn forget_hints(&mut self, version: Version) {
        if self.hints.next(version).is_some() {
            self.change_hints(version, Hints::forget);
        }
    }
}
