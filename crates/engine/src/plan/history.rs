//! What the plan knows of each version: its size, its copies, who is using them.

use super::differences::Form;
use super::event::{Place, Ticket, TierId, TransferId};
use super::in_place::FASTEST;
use super::touched::Touched;
use crate::Version;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Deref;
use tierflow_lifecycle::State;

/// One copy of a version on one tier.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) place: Place,
    pub(super) state: State,
    /// Callers and transfers reading these bytes now.
    pub(super) readers: u32,
    /// The transfer that writes these bytes, while one does.
    pub(super) incoming: Option<TransferId>,
    /// Where this copy stands in its tier's flush queue: total bytes queued there, itself included, when it joined.
    pub(super) queued_at: Option<u64>,
    /// Logical time of the write and of the last use, for FIFO and LRU.
    pub(super) written: u64,
    pub(super) used: u64,
}

impl Copy {
    /// All bytes are there and may be read.
    pub(super) fn is_readable(&self) -> bool {
        self.state.is_readable()
    }

    /// Prefetched and not yet consumed: kept until the application reads it.
    pub(super) fn is_pinned(&self) -> bool {
        self.state == State::ReadComplete
    }

    /// Nobody reads or writes the bytes.
    pub(super) fn is_idle(&self) -> bool {
        self.readers == 0 && !self.state.in_transit()
    }
}

/// One version.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) size: u64,
    /// By tier.
    pub(super) copies: Vec<Option<Copy>>,
    /// Consumed and discardable, or dropped: its copies go as soon as nobody uses them.
    pub(super) doomed: bool,
    /// It is being written in place and was not taken in yet.
    pub(super) produced: bool,
    /// Its flush or its prefetch failed at the source: not tried again on the plan's own account.
    pub(super) unreadable: bool,
    /// An earlier run wrote it: once it is gone, its number is free.
    pub(super) adopted: bool,
    /// Restores that wait for a better copy under way.
    pub(super) waiting: Vec<Ticket>,
    /// How it lies on the tiers below the fastest, if it does and some versions lie there as differences.
    pub(super) form: Option<Form>,
    /// Versions whose differences build upon this one's, and those on their way to.
    pub(super) heirs: u32,
}

impl Record {
    pub(super) fn new(size: u64, tiers: usize) -> Self {
        Self {
            size,
            copies: (0..tiers).map(|_| None).collect(),
            doomed: false,
            produced: false,
            unreadable: false,
            adopted: false,
            waiting: Vec::new(),
            form: None,
            heirs: 0,
        }
    }

    /// Bytes of a complete copy on `tier`.
    pub(super) fn size_on(&self, tier: TierId) -> u64 {
        match self.form {
            Some(Form::Difference(difference)) if tier != FASTEST => difference.bytes,
            _ => self.size,
        }
    }

    /// Whether its copy on `tier` is of use: to restore it, or another that builds upon it.
    pub(super) fn is_needed(&self, tier: TierId) -> bool {
        !self.doomed || (self.heirs > 0 && tier != FASTEST)
    }

    /// It was taken in, and nobody has given it up.
    pub(super) fn is_held(&self) -> bool {
        !self.doomed && !self.produced
    }

    pub(super) fn copy(&self, tier: TierId) -> Option<&Copy> {
        self.copies.get(tier.0)?.as_ref()
    }

    pub(super) fn copy_mut(&mut self, tier: TierId) -> Option<&mut Copy> {
        self.copies.get_mut(tier.0)?.as_mut()
    }

    /// The fastest tier with a readable copy.
    pub(super) fn fastest(&self) -> Option<TierId> {
        self.copies
            .iter()
            .position(|c| c.as_ref().is_some_and(Copy::is_readable))
            .map(TierId)
    }

    /// Whether a tier below `tier` holds a readable copy.
    pub(super) fn has_lower(&self, tier: TierId) -> bool {
        self.copies
            .iter()
            .skip(tier.0 + 1)
            .flatten()
            .any(Copy::is_readable)
    }

    /// Whether the tiers above `tier` hold the version, in copies that all stay until it is consumed.
    pub(super) fn is_pinned_above(&self, tier: TierId) -> bool {
        let mut above = self
            .copies
            .iter()
            .take(tier.0)
            .flatten()
            .filter(|c| c.is_readable())
            .peekable();
        above.peek().is_some() && above.all(Copy::is_pinned)
    }
}

/// All versions.
#[derive(Debug, Default)]
pub(super) struct Records {
    records: HashMap<Version, Record>,
    /// Those that were changed.
    pub(super) touched: Touched,
}

impl Records {
    pub(super) fn insert(&mut self, version: Version, record: Record) {
        self.touched.note(version);
        self.records.insert(version, record);
    }

    /// The record of `version`, which becomes `new` if there is none.
    pub(super) fn get_or_insert(&mut self, version: Version, new: Record) -> &mut Record {
        self.touched.note(version);
        self.records.entry(version).or_insert(new)
    }

    /// The record of `version`, to change it; who only looks at it calls `get`.
    pub(super) fn get_mut(&mut self, version: &Version) -> Option<&mut Record> {
        self.touched.note(*version);
        self.records.get_mut(version)
    }

    pub(super) fn remove(&mut self, version: &Version) -> Option<Record> {
        self.records.remove(version)
    }
}

/// To look at them.
impl Deref for Records {
    type Target = HashMap<Version, Record>;

    fn deref(&self) -> &Self::Target {
        &self.records
    }
}

/// The versions that were discarded or dropped, as disjoint ranges: consecutive numbers cost one entry.
#[derive(Debug, Default)]
pub(super) struct Discarded {
    /// First to last, both included.
    pub(super) ranges: BTreeMap<Version, Version>,
}

impl Discarded {
    pub(super) fn insert(&mut self, version: Version) {
        if self.contains(version) {
            return;
        }
        let mut first = version;
        let mut last = version;
        if let Some((&start, &end)) = self.ranges.range(..version).next_back()
            && end.checked_add(1) == Some(version)
        {
            first = start;
        }
        if let Some(next) = version.checked_add(1)
            && let Some(end) = self.ranges.remove(&next)
        {
            last = end;
        }
        self.ranges.insert(first, last);
    }

    pub(super) fn contains(&self, version: Version) -> bool {
        self.ranges
            .range(..=version)
            .next_back()
            .is_some_and(|(_, &end)| version <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn discarded_versions_are_remembered_compactly() {
        let mut discarded = Discarded::default();
        let mut model = HashSet::new();
        for i in 0..1000_u64 {
            let version = i * 7919 % 1000;
            discarded.insert(version);
            model.insert(version);
            assert!((0..1001).all(|v| discarded.contains(v) == model.contains(&v)));
        }
        discarded.insert(Version::MAX);
        assert!(discarded.contains(Version::MAX));
        assert_eq!(discarded.ranges.len(), 2);
    }
}
