//! A machine for the plan: tiers in which every byte knows its version and its number there, and callers and transfers that end when the
//! test says so.
//!
//! After every event the machine checks the plan's own invariants and these: bytes are read only where they were written, the plan gives
//! out no place in use, and every call is answered.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the machine serves several tests, and not all ask everything"
)]

mod at_once;
mod endings;
mod hands;
mod hints;
mod policies;

use hands::{Byte, Hands};
use std::collections::BTreeSet;
use tierflow_plan::{
    AfterRestore, Coding, Difference, Differences, Event, ExtentSize, Piece, PlanConfig, Refusal,
    Scope, Ticket, TierConfig, TierId, TransferFailure, TransferId, Version, World,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    Checkpoint(Version),
    Restore(Version),
    Drop(Version),
    Wait,
    WaitFor(Version),
    Suspend(Version),
}

/// The end of a copy, a transfer or a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    Write(Ticket, bool),
    Read(Ticket, bool),
    Transfer(TransferId, Option<TransferFailure>),
    Encoding(TransferId),
}

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) tiers: Vec<TierConfig>,
    pub(crate) after: AfterRestore,
    pub(crate) policy: usize,
    pub(crate) extents: ExtentSize,
    pub(crate) differences: Option<Differences>,
}

impl Setup {
    /// Returns a setup with tiers of these sizes in units of one byte, with extents of 2 to 4 bytes.
    pub(crate) fn new(capacities: &[u64]) -> Self {
        let tiers = capacities.iter().map(|&capacity| TierConfig {
            alignment: 1,
            ..TierConfig::new(capacity)
        });
        Self {
            tiers: tiers.collect(),
            after: AfterRestore::Discard,
            policy: 0,
            extents: ExtentSize { least: 2, most: 4 },
            differences: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Machine {
    world: World,
    hands: Hands,
    /// Versions that were hinted since hints were forgotten.
    hinted: BTreeSet<Version>,
    /// Hinted versions that were held at the hint, and not restored since.
    unread: BTreeSet<Version>,
    /// Versions with a replica that was reported as damaged.
    pub(crate) damaged: BTreeSet<Version>,
    pub(crate) checks: bool,
    pub(crate) now: u64,
}

impl Machine {
    pub(crate) fn new(setup: &Setup) -> Self {
        let bytes = setup
            .tiers
            .iter()
            .map(|tier| vec![None; tier.capacity as usize]);
        let hands = Hands {
            bytes: bytes.collect(),
            after: setup.after,
            below: setup.differences.map(|how| how.below),
            limits: setup
                .tiers
                .iter()
                .map(|tier| (tier.capacity, true))
                .collect(),
            ..Hands::default()
        };
        let world = World::new(PlanConfig {
            after_restore: setup.after,
            policy: policies::policy(setup.policy),
            extents: setup.extents,
            differences: setup.differences,
            ..PlanConfig::new(setup.tiers.clone())
        });
        Self {
            world: world.unwrap(),
            hands,
            hinted: BTreeSet::new(),
            unread: BTreeSet::new(),
            damaged: BTreeSet::new(),
            checks: true,
            now: 0,
        }
    }

    pub(crate) fn plan(&self) -> &tierflow_plan::Plan {
        self.world.plan()
    }

    fn tell(&mut self, event: Event) {
        self.now += 1;
        let told = self.world.tell(self.now, event.clone(), &mut self.hands);
        assert_eq!(told, Ok(()), "{event:?}");
        if self.checks
            && let Err(violation) = self.world.plan().check()
        {
            panic!("{violation} after {event:?}");
        }
    }

    /// Reports every other one of these replicas as damaged.
    fn damage(&mut self, version: Version, pieces: &[Piece], coding: &Coding) {
        let bases = match coding {
            Coding::Decode { bases } => bases.as_slice(),
            _ => &[],
        };
        let own = pieces.iter().map(|piece| (version, piece.place.tier));
        let bases = bases.iter().map(|(base, place)| (*base, place.tier));
        for (version, tier) in own.chain(bases).collect::<BTreeSet<_>>() {
            if (version + tier.0 as u64) % 2 == 1 {
                self.damaged.insert(version);
                self.tell(Event::Damaged { version, tier });
            }
        }
    }

    fn call(&mut self, call: Call) -> Ticket {
        let ticket = self.world.ticket();
        self.hands.open.insert(ticket, call);
        ticket
    }

    pub(crate) fn checkpoint(&mut self, version: Version, size: u64, in_place: bool) -> Ticket {
        let ticket = self.call(Call::Checkpoint(version));
        if !self.hands.held.contains_key(&version) {
            self.hands.asked.entry(version).or_insert(size);
            // A number that is free again serves a new version without a history.
            self.unread.remove(&version);
        }
        if in_place {
            self.hands.in_place.insert(ticket);
            self.tell(Event::Produce {
                ticket,
                version,
                size,
            });
        } else {
            self.tell(Event::Checkpoint {
                ticket,
                version,
                size,
            });
        }
        ticket
    }

    pub(crate) fn restore(&mut self, version: Version, in_place: bool) -> Ticket {
        let ticket = self.call(Call::Restore(version));
        self.unread.remove(&version);
        if in_place {
            self.hands.in_place.insert(ticket);
            self.tell(Event::Consume { ticket, version });
        } else {
            self.tell(Event::Restore { ticket, version });
        }
        ticket
    }

    pub(crate) fn drop_version(&mut self, version: Version) {
        let ticket = self.call(Call::Drop(version));
        self.tell(Event::Drop { ticket, version });
        assert!(
            !self.hands.open.contains_key(&ticket),
            "a drop is answered at once"
        );
    }

    /// Prunes versions. Versions that a call or a hint names stay.
    pub(crate) fn prune(&mut self, versions: Vec<Version>) {
        let called = self.hands.open.values().filter_map(|call| match *call {
            Call::Restore(version) | Call::Suspend(version) => Some(version),
            _ => None,
        });
        let asked: BTreeSet<Version> = called.chain(self.unread.iter().copied()).collect();
        let held = self.held();
        // Waits do not wait for pruned versions.
        let awaited = self.hands.awaited.values_mut();
        awaited.for_each(|all| all.retain(|version| !versions.contains(version)));
        self.tell(Event::Prune {
            versions: versions.clone(),
        });
        for version in versions
            .into_iter()
            .filter(|version| held.contains(version))
        {
            let is_there = self.plan().size_of(version).is_some();
            if asked.contains(&version) {
                assert!(is_there, "{version} is asked for");
            } else if !self.hinted.contains(&version) {
                assert!(!is_there, "nothing asks for {version}");
            }
            if !is_there {
                self.hands.forget(version);
            }
        }
    }

    pub(crate) fn wait(&mut self) -> Ticket {
        let ticket = self.call(Call::Wait);
        self.hands.awaited.insert(ticket, self.held());
        self.tell(Event::Wait {
            ticket,
            version: None,
        });
        ticket
    }

    pub(crate) fn wait_for(&mut self, version: Version) -> Ticket {
        let ticket = self.call(Call::WaitFor(version));
        self.tell(Event::Wait {
            ticket,
            version: Some(version),
        });
        ticket
    }

    pub(crate) fn suspend(&mut self, version: Version, scope: Scope) -> Ticket {
        let ticket = self.call(Call::Suspend(version));
        self.tell(Event::Suspend {
            ticket,
            version,
            scope,
        });
        ticket
    }

    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        self.tell(Event::Abandon { ticket });
        let is_granted =
            self.hands.writes.contains_key(&ticket) || self.hands.reads.contains_key(&ticket);
        if !is_granted
            && let Some(Call::Checkpoint(version)) = self.hands.open.remove(&ticket)
            && !self.hands.held.contains_key(&version)
        {
            self.hands.asked.remove(&version);
        }
    }

    pub(crate) fn open(&self) -> Vec<(Ticket, Call)> {
        self.hands.open.iter().map(|(&t, &c)| (t, c)).collect()
    }

    pub(crate) fn prefetch_start(&mut self) {
        self.tell(Event::PrefetchStart);
    }

    pub(crate) fn limit(&mut self, tier: usize, bytes: u64) {
        let bytes = bytes.min(self.hands.bytes[tier].len() as u64);
        self.hands.limits[tier] = (bytes, false);
        self.tell(Event::Limit {
            tier: TierId(tier),
            bytes,
        });
    }

    /// Adds a version of an earlier run on these tiers.
    pub(crate) fn adopt(
        &mut self,
        version: Version,
        size: u64,
        tiers: &[usize],
        difference: Option<Difference>,
    ) {
        for &tier in tiers {
            let tier = TierId(tier);
            self.tell(Event::Adopt {
                version,
                size,
                tier,
                difference,
            });
            let pieces = self.world.plan().pieces(version, tier);
            if pieces.is_empty() {
                continue;
            }
            self.hands.held.insert(version, size);
            self.hands.adopted.insert(version);
            if let Some(difference) = difference {
                self.hands.bases.insert(version, difference.base);
            }
            for piece in pieces {
                for (at, byte) in self.hands.span(&piece.place).iter_mut().enumerate() {
                    *byte = Some(match difference {
                        Some(_) => Byte::Difference(version),
                        None => Byte::Of(version, piece.start + at as u64),
                    });
                }
            }
        }
    }

    pub(crate) fn held(&self) -> Vec<Version> {
        self.hands.held.keys().copied().collect()
    }

    pub(crate) fn is_used(&self, version: Version) -> bool {
        self.hands.gone.contains(&version)
            || self.hands.asked.contains_key(&version)
            || self.hands.held.contains_key(&version)
    }

    pub(crate) fn refusals(&self) -> &[(Call, Refusal)] {
        &self.hands.refused
    }

    /// Returns the tier to which a transfer goes.
    pub(crate) fn goes_to(&self, id: TransferId) -> usize {
        self.hands.transfers[&id].to[0].place.tier.0
    }

    /// Returns the requested removals: a version and a tier each.
    pub(crate) fn removed(&self) -> &[(Version, usize)] {
        &self.hands.removed
    }

    pub(crate) fn is_done(&self, ticket: Ticket) -> bool {
        self.hands.done.contains(&ticket)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.hands.limits.iter().all(|&(_, released)| released)
    }

    pub(crate) fn is_granted(&self, ticket: Ticket) -> bool {
        self.hands.writes.contains_key(&ticket) || self.hands.reads.contains_key(&ticket)
    }

    /// Returns the tiers that a granted call copies to or from.
    pub(crate) fn tiers_of(&self, ticket: Ticket) -> BTreeSet<usize> {
        let writes = self.hands.writes.get(&ticket).map(|(_, pieces)| pieces);
        let reads = self.hands.reads.get(&ticket).map(|(_, pieces, _)| pieces);
        let pieces = writes.or(reads).into_iter().flatten();
        pieces.map(|piece| piece.place.tier.0).collect()
    }

    /// Returns the codings of all transfers so far: from a tier, to a tier, and the coding's name.
    pub(crate) fn codings(&self) -> &BTreeSet<(usize, usize, &'static str)> {
        &self.hands.codings
    }

    /// Returns the tiers on which all of a version can be read.
    pub(crate) fn tiers_with(&self, version: Version) -> Vec<usize> {
        let size = self.hands.held.get(&version).copied().unwrap_or(0);
        let whole = |tier: &usize| {
            let pieces = self.world.plan().pieces(version, TierId(*tier));
            pieces.iter().map(|piece| piece.place.size).sum::<u64>() == size
        };
        (0..self.hands.bytes.len()).filter(whole).collect()
    }

    /// Ends one copy or transfer well. Returns false if only slots are under way.
    pub(crate) fn end_one(&mut self, index: usize) -> bool {
        let endings = self.endings().into_iter();
        let well = |ending: &Ending| {
            matches!(
                ending,
                Ending::Write(_, true)
                    | Ending::Read(_, true)
                    | Ending::Transfer(_, None)
                    | Ending::Encoding(_)
            )
        };
        let endings: Vec<_> = endings.filter(well).collect();
        if endings.is_empty() {
            return false;
        }
        self.end(endings[index % endings.len()]);
        true
    }

    /// Ends all copies, transfers and slots well. Asserts that all calls are answered then.
    pub(crate) fn settle(&mut self) {
        let mut steps = 0;
        while self.end_one(steps * 7) {
            steps += 1;
            assert!(steps < 1_000, "it never settles");
        }
        assert!(
            self.hands.open.is_empty(),
            "unanswered: {:?}",
            self.hands.open
        );
    }

    /// Asserts that every held version can be read back, byte for byte.
    pub(crate) fn read_back(&mut self) {
        self.settle();
        for version in self.held() {
            self.restore(version, false);
            self.settle();
        }
        assert_eq!(self.plan().versions().count(), self.held().len());
        if self.hands.after == AfterRestore::Discard {
            assert!(self.held().is_empty());
            let used: u64 = self
                .plan()
                .statistics()
                .tiers
                .iter()
                .map(|t| t.used_bytes)
                .sum();
            assert_eq!(used, 0);
        }
    }

    pub(crate) fn fingerprint(&self, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        self.plan().fingerprint(hasher);
        let hands = &self.hands;
        (
            &hands.bytes,
            &hands.held,
            &hands.gone,
            &hands.limits,
            &hands.bases,
            hands.newest,
        )
            .hash(hasher);
        let mut calls: Vec<_> = hands.open.values().collect();
        calls.sort_unstable();
        calls.hash(hasher);
        let cancelled = hands
            .transfers
            .iter()
            .filter(|(id, _)| hands.cancelled.contains(*id));
        let mut cancelled: Vec<_> = cancelled
            .map(|(_, t)| (t.version, t.to.len(), t.to[0].place.offset))
            .collect();
        cancelled.sort_unstable();
        cancelled.hash(hasher);
        let made = hands.transfers.iter();
        let made = made.filter(|(id, _)| hands.made.contains(*id));
        let mut made: Vec<_> = made.map(|(_, t)| t.version).collect();
        made.sort_unstable();
        made.hash(hasher);
    }
}
