//! The sets of its tier that each replica is in, kept up with every change of the replica.
//!
//! A change compares the sets before and after it and writes the differences only: most changes leave most sets as they
//! are.

use super::{Ledger, Tier};
use crate::config::Differences;
use crate::order::{Key, Ranked};
use crate::record::{Extent, Record, WriteBack};
use crate::{TierId, Version};
use smallvec::SmallVec;
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

/// The entries of some extents of a version, in ascending order.
#[derive(Debug)]
pub(crate) struct Members {
    members: SmallVec<[Member; 6]>,
    /// The version's place in the order of use.
    key: Key,
    rules: SetRules,
}

/// The properties of the tiers upon which the sets of a replica depend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetRules {
    last: TierId,
    differences: Option<Differences>,
}

impl Tier {
    pub(crate) fn set(&self, set: Set) -> &Ranked {
        &self.sets[set as usize]
    }
}

impl SetRules {
    /// Returns the sets that the replica at `at` of an extent belongs to.
    fn sets_of(self, record: &Record, extent: &Extent, at: usize) -> impl Iterator<Item = Set> {
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

    /// Returns the entries of some extents. On an only tier there are none: there is no other to move to.
    pub(crate) fn members(self, record: &Record, extents: Range<usize>) -> Members {
        let mut members = SmallVec::new();
        let extents = match self.last == TierId::FASTEST {
            true => &[],
            false => &record.extents[extents],
        };
        for extent in extents {
            for (at, replica) in extent.replicas.iter().enumerate() {
                let sets = self.sets_of(record, extent, at);
                members.extend(sets.map(|set| Member {
                    start: extent.start,
                    tier: replica.tier,
                    set,
                    len: extent.len,
                }));
            }
        }
        Members {
            members,
            key: record.key,
            rules: self,
        }
    }
}

impl Members {
    /// Updates the sets after a change. `extents` are those in the places of the changed ones.
    pub(crate) fn update(
        self,
        tiers: &mut [Tier],
        version: Version,
        record: &Record,
        extents: Range<usize>,
    ) {
        let now = self.rules.members(record, extents);
        let is_left = |member: &Member, others: &Self| {
            self.key != now.key || others.members.binary_search(member).is_err()
        };
        for was in self.members.iter().filter(|was| is_left(was, &now)) {
            tiers[was.tier.0].sets[was.set as usize].remove(self.key, was.start, was.len);
        }
        for is in now.members.iter().filter(|is| is_left(is, &self)) {
            let set = &mut tiers[is.tier.0].sets[is.set as usize];
            set.insert(now.key, (version, is.start), is.len);
        }
    }
}

impl Ledger {
    pub(crate) fn set_rules(&self) -> SetRules {
        SetRules {
            last: self.last(),
            differences: self.differences,
        }
    }
}
