//! A world for the plan: tiers whose bytes remember whose they are, callers and transfers that end when told to.
//!
//! After every event the world checks the plan's own invariants and its own: bytes are read only where they were
//! written, and nobody waits for ever.

#![allow(
    dead_code,
    unused_imports,
    reason = "the world serves several tests, and not all ask everything"
)]

mod differences;
mod endings;

pub(crate) use endings::Ending;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tierflow_engine::Flush;
use tierflow_engine::plan::{
    AfterRestore, Coding, Command, Difference, Differences, Event, Place, Plan, PlanConfig,
    Refusal, Ticket, TierConfig, TierId, TransferId,
};
use tierflow_evict::{Cost, Fifo, Lru, Policy, Score};

/// What a call of the world is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Call {
    Checkpoint(u64),
    Restore(u64),
    Drop(u64),
    Wait,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    /// Whether the plan's invariants are looked at after every event.
    pub(crate) checks: bool,
    /// By tier and unit: whose byte lies there.
    bytes: Vec<Vec<Option<u64>>>,
    after: AfterRestore,
    open: BTreeMap<Ticket, Call>,
    /// Of the open calls, those that hold a slot in place.
    lent: BTreeSet<Ticket>,
    writing: VecDeque<(Ticket, u64, Place)>,
    reading: VecDeque<(Ticket, u64, Place)>,
    transfers: VecDeque<(TransferId, u64, Place, Place)>,
    /// How the bytes of these reads and transfers are coded, if they are.
    decoded: BTreeMap<Ticket, Vec<(u64, Place)>>,
    codings: BTreeMap<TransferId, Coding>,
    /// What each difference builds upon, and the last one that was made, if the next may build upon it.
    bases: BTreeMap<u64, Option<u64>>,
    newest: Option<u64>,
    cancelled: BTreeSet<TransferId>,
    /// By tier: bytes that may be used, and whether those beyond were said to be free.
    limits: Vec<(u64, bool)>,
    /// Accepted and neither discarded nor dropped: version to size.
    pub(crate) held: BTreeMap<u64, u64>,
    pub(crate) gone: BTreeSet<u64>,
    /// Held, and written by an earlier run.
    adopted: BTreeSet<u64>,
    pub(crate) refused: u64,
    transfers_started: u64,
    next_ticket: u64,
    pub(crate) next_version: u64,
}

/// How many policies there are.
pub(crate) const POLICIES: usize = 4;

pub(crate) fn policy(index: usize) -> Box<dyn Policy + Send> {
    match index % POLICIES {
        0 => Box::new(Score),
        1 => Box::new(Fifo::default()),
        2 => Box::new(Lru::default()),
        _ => Box::<Cost>::default(),
    }
}

impl World {
    pub(crate) fn new(
        capacities: &[u64],
        depth: usize,
        policies: usize,
        percent: u8,
        after: AfterRestore,
    ) -> Self {
        Self::of(capacities, depth, policies, percent, after, None)
    }

    /// A world whose plan may store differences. Tiers flush what is foreseen not to fit with 0 `percent`, at once with less than
    /// 10, and else above that share.
    pub(crate) fn of(
        capacities: &[u64],
        depth: usize,
        policies: usize,
        percent: u8,
        after: AfterRestore,
        differences: Option<Differences>,
    ) -> Self {
        let tiers = capacities
            .iter()
            .map(|&capacity| TierConfig {
                capacity,
                alignment: 1,
                policy: policy(policies),
                flush_bandwidth: 1_000,
                flush: match percent {
                    0 => Flush::Foreseen,
                    1..10 => Flush::Eager,
                    _ => Flush::Above { percent },
                },
                flush_depth: depth,
                prefetch_depth: depth,
            })
            .collect();
        Self {
            plan: Plan::new(PlanConfig {
                tiers,
                after_restore: after,
                differences,
            })
            .unwrap(),
            decoded: BTreeMap::new(),
            codings: BTreeMap::new(),
            bases: BTreeMap::new(),
            newest: None,
            checks: true,
            bytes: capacities
                .iter()
                .map(|&capacity| vec![None; capacity as usize])
                .collect(),
            after,
            open: BTreeMap::new(),
            lent: BTreeSet::new(),
            writing: VecDeque::new(),
            reading: VecDeque::new(),
            transfers: VecDeque::new(),
            cancelled: BTreeSet::new(),
            limits: capacities
                .iter()
                .map(|&capacity| (capacity, true))
                .collect(),
            held: BTreeMap::new(),
            gone: BTreeSet::new(),
            adopted: BTreeSet::new(),
            refused: 0,
            transfers_started: 0,
            next_ticket: 0,
            next_version: 0,
        }
    }

    fn span(&mut self, place: &Place) -> &mut [Option<u64>] {
        let start = place.offset as usize;
        &mut self.bytes[place.tier.0][start..start + place.size as usize]
    }

    fn tell(&mut self, event: Event) {
        let mut commands = Vec::new();
        self.plan.handle(event.clone(), &mut commands);
        if self.checks
            && let Err(violation) = self.plan.check()
        {
            panic!("{violation} after {event:?}, which said {commands:?}");
        }
        for command in commands {
            match command {
                Command::Write {
                    ticket,
                    version,
                    place,
                } => {
                    assert_eq!(self.open[&ticket], Call::Checkpoint(version));
                    assert!(place.tier == TierId(0) || !self.lent.contains(&ticket));
                    self.assert_unused(&place);
                    self.assert_usable(&place);
                    self.writing.push_back((ticket, version, place));
                }
                Command::Read {
                    ticket,
                    version,
                    place,
                    coding,
                } => {
                    assert_eq!(self.open[&ticket], Call::Restore(version));
                    if let Coding::Decode { bases } = coding {
                        self.decoded.insert(ticket, bases);
                    }
                    self.reading.push_back((ticket, version, place));
                }
                Command::Transfer {
                    id,
                    version,
                    from,
                    to,
                    coding,
                } => {
                    assert_ne!(from.tier, to.tier);
                    let stays = matches!(coding, Coding::Plain | Coding::Stored { .. });
                    assert!(!stays || from.size == to.size);
                    assert!(self.is_needed(version), "I/O for a version that is gone");
                    if let Coding::Encode { base } = coding {
                        assert_eq!(
                            (from.tier, base.is_some()),
                            (TierId(0), base.is_some() && base == self.newest)
                        );
                    }
                    self.codings.insert(id, coding);
                    self.assert_unused(&to);
                    self.assert_usable(&to);
                    self.transfers_started += 1;
                    self.transfers.push_back((id, version, from, to));
                }
                Command::Cancel { id } => assert!(self.cancelled.insert(id)),
                Command::Released { tier, bytes } => {
                    assert_eq!(self.limits[tier.0], (bytes, false));
                    self.limits[tier.0].1 = true;
                    // Whoever is given the memory uses it.
                    self.bytes[tier.0][bytes as usize..].fill(None);
                }
                Command::Drop { version, place } => {
                    self.assert_unused(&place);
                    let span = self.span(&place).iter_mut();
                    span.filter(|byte| **byte == Some(version))
                        .for_each(|byte| *byte = None);
                }
                Command::Finish { ticket, result } => self.finished(ticket, result),
            }
        }
    }

    /// Nothing new goes beyond a limit.
    fn assert_usable(&self, place: &Place) {
        assert!(place.offset + place.reserved <= self.limits[place.tier.0].0);
    }

    /// Invariant 2 seen from outside: nobody reads or writes these bytes.
    fn assert_unused(&self, place: &Place) {
        let overlaps = |other: &Place| {
            other.tier == place.tier
                && other.offset < place.offset + place.size
                && place.offset < other.offset + other.size
        };
        let callers = self.writing.iter().chain(&self.reading).map(|(_, _, p)| p);
        let transfers = self
            .transfers
            .iter()
            .flat_map(|(_, _, from, to)| [from, to]);
        assert!(
            !callers
                .chain(transfers)
                .chain(self.bases_read())
                .any(overlaps),
            "{place:?} is in use and was handed out"
        );
    }

    fn finished(&mut self, ticket: Ticket, result: Result<(), Refusal>) {
        let call = self
            .open
            .remove(&ticket)
            .expect("an answer to an open call");
        match (call, result) {
            (Call::Checkpoint(version), Err(refusal)) => {
                assert!(!self.held.contains_key(&version) || refusal == Refusal::VersionUsed);
                self.refused += 1;
            }
            (Call::Restore(version), Err(refusal)) => {
                assert!(
                    !self.held.contains_key(&version),
                    "a held version was refused: {refusal:?}"
                );
            }
            (Call::Drop(version), Ok(())) => {
                self.forget(version);
            }
            (Call::Drop(_) | Call::Wait, _) => {}
            (call, result) => panic!("{call:?} was answered {result:?} without a copy"),
        }
    }

    /// The number of what an earlier run wrote is free again.
    fn forget(&mut self, version: u64) {
        self.held.remove(&version);
        if !self.adopted.remove(&version) {
            self.gone.insert(version);
        }
    }

    /// The next version is one of an earlier run that lies on these tiers.
    pub(crate) fn adopt(&mut self, size: u64, tiers: &[usize]) {
        self.adopt_as(size, tiers, None);
    }

    /// [`Self::adopt`], of one that lies there as a difference, if it is said as what.
    pub(crate) fn adopt_as(&mut self, size: u64, tiers: &[usize], difference: Option<Difference>) {
        let version = self.next_version;
        if let Some(Difference { base, .. }) = difference {
            self.bases.insert(version, base);
        }
        self.next_version += 1;
        self.adopted.insert(version);
        self.held.insert(version, size);
        for tier in tiers.iter().copied().map(TierId) {
            self.tell(Event::Adopt {
                version,
                size,
                tier,
                difference,
            });
            let place = self.plan.place(version, tier).expect("there is room");
            self.span(&place).fill(Some(version));
        }
    }

    fn ticket(&mut self, call: Call) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.open.insert(ticket, call);
        ticket
    }

    pub(crate) fn checkpoint(&mut self, size: u64) {
        let version = self.next_version;
        self.next_version += 1;
        self.checkpoint_as(version, size);
    }

    pub(crate) fn checkpoint_as(&mut self, version: u64, size: u64) {
        let ticket = self.ticket(Call::Checkpoint(version));
        self.tell(Event::Checkpoint {
            ticket,
            version,
            size,
        });
    }

    pub(crate) fn restore(&mut self, version: u64) {
        let ticket = self.ticket(Call::Restore(version));
        self.tell(Event::Restore { ticket, version });
    }

    /// As [`Self::checkpoint`], in place.
    pub(crate) fn produce(&mut self, size: u64) {
        let version = self.next_version;
        self.next_version += 1;
        let ticket = self.ticket(Call::Checkpoint(version));
        self.lent.insert(ticket);
        self.tell(Event::Produce {
            ticket,
            version,
            size,
        });
    }

    /// As [`Self::restore`], in place.
    pub(crate) fn consume(&mut self, version: u64) {
        let ticket = self.ticket(Call::Restore(version));
        self.lent.insert(ticket);
        self.tell(Event::Consume { ticket, version });
    }

    /// Slots that are lent: nobody may wait for them to be given back.
    pub(crate) fn slots(&self) -> usize {
        let granted = self.writing.iter().chain(&self.reading);
        granted.filter(|(t, ..)| self.lent.contains(t)).count()
    }

    pub(crate) fn hint(&mut self, versions: Vec<u64>) {
        self.tell(Event::Hint { versions });
    }

    pub(crate) fn prefetch_start(&mut self) {
        self.tell(Event::PrefetchStart);
    }

    pub(crate) fn wait(&mut self) {
        let ticket = self.ticket(Call::Wait);
        self.tell(Event::Wait { ticket });
    }

    pub(crate) fn limit(&mut self, tier: TierId, bytes: u64) {
        self.limits[tier.0] = (bytes.min(self.bytes[tier.0].len() as u64), false);
        self.tell(Event::Limit { tier, bytes });
    }

    /// Leaves a tier `quarters` of its capacity.
    pub(crate) fn limit_to(&mut self, tier: usize, quarters: u64) {
        let tier = tier % self.bytes.len();
        let capacity = self.bytes[tier].len() as u64;
        self.limit(TierId(tier), capacity * quarters / 4);
    }

    /// Whether all that lies beyond the limits was said to be free.
    pub(crate) fn is_released(&self) -> bool {
        self.limits.iter().all(|&(_, released)| released)
    }

    pub(crate) fn drop_version(&mut self, version: u64) {
        let ticket = self.ticket(Call::Drop(version));
        self.tell(Event::Drop { ticket, version });
        assert!(
            !self.open.contains_key(&ticket),
            "a drop is answered at once"
        );
    }

    /// Lets everything under way end well. All calls must be answered then.
    pub(crate) fn settle(&mut self) {
        let mut steps = 0;
        while self.end_one(steps * 7, true) {
            steps += 1;
            assert!(steps < 100_000, "it never settles");
        }
        assert!(self.open.is_empty(), "unanswered: {:?}", self.open);
    }

    /// Everything held can be read back, byte for byte, then is gone or not as asked.
    pub(crate) fn read_back(&mut self) {
        self.settle();
        let held: Vec<u64> = self.held.keys().copied().collect();
        for version in held {
            self.restore(version);
            self.settle();
        }
        let left = self.plan.versions().count();
        match self.after {
            AfterRestore::Keep => assert_eq!(left, self.held.len()),
            AfterRestore::Discard => assert_eq!(left, 0),
        }
        let leftover = self
            .plan
            .statistics()
            .tiers
            .iter()
            .map(|t| t.used_bytes)
            .sum::<u64>();
        assert!(
            self.after == AfterRestore::Keep || leftover == 0,
            "{leftover} bytes leaked"
        );
    }

    pub(crate) fn transfers_started(&self) -> u64 {
        self.transfers_started
    }

    pub(crate) fn dropped_prefetches(&self) -> u64 {
        let tiers = self.plan.statistics().tiers;
        tiers.iter().map(|tier| tier.dropped_prefetches).sum()
    }

    pub(crate) fn restores_from(&self, tier: TierId) -> u64 {
        self.plan.statistics().tiers[tier.0].restores
    }
}
