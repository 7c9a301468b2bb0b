//! The invariants between two events, and the equality of derived data with its sources.

use super::Plan;
use crate::ledger::{EncodedSizes, Ledger};
use crate::order::{ExtentId, Point};
use crate::record::{Record, Replica, StoredForm};
use crate::traffic::{Depths, Purpose};
use crate::{TierId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// A broken invariant: a defect of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Bytes of a version that the application may ask for are nowhere.
    #[error("version {0} was lost")]
    Lost(Version),
    /// A replica is neither needed nor used, and is still there.
    #[error("version {0}, which was given up, holds room on tier {1} that it does not use")]
    NotFreed(Version, TierId),
    /// Extents do not make up their version, or a replica lies elsewhere than its tier has it.
    #[error("version {0} does not lie where it is said to: {1}")]
    Misplaced(Version, &'static str),
    /// A version that is read, or that others build upon, cannot be read.
    #[error("version {0} is used and cannot be read")]
    Unreadable(Version),
    /// A call waits, and nothing is under way that could change that.
    #[error("a call waits, and nothing is under way that could end its wait")]
    Deadlock,
    /// Derived data differs from its source.
    #[error("{0} is not what it is derived from")]
    Outdated(&'static str),
}

type Checked = Result<(), Violation>;

fn ensure(holds: bool, violation: Violation) -> Checked {
    if holds { Ok(()) } else { Err(violation) }
}

fn same<T: PartialEq>(kept: &T, derived: &T, what: &'static str) -> Checked {
    ensure(kept == derived, Violation::Outdated(what))
}

impl Plan {
    /// Checks all invariants that hold between two events. For tests, simulators and fuzzers: walks everything.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn check(&self) -> Result<(), Violation> {
        let ledger = self.ledger();
        for (&version, record) in &ledger.records {
            self.check_record(version, record)?;
        }
        self.check_readers()?;
        self.check_dependents()?;
        ledger.check_sets()?;
        ledger.check_owed()?;
        ledger.check_order()?;
        ledger.check_spaces()?;
        // A restore may wait for the application itself, which is producing its version.
        let is_slot = |record: &Record| record.produced && !record.is_taken_in;
        let mut records = ledger.records.values();
        let waits = self.calls.is_any_blocked()
            || self.calls.is_any_waiting()
            || records.any(|record| !record.waiting.is_empty() && !is_slot(record));
        ensure(!waits || !self.is_idle(), Violation::Deadlock)
    }

    fn check_record(&self, version: Version, record: &Record) -> Checked {
        let placed = |holds: bool, why| ensure(holds, Violation::Misplaced(version, why));
        let flights = &self.traffic.flights;
        let mut end = 0;
        for extent in &record.extents {
            let follows = extent.start == end && extent.len > 0;
            placed(follows, "its extents do not follow one another")?;
            end = extent.end();
            let ascend = extent.replicas.is_sorted_by(|a, b| a.tier < b.tier);
            placed(ascend, "replicas are not in the order of tiers")?;
            let may_be_read = record.is_taken_in && record.is_held();
            let is_lost = may_be_read && extent.fastest().is_none();
            ensure(!is_lost, Violation::Lost(version))?;
            for replica in &extent.replicas {
                let lies_encoded = self.ledger().lies_encoded(replica.tier);
                let is_used = !replica.is_idle() || record.is_needed(lies_encoded);
                ensure(is_used, Violation::NotFreed(version, replica.tier))?;
                let is_full = replica.size == record.size_on(lies_encoded, extent.len);
                let fits = is_full || self.is_encoded(replica);
                placed(fits, "a replica has another size than its extent")?;
                let comes = replica.arriving.is_none_or(|id| flights.contains_key(&id));
                placed(comes, "a replica arrives by no transfer")?;
            }
        }
        let is_granted = record.is_taken_in || !record.extents.is_empty();
        let is_whole = !is_granted || end == record.size;
        placed(is_whole, "its extents are not all of it")?;
        let is_left = record.discarded && record.is_gone();
        ensure(!is_left, Violation::NotFreed(version, TierId::FASTEST))
    }

    /// Returns true if a transfer brings a replica that it encodes.
    fn is_encoded(&self, replica: &Replica) -> bool {
        let flight = replica
            .arriving
            .and_then(|id| self.traffic.flights.get(&id));
        flight.is_some_and(|flight| flight.encodes.is_some())
    }

    /// Checks the numbers of those who read replicas, and of transfers, by tier.
    fn check_readers(&self) -> Checked {
        let mut readers: BTreeMap<(ExtentId, TierId), u32> = BTreeMap::new();
        let mut callers: BTreeMap<Version, u32> = BTreeMap::new();
        let mut copied = vec![0; self.ledger().tiers.len()];
        let mut depths = vec![Depths::default(); copied.len()];
        let flights = self.traffic.flights.values();
        let flying = flights
            .clone()
            .map(|flight| (flight.version, flight.parts.as_slice(), &flight.bases));
        let calls = self.calls.reading.values();
        let calls = calls.map(|call| (call.version, call.parts.as_slice(), &call.bases));
        for (version, parts, bases) in flying.chain(calls) {
            let parts = parts.iter().map(|&(start, tier)| ((version, start), tier));
            let bases = bases.iter().map(|&(base, tier)| ((base, 0), tier));
            parts
                .chain(bases)
                .for_each(|read| *readers.entry(read).or_default() += 1);
        }
        for flight in flights {
            let depth = match flight.purpose {
                Purpose::WriteBack => &mut depths[flight.to.0].entering,
                Purpose::Prefetch => &mut depths[flight.from().0].rising,
            };
            depth.transfers += 1;
            depth.bytes += flight.bytes;
        }
        for (ticket, call) in &self.calls.reading {
            *callers.entry(call.version).or_default() += 1;
            if !self.calls.in_place.contains(ticket) {
                call.parts.iter().for_each(|part| copied[part.1.0] += 1);
            }
        }
        let (mut kept_readers, mut kept_callers) = (BTreeMap::new(), BTreeMap::new());
        for (&version, record) in &self.ledger().records {
            kept_callers.insert(version, record.readers);
            for extent in &record.extents {
                for replica in extent.replicas.iter().filter(|r| r.readers > 0) {
                    ensure(replica.is_readable(), Violation::Unreadable(version))?;
                    let key = ((version, extent.start), replica.tier);
                    kept_readers.insert(key, replica.readers);
                }
            }
        }
        kept_callers.retain(|_, readers| *readers > 0);
        let tiers = self.ledger().tiers.iter();
        let kept_copied: Vec<_> = tiers.map(|tier| tier.callers).collect();
        same(
            &kept_readers,
            &readers,
            "the number of readers of a replica",
        )?;
        same(&kept_callers, &callers, "the number of callers that read")?;
        same(&kept_copied, &copied, "the extents that callers copy")?;
        same(&self.traffic.depths, &depths, "the transfers under way")
    }

    /// Checks that every base can be read, that its dependents are noted, and the bytes of all.
    fn check_dependents(&self) -> Checked {
        let records = &self.ledger().records;
        let mut dependents: BTreeMap<Version, Vec<Version>> = BTreeMap::new();
        let mut kept = BTreeMap::new();
        let mut encoded_sizes = EncodedSizes::default();
        for (&version, record) in records {
            encoded_sizes.replace(EncodedSizes::default(), EncodedSizes::of(record));
            if let Some(base) = record.form.and_then(StoredForm::base) {
                dependents.entry(base).or_default().push(version);
            }
            if record.dependents.is_empty() {
                continue;
            }
            kept.insert(version, record.dependents.clone());
            let mut replicas = record.extents.iter().flat_map(|extent| &extent.replicas);
            let can_be_read = match record.form {
                Some(StoredForm::Difference(_)) => {
                    replicas.any(|r| self.ledger().lies_encoded(r.tier) && r.is_readable())
                }
                Some(StoredForm::Coming(_)) => replicas.any(|replica| self.is_encoded(replica)),
                Some(StoredForm::Whole) | None => false,
            };
            ensure(can_be_read, Violation::Unreadable(version))?;
        }
        let lists = kept.values_mut().chain(dependents.values_mut());
        lists.for_each(|list| list.sort_unstable());
        same(&kept, &dependents, "the versions that build upon others")?;
        let kept = &self.ledger().encoded_sizes;
        same(kept, &encoded_sizes, "how much smaller differences are")
    }
}

impl Ledger {
    fn check_sets(&self) -> Checked {
        let (mut derived, mut members) = (self.tiers.clone(), self.members.clone());
        derived
            .iter_mut()
            .for_each(|tier| tier.sets = Default::default());
        for (&version, record) in &self.records {
            let all = 0..record.extents.len();
            members.before(record, 0..0);
            members.update(&mut derived, version, record, all);
        }
        let mut both = self.tiers.iter().zip(derived);
        let is_same = both.all(|(kept, derived)| kept.sets == derived.sets);
        ensure(is_same, Violation::Outdated("a set of replicas"))
    }

    fn check_owed(&self) -> Checked {
        for (at, tier) in self.tiers.iter().enumerate() {
            let Some(kept) = &tier.owed else { continue };
            let at = TierId(at);
            let lies_encoded = self.lies_encoded(at);
            let is_there = |version: Version| {
                let record = |version| self.records.get(&version);
                let has_reached = |version| record(version).is_some_and(|r| r.has_reached(at));
                match at == self.last() {
                    true => self.settled_with(version).all(has_reached),
                    false => has_reached(version),
                }
            };
            let owed = self.records.iter().filter(|&(&version, record)| {
                record.is_taken_in && record.is_needed(lies_encoded) && !is_there(version)
            });
            let owed = owed.map(|(&version, record)| (record.written, version));
            same(kept, &owed.collect(), "what a tier is owed")?;
            let is_on_its_way = |version| {
                let mut extents = self.extents(version).iter();
                extents.all(|extent| extent.has(|replica| replica.tier >= at))
            };
            let is_noted = |entry| tier.unsent.contains(entry) || is_on_its_way(entry.1);
            let are_noted = kept.iter().all(is_noted);
            ensure(are_noted, Violation::Outdated("what is sent to a tier"))?;
        }
        Ok(())
    }

    fn check_order(&self) -> Checked {
        let key = |version, record| Self::key(&*self.policy, &self.hints, version, record);
        let mut records = self.records.iter();
        let is_current = records.all(|(&version, record)| key(version, record) == record.asked);
        ensure(is_current, Violation::Outdated("where a version stands"))?;
        let hinted = self.hints.last_before(u64::MAX);
        let unwritten = hinted.filter(|version| !self.records.contains_key(version));
        let unwritten = unwritten.collect::<BTreeSet<_>>().len() as u64;
        let kept = self.hints.unwritten();
        same(&kept, &unwritten, "the number of versions to be written")?;
        let bytes = self.records.values().map(|record| record.size).sum();
        same(&self.order.total().bytes, &bytes, "the bytes of the order")?;
        if self.tiers.len() == 1 {
            return Ok(());
        }
        let in_order = |record: &Record| (self.order.position(record.key), record.size);
        let mut list: Vec<_> = self.records.values().map(in_order).collect();
        list.sort_unstable();
        let mut sum = 0;
        for (position, size) in list {
            let begin = Point { position, byte: 0 };
            let found = self.order.boundary(sum, 0);
            same(&found, &begin, "a sum along the order of use")?;
            sum += size;
        }
        Ok(())
    }

    fn check_spaces(&self) -> Checked {
        let mut runs = vec![Vec::new(); self.tiers.len()];
        for (&version, record) in &self.records {
            for extent in &record.extents {
                for replica in &extent.replicas {
                    let reserved = self.tier(replica.tier).space.reserved(replica.size);
                    let run = replica.offset..replica.offset + reserved;
                    runs[replica.tier.0].push((run, (version, extent.start)));
                }
            }
        }
        for (tier, runs) in self.tiers.iter().zip(runs) {
            let derived = tier.space.with_runs(runs);
            same(&tier.space, &derived, "the bytes set aside on a tier")?;
            let is_vacated = tier.space.beyond_limit().next().is_none();
            let is_right = tier.vacating || is_vacated;
            ensure(is_right, Violation::Outdated("the limit of a tier"))?;
        }
        Ok(())
    }
}
