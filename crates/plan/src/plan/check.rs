//! The invariants between two events, and the equality of derived data with its sources.

use super::Plan;
use crate::ledger::{Base, EncodedSizes, Ledger};
use crate::order::{ExtentId, Key};
use crate::record::{Record, Replica, StoredForm};
use crate::{TierId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// A broken invariant: a defect of the plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Bytes of a version that the application may ask for are nowhere.
    #[error("version {0} was lost")]
    Lost(Version),
    /// A replica is neither needed nor used, and is still there.
    #[error("version {0}, which was given up, holds room on tier {1} that it does not use")]
    NotFreed(Version, TierId),
    /// Extents do not make up their version, or a replica lies elsewhere than its tier has it.
    #[error("version {0} does not lie where it is said to: {1}")]
    Misplaced(Version, String),
    /// The number of readers of a replica is wrong: tier, readers counted, readers found.
    #[error("a replica of version {0} on tier {1} has {2} readers, not {3}")]
    Readers(Version, TierId, u32, u32),
    /// A version with dependents cannot be read, or has more or fewer dependents than counted.
    #[error("version {0} is built upon by {1} others, not {2}, or cannot be read")]
    Dependents(Version, u32, u32),
    /// A call waits, and nothing is under way that could change that.
    #[error("a call waits, and nothing is under way that could end its wait")]
    Deadlock,
    /// Derived data differs from its source.
    #[error("{0} is not what it is derived from")]
    Outdated(&'static str),
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
        ledger.check_order()?;
        ledger.check_spaces()?;
        self.check_counters()?;
        // A restore may wait for the application itself, which is producing its version.
        let is_slot = |record: &Record| record.produced && !record.is_taken_in;
        let mut records = ledger.records.values();
        let waits = self.calls.is_any_blocked()
            || self.calls.is_any_waiting()
            || records.any(|record| !record.waiting.is_empty() && !is_slot(record));
        match waits && self.is_idle() {
            true => Err(Violation::Deadlock),
            false => Ok(()),
        }
    }

    fn check_record(&self, version: Version, record: &Record) -> Result<(), Violation> {
        let misplaced = |why: &str| Err(Violation::Misplaced(version, why.to_owned()));
        let mut end = 0;
        for extent in &record.extents {
            if extent.start != end || extent.len == 0 {
                return misplaced("its extents do not follow one another");
            }
            end = extent.end();
            if !extent.replicas.is_sorted_by(|a, b| a.tier < b.tier) {
                return misplaced("replicas are not in the order of tiers");
            }
            if record.is_taken_in && record.is_held() && extent.fastest().is_none() {
                return Err(Violation::Lost(version));
            }
            for replica in &extent.replicas {
                let lies_encoded = self.ledger().lies_encoded(replica.tier);
                if replica.is_idle() && !record.is_needed(lies_encoded) {
                    return Err(Violation::NotFreed(version, replica.tier));
                }
                let size = record.size_on(lies_encoded, extent.len);
                if replica.size != size && !self.is_encoded(replica) {
                    return misplaced("a replica has another size than its extent");
                }
                let flights = &self.traffic.flights;
                if replica
                    .arriving
                    .is_some_and(|id| !flights.contains_key(&id))
                {
                    return misplaced("a replica arrives by no transfer");
                }
            }
        }
        let is_granted = record.is_taken_in || !record.extents.is_empty();
        if is_granted && end != record.size {
            return misplaced("its extents are not all of it");
        }
        if record.discarded && record.is_gone() {
            return Err(Violation::NotFreed(version, TierId::FASTEST));
        }
        Ok(())
    }

    /// Returns true if a transfer brings a replica that it encodes.
    fn is_encoded(&self, replica: &Replica) -> bool {
        let flight = replica
            .arriving
            .and_then(|id| self.traffic.flights.get(&id));
        flight.is_some_and(|flight| flight.encodes.is_some())
    }

    fn check_readers(&self) -> Result<(), Violation> {
        let mut readers: BTreeMap<(ExtentId, TierId), u32> = BTreeMap::new();
        let mut callers: BTreeMap<Version, u32> = BTreeMap::new();
        let mut count = |version: Version, parts: &[(u64, TierId)], bases: &[Base]| {
            let parts = parts.iter().map(|&(start, tier)| ((version, start), tier));
            let bases = bases.iter().map(|&(base, tier)| ((base, 0), tier));
            parts
                .chain(bases)
                .for_each(|read| *readers.entry(read).or_default() += 1);
        };
        for flight in self.traffic.flights.values() {
            count(flight.version, &flight.parts, &flight.bases);
        }
        for reading in self.calls.reading.values() {
            *callers.entry(reading.version).or_default() += 1;
            count(reading.version, &reading.parts, &reading.bases);
        }
        for (&version, record) in &self.ledger().records {
            let known = callers.remove(&version).unwrap_or(0);
            if record.readers != known {
                return Err(Violation::Outdated("the number of callers that read"));
            }
            for extent in &record.extents {
                for replica in &extent.replicas {
                    let key = ((version, extent.start), replica.tier);
                    let known = readers.remove(&key).unwrap_or(0);
                    let can_be_read = replica.readers == 0 || replica.is_readable();
                    if replica.readers != known || !can_be_read {
                        let Replica { tier, readers, .. } = *replica;
                        return Err(Violation::Readers(version, tier, readers, known));
                    }
                }
            }
        }
        match readers.first_key_value() {
            None => Ok(()),
            Some((&((version, _), tier), &known)) => {
                Err(Violation::Readers(version, tier, 0, known))
            }
        }
    }

    /// Checks that every base can be read, and that its dependents are counted.
    fn check_dependents(&self) -> Result<(), Violation> {
        let records = &self.ledger().records;
        let mut dependents: BTreeMap<Version, BTreeSet<Version>> = BTreeMap::new();
        for (&version, record) in records {
            if let Some(base) = record.form.and_then(StoredForm::base) {
                dependents.entry(base).or_default().insert(version);
            }
        }
        let count = |dependents: usize| u32::try_from(dependents).unwrap_or(u32::MAX);
        for (&version, record) in records {
            let known = dependents.remove(&version).unwrap_or_default();
            let mut replicas = record.extents.iter().flat_map(|extent| &extent.replicas);
            let can_be_read = match record.form {
                Some(StoredForm::Difference(_)) => {
                    replicas.any(|r| self.ledger().lies_encoded(r.tier) && r.is_readable())
                }
                Some(StoredForm::Coming(_)) => replicas.any(|replica| self.is_encoded(replica)),
                Some(StoredForm::Whole) | None => false,
            };
            let noted = record.dependents.len();
            let is_noted = record.dependents.iter().copied().collect::<BTreeSet<_>>() == known;
            let is_right = is_noted && noted == known.len();
            if !is_right || (!known.is_empty() && !can_be_read) {
                let known = count(known.len());
                return Err(Violation::Dependents(version, count(noted), known));
            }
        }
        let mut encoded_sizes = EncodedSizes::default();
        for record in records.values() {
            encoded_sizes.replace(EncodedSizes::default(), EncodedSizes::of(record));
        }
        if encoded_sizes != self.ledger().encoded_sizes {
            return Err(Violation::Outdated("how much smaller differences are"));
        }
        let gone = dependents.into_iter().next();
        gone.map_or(Ok(()), |(version, known)| {
            Err(Violation::Dependents(version, 0, count(known.len())))
        })
    }

    fn check_counters(&self) -> Result<(), Violation> {
        use crate::traffic::{Depth, Purpose};
        let ledger = self.ledger();
        for (at, (tier, depths)) in ledger.tiers.iter().zip(&self.traffic.depths).enumerate() {
            let count = |purpose, of: &dyn Fn(&crate::traffic::Flight) -> TierId| {
                let flights = self.traffic.flights.values();
                let flights = flights.filter(|f| f.purpose == purpose && of(f) == TierId(at));
                flights.fold(Depth::default(), |depth, flight| Depth {
                    transfers: depth.transfers + 1,
                    bytes: depth.bytes + flight.bytes,
                })
            };
            let entering = count(Purpose::WriteBack, &|flight| flight.to);
            let rising = count(Purpose::Prefetch, &|flight| flight.from());
            if (entering, rising) != (depths.entering, depths.rising) {
                return Err(Violation::Outdated("the number of transfers under way"));
            }
            let readings = self.calls.reading.iter();
            let copied = readings.filter(|(ticket, _)| !self.calls.in_place.contains(*ticket));
            let parts = copied.flat_map(|(_, reading)| &reading.parts);
            if tier.callers != parts.filter(|part| part.1 == TierId(at)).count() {
                return Err(Violation::Outdated(
                    "the number of extents that callers copy from a tier",
                ));
            }
        }
        Ok(())
    }
}

impl Ledger {
    fn check_sets(&self) -> Result<(), Violation> {
        let mut derived: Vec<[BTreeSet<(Key, ExtentId)>; 5]> =
            self.tiers.iter().map(|_| Default::default()).collect();
        let mut clean = vec![0; self.tiers.len()];
        for (&version, record) in &self.records {
            for extent in &record.extents {
                for at in 0..extent.replicas.len() {
                    let tier = extent.replicas[at].tier.0;
                    let is = self.memberships(record, extent, at);
                    for (set, _) in derived[tier].iter_mut().zip(is).filter(|(_, is)| *is) {
                        set.insert((record.key, (version, extent.start)));
                    }
                    clean[tier] += if is[0] { extent.len } else { 0 };
                }
            }
        }
        for ((tier, derived), clean) in self.tiers.iter().zip(&derived).zip(clean) {
            let kept = [
                &tier.clean,
                &tier.superseded,
                &tier.dirty,
                &tier.sinkable,
                &tier.promotable,
            ];
            let same = kept
                .iter()
                .zip(derived)
                .all(|(kept, derived)| kept.iter().collect::<BTreeSet<_>>() == *derived);
            if !same {
                return Err(Violation::Outdated("a set of replicas"));
            }
            if tier.clean.bytes() != clean {
                return Err(Violation::Outdated("the bytes of clean replicas"));
            }
        }
        let owed = |tier: TierId| {
            let lies_encoded = self.lies_encoded(tier);
            let is_there = |version: Version, record: &Record| {
                let bases = std::iter::successors(Some((version, record)), |(_, record)| {
                    let base = record.form.and_then(StoredForm::base)?;
                    Some((base, self.records.get(&base)?))
                });
                let mut bases = bases.take(match lies_encoded && tier == self.last() {
                    true => usize::MAX,
                    false => 1,
                });
                bases.all(|(_, record)| record.has_reached(tier))
            };
            let owed = self.records.iter().filter(|&(&version, record)| {
                record.is_taken_in && record.is_needed(lies_encoded) && !is_there(version, record)
            });
            owed.map(|(&version, record)| (record.written, version))
                .collect()
        };
        for (at, tier) in self.tiers.iter().enumerate() {
            let is_on_its_way = |version| {
                let mut extents = self.extents(version).iter();
                extents.all(|extent| extent.has(|replica| replica.tier >= TierId(at)))
            };
            let is_noted = |entry| tier.unsent.contains(entry) || is_on_its_way(entry.1);
            if let Some(kept) = &tier.owed
                && (*kept != owed(TierId(at)) || !kept.iter().all(is_noted))
            {
                return Err(Violation::Outdated("what a tier is owed"));
            }
        }
        Ok(())
    }

    fn check_order(&self) -> Result<(), Violation> {
        let is_current = self
            .records
            .iter()
            .all(|(&v, record)| self.key_of(v, record) == record.asked);
        if !is_current {
            return Err(Violation::Outdated("where a version stands"));
        }
        let unwritten: BTreeSet<Version> = self
            .hints
            .last_before(u64::MAX)
            .filter(|version| !self.records.contains_key(version))
            .collect();
        if self.hints.unwritten() != unwritten.len() as u64 {
            return Err(Violation::Outdated("the number of versions to be written"));
        }
        let bytes: u64 = self.records.values().map(|record| record.size).sum();
        if self.order.total().bytes != bytes {
            return Err(Violation::Outdated("the bytes of the order of use"));
        }
        if self.tiers.len() == 1 {
            return Ok(());
        }
        let mut list: Vec<_> = self.records.values().collect();
        list.sort_by_key(|record| self.order.position(record.key));
        let mut sum = 0;
        for record in list {
            if self.order.before(record.key, 0) != sum {
                return Err(Violation::Outdated("a sum along the order of use"));
            }
            sum += record.size;
        }
        Ok(())
    }

    fn check_spaces(&self) -> Result<(), Violation> {
        let mut used = vec![0; self.tiers.len()];
        let mut owners: Vec<BTreeSet<(u64, ExtentId)>> = vec![BTreeSet::new(); self.tiers.len()];
        for (&version, record) in &self.records {
            for extent in &record.extents {
                for replica in &extent.replicas {
                    let tier = replica.tier.0;
                    used[tier] += self.tiers[tier].space.reserved(replica.size);
                    owners[tier].insert((replica.offset, (version, extent.start)));
                }
            }
        }
        for ((tier, used), owners) in self.tiers.iter().zip(used).zip(owners) {
            let space = &tier.space;
            let all_within = space.beyond_limit().next().is_none();
            if space.used() != used || (all_within && !space.is_sound()) {
                return Err(Violation::Outdated("the bytes set aside on a tier"));
            }
            if !tier.vacating && !all_within {
                return Err(Violation::Outdated("the limit of a tier"));
            }
            let fragments = space.fragments().into_iter();
            let owned = fragments.filter_map(|f| Some((f.offset, f.owner?)));
            let owned: BTreeSet<_> = owned.collect();
            if !owned.is_subset(&owners) {
                return Err(Violation::Outdated("whose bytes of a tier are"));
            }
        }
        Ok(())
    }
}
