//! The sets of its tier that each replica is in, kept up with every change of the replica.
//!
//! A change compares the sets before and after it and writes the differences only: most changes leave most sets as they
//! are.

use super::Tier;
use crate::config::Differences;
use crate::order::{Key, Ranked};
use crate::record::{Extent, Record, WriteBack};
use crate::{TierId, Version};
use std::ops::Range;

/// A set of a tier's replicas, as the [ledger](crate::ledger) describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Set {
    Clean,
    Superseded,
    Dirty,
    Sinkable,
    Promotable,
}

/// An entry of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    /// The extent's first byte in its version.
    start: u64,
    tier: TierId,
    set: Set,
    /// Bytes of the extent.
    len: u64,
}

/// The entries of a version's extents, read before a change and after it.
#[derive(Debug, Clone)]
pub(crate) struct Members {
    last: TierId,
    differences: Option<Differences>,
    /// The version's place in the order of use before the change.
    key: Key,
    /// In ascending order. The memory is used again, so that no change allocates.
    before: Vec<Member>,
    now: Vec<Member>,
}

impl Tier {
    pub(crate) fn set(&self, set: Set) -> &Ranked {
        &self.sets[set as usize]
    }
}

impl Members {
    pub(super) fn new(last: TierId, differences: Option<Differences>) -> Self {
        Self {
            last,
            differences,
            key: Key::default(),
            before: Vec::new(),
            now: Vec::new(),
        }
    }

    /// Returns the sets that the replica at `at` of an extent belongs to.
    fn sets_of(
        &self,
        record: &Record,
        extent: &Extent,
        at: usize,
    ) -> impl Iterator<Item = Set> + use<> {
        let replica = &extent.replicas[at];
        let tier = replica.tier;
        let lies_encoded = self.differences.is_some_and(|how| how.lie_on(tier));
        let is_readable = replica.is_readable();
        let is_below = extent.is_sound_below(tier);
        // A version that others build upon stays on some lower tier.
        let is_built_upon = !record.dependents.is_empty() && lies_encoded;
        let is_wanted = !record.discarded && !record.unreadable;
        let clean = replica.is_idle() && is_below;
        let superseded = replica.is_idle()
            && extent.is_sound_above(tier)
            && (is_below || !is_built_upon)
            && extent.replicas.iter().all(|r| r.arriving.is_none());
        let dirty = is_readable
            && record.is_taken_in
            && record.is_needed(lies_encoded)
            && extent.write_back(tier, self.last, record.unreadable) == WriteBack::Queued;
        let sinkable = is_readable
            && tier != self.last
            && record.is_taken_in
            && is_wanted
            && extent.on(TierId(tier.0 + 1)).is_none();
        // A damaged replica would be read again and again. A restore reads the sound one below it.
        let promotable = is_readable
            && at == 0
            && tier != TierId::FASTEST
            && is_wanted
            && record.readers == 0
            && !(replica.damaged && is_below);
        let sets = [
            (Set::Clean, clean),
            (Set::Superseded, superseded),
            (Set::Dirty, dirty),
            (Set::Sinkable, sinkable),
            (Set::Promotable, promotable),
        ];
        sets.into_iter()
            .filter_map(|(set, is_in)| is_in.then_some(set))
    }

    /// Returns true for an only tier, which has no entries: there is no other to move to.
    fn are_none(&self) -> bool {
        self.last == TierId::FASTEST
    }

    /// Reads the entries of some extents.
    fn read(&mut self, record: &Record, extents: Range<usize>) {
        self.now.clear();
        for extent in &record.extents[extents] {
            for (at, replica) in extent.replicas.iter().enumerate() {
                let sets = self.sets_of(record, extent, at);
                self.now.extend(sets.map(|set| Member {
                    start: extent.start,
                    tier: replica.tier,
                    set,
                    len: extent.len,
                }));
            }
        }
    }

    /// Reads the entries of some extents before a change.
    pub(crate) fn before(&mut self, record: &Record, extents: Range<usize>) {
        if self.are_none() {
            return;
        }
        self.read(record, extents);
        self.key = record.key;
        std::mem::swap(&mut self.before, &mut self.now);
    }

    /// Updates the sets after a change. `extents` are those in the places of the changed ones.
    pub(crate) fn update(
        &mut self,
        tiers: &mut [Tier],
        version: Version,
        record: &Record,
        extents: Range<usize>,
    ) {
        if self.are_none() {
            return;
        }
        self.read(record, extents);
        let is_left = |member: &Member, others: &[Member]| {
            self.key != record.key || others.binary_search(member).is_err()
        };
        for was in self.before.iter().filter(|was| is_left(was, &self.now)) {
            tiers[was.tier.0].sets[was.set as usize].remove(self.key, was.start, was.len);
        }
        for is in self.now.iter().filter(|is| is_left(is, &self.before)) {
            let set = &mut tiers[is.tier.0].sets[is.set as usize];
            set.insert(record.key, (version, is.start), is.len);
        }
    }
}
