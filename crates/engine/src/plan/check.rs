//! What must hold after every event, looked at from outside the code that keeps it.

use super::Plan;
use super::differences::Form;
use super::event::TierId;
use super::history::{Copy, Record};
use super::transfers::Purpose;
use crate::Version;
use std::collections::HashMap;
use thiserror::Error;
use tierflow_lifecycle::State;

/// A broken invariant: always a defect of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// Invariant 1: nothing is lost.
    #[error("version {0} is accepted and unconsumed, but has no readable copy")]
    Lost(Version),
    /// Invariant 2: bytes in use are never handed out.
    #[error("version {0}'s copy on tier {1} and the tier's table disagree")]
    Misplaced(Version, usize),
    /// Invariant 2, the other half: bytes being written are not read, and the count of readers is true.
    #[error("version {0}'s copy on tier {1} counts {2} readers")]
    Readers(Version, usize, u32),
    /// Invariant 3: no deadlock.
    #[error("somebody waits, and nothing is under way")]
    Deadlock,
    /// A copy marked as flushed has nothing below it.
    #[error("version {0}'s copy on tier {1} counts as flushed, but no lower tier has it")]
    Unflushed(Version, usize),
    /// Invariant 5: a version that is gone costs no more I/O.
    #[error("version {0} is gone and idle, but its copies are kept")]
    Unreaped(Version),
    /// Memory that was released is in use.
    #[error("version {0}'s copy on tier {1} lies beyond the limit, though its bytes were released")]
    BeyondLimit(Version, usize),
    /// What another version is made of is gone, or nobody counts on it.
    #[error(
        "version {0} counts {1} versions that build upon it, or has no difference that they could read"
    )]
    Heirs(Version, u32),
    /// The policy of a tier would be told what was so once.
    #[error("what is known of the copies on tier {0} is not what it was before they changed")]
    Outdated(usize),
    /// A depth limit's counter drifted.
    #[error("tier {0} miscounts its transfers")]
    Miscounted(usize),
}

impl Plan {
    /// Looks at everything that must hold between two events.
    ///
    /// # Errors
    /// The first [`Violation`] found. Meant for tests, the simulator and the model checker: it walks all versions.
    pub fn check(&self) -> Result<(), Violation> {
        for (&version, record) in self.records.iter() {
            self.check_record(version, record)?;
        }
        self.check_forms()?;
        self.check_known()?;
        for (index, tier) in self.tiers.iter().enumerate() {
            let copies = self
                .records
                .values()
                .filter(|r| r.copies[index].is_some())
                .count();
            let occupied = tier
                .table
                .fragments()
                .iter()
                .filter(|f| f.occupant.is_some())
                .count();
            let flushing = self.count(|t| t.purpose == Purpose::Flush && t.from.0 == index);
            let prefetching = self.count(|t| t.purpose != Purpose::Flush && t.to.0 == index);
            if copies != occupied || flushing != tier.flushing || prefetching != tier.prefetching {
                return Err(Violation::Miscounted(index));
            }
        }
        let restores_wait = self.records.values().any(|r| !r.waiting.is_empty());
        if self.is_idle()
            && (self.callers.anyone_blocked() || self.callers.anyone_waiting() || restores_wait)
        {
            return Err(Violation::Deadlock);
        }
        Ok(())
    }

    fn count(&self, which: impl Fn(&super::Transfer) -> bool) -> usize {
        self.transfers.values().filter(|t| which(t)).count()
    }

    /// Who is built upon can be read, and knows how many count on it.
    fn check_forms(&self) -> Result<(), Violation> {
        let stored = self.records.values().filter_map(|r| match r.form {
            Some(Form::Difference(difference)) => difference.base,
            _ => None,
        });
        let coming = self.transfers.values().filter_map(|t| t.encodes?);
        let mut heirs: HashMap<Version, u32> = HashMap::new();
        for base in stored.chain(coming) {
            *heirs.entry(base).or_default() += 1;
        }
        let can_be_read = |record: &Record| {
            let mut stored = record.copies.iter().skip(1).flatten();
            matches!(record.form, Some(Form::Difference(_))) && stored.any(Copy::is_readable)
        };
        for (&version, record) in self.records.iter() {
            let counted = heirs.remove(&version).unwrap_or(0);
            if record.heirs != counted || (counted > 0 && !can_be_read(record)) {
                return Err(Violation::Heirs(version, record.heirs));
            }
        }
        // Whoever is left is built upon, and gone.
        let gone = heirs.keys().next();
        gone.map_or(Ok(()), |&version| Err(Violation::Heirs(version, 0)))
    }

    fn check_record(&self, version: Version, record: &Record) -> Result<(), Violation> {
        let in_callers_hands = self.callers.is_blocked(version)
            || record
                .copies
                .iter()
                .flatten()
                .any(|c| c.state == State::WriteInProgress && c.incoming.is_none());
        if !record.doomed && record.fastest().is_none() && !in_callers_hands {
            return Err(Violation::Lost(version));
        }
        let copies = record.copies.iter().enumerate();
        let mut unneeded = copies.filter_map(|(index, copy)| {
            let copy = copy.as_ref()?;
            (!record.is_needed(TierId(index))).then_some(copy)
        });
        if unneeded.any(|copy| copy.is_idle())
            || (record.doomed && record.copies.iter().all(Option::is_none))
        {
            return Err(Violation::Unreaped(version));
        }
        let mut reading: HashMap<TierId, u32> = HashMap::new();
        for transfer in self.transfers.values() {
            let own = (transfer.version, transfer.from);
            for (_, tier) in transfer
                .bases
                .iter()
                .chain([&own])
                .filter(|(of, _)| *of == version)
            {
                *reading.entry(*tier).or_default() += 1;
            }
        }
        let is_encoded = |copy: &Copy| {
            let incoming = copy.incoming.and_then(|id| self.transfers.get(&id));
            incoming.is_some_and(|transfer| transfer.encodes.is_some())
        };
        for (index, copy) in record.copies.iter().enumerate() {
            let Some(copy) = copy else { continue };
            let tier = TierId(index);
            let slot = self.tiers[index].table.get(&version);
            let size = match is_encoded(copy) {
                true => self.room_on(version, tier),
                false => record.size_on(tier),
            };
            let place = (copy.place.offset, copy.place.size);
            if slot.map(|s| (s.offset, s.size)) != Some(place) || copy.place.size != size {
                return Err(Violation::Misplaced(version, index));
            }
            let callers = self.callers.readers(version, tier) as u32;
            let readers = reading.get(&tier).copied().unwrap_or(0) + callers;
            if copy.readers != readers || (readers > 0 && !copy.is_readable()) {
                return Err(Violation::Readers(version, index, copy.readers));
            }
            if !self.tiers[index].vacating && self.is_beyond_limit(version, tier) {
                return Err(Violation::BeyondLimit(version, index));
            }
            if record.is_needed(tier) && copy.state == State::Flushed && !record.has_lower(tier) {
                return Err(Violation::Unflushed(version, index));
            }
        }
        Ok(())
    }
}
