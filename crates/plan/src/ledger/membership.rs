//! The sets of its tier that each replica is in, kept up with every change of the replica.
//!
//! A change compares the sets before and after it and writes the differences only: most changes leave most sets as they
//! are.

use super::{Ledger, Tier};
use crate::config::Differences;
use crate::order::{Key, Ranked};
use crate::record::{Extent, Record, WriteBack};
use crate::{TierId, Version};
use std::ops::Range;

/// The sets that a replica is in: a bit for each, in the order of [`Tier::sets`].
type SetMask = u8;

/// A replica as the sets see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// The extent's first byte in its version.
    start: u64,
    tier: TierId,
    /// Bytes of the extent.
    len: u64,
    sets: SetMask,
}

/// The replicas of some extents of a version before a change, in ascending order of their extents and tiers.
#[derive(Debug)]
pub(super) struct MembersBefore<'a> {
    members: &'a mut Vec<Member>,
    /// The version's place in the order of use.
    key: Key,
    rules: SetRules,
}

/// The properties of the tiers upon which the sets of a replica depend.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetRules {
    last: TierId,
    differences: Option<Differences>,
}

impl Tier {
    pub(crate) fn sets(&mut self) -> [&mut Ranked; 5] {
        [
            &mut self.clean,
            &mut self.superseded,
            &mut self.dirty,
            &mut self.sinkable,
            &mut self.promotable,
        ]
    }
}

impl SetRules {
    /// Returns the sets that the replica at `at` of an extent belongs to.
    fn sets_of(self, record: &Record, extent: &Extent, at: usize) -> SetMask {
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
        let sets = [clean, superseded, dirty, sinkable, promotable];
        let last_first = sets.into_iter().rev();
        last_first.fold(0, |mask, is_in| mask << 1 | SetMask::from(is_in))
    }

    /// Returns those of these extents that may be in a set. On an only tier none is: there is no other to move to.
    fn with_sets(self, extents: Range<usize>) -> Range<usize> {
        match self.last == TierId::FASTEST {
            true => 0..0,
            false => extents,
        }
    }

    fn member(self, record: &Record, extent: &Extent, at: usize) -> Member {
        Member {
            start: extent.start,
            tier: extent.replicas[at].tier,
            len: extent.len,
            sets: self.sets_of(record, extent, at),
        }
    }

    /// Reads the sets of the replicas of some extents, before these change. `buffer` is memory to be used again.
    pub(super) fn before<'a>(
        self,
        record: &Record,
        extents: Range<usize>,
        buffer: &'a mut Vec<Member>,
    ) -> MembersBefore<'a> {
        buffer.clear();
        for extent in &record.extents[self.with_sets(extents)] {
            let replicas = 0..extent.replicas.len();
            buffer.extend(replicas.map(|at| self.member(record, extent, at)));
        }
        MembersBefore {
            members: buffer,
            key: record.key,
            rules: self,
        }
    }
}

impl MembersBefore<'_> {
    /// Updates the sets after a change. `extents` are those in the places of the changed ones.
    pub(super) fn update(
        self,
        tiers: &mut [Tier],
        version: Version,
        record: &Record,
        extents: Range<usize>,
    ) {
        let place = |member: &Member| (member.start, member.tier);
        let mut old = self.members.as_slice();
        let leave = |tiers: &mut [Tier], was: &Member, sets| {
            for set in chosen_sets(tiers, was.tier, sets) {
                set.remove(self.key, was.start, was.len);
            }
        };
        for extent in &record.extents[self.rules.with_sets(extents)] {
            for at in 0..extent.replicas.len() {
                let is = self.rules.member(record, extent, at);
                let mut unchanged = 0;
                while let Some((was, rest)) = old.split_first()
                    && place(was) <= place(&is)
                {
                    // If the entry itself changes, it leaves every set and enters anew.
                    if place(was) == place(&is) && self.key == record.key && was.len == is.len {
                        unchanged = was.sets & is.sets;
                    }
                    leave(tiers, was, was.sets & !unchanged);
                    old = rest;
                }
                for set in chosen_sets(tiers, is.tier, is.sets & !unchanged) {
                    set.insert(record.key, (version, is.start), is.len);
                }
            }
        }
        for was in old {
            leave(tiers, was, was.sets);
        }
    }
}

/// Returns the sets of a tier that a mask names.
fn chosen_sets(
    tiers: &mut [Tier],
    tier: TierId,
    sets: SetMask,
) -> impl Iterator<Item = &mut Ranked> {
    let tier = (sets != 0).then(|| &mut tiers[tier.0]);
    let all = tier
        .into_iter()
        .flat_map(|tier| tier.sets().into_iter().zip(0..));
    all.filter_map(move |(set, bit)| (sets >> bit & 1 == 1).then_some(set))
}

impl Ledger {
    pub(super) fn set_rules(&self) -> SetRules {
        SetRules {
            last: self.last(),
            differences: self.differences,
        }
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn memberships(&self, record: &Record, extent: &Extent, at: usize) -> [bool; 5] {
        let sets = self.set_rules().sets_of(record, extent, at);
        std::array::from_fn(|bit| sets >> bit & 1 == 1)
    }
}
