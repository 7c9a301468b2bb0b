//! The sets of its tier that each replica is in, kept up with every change of the replica.
//!
//! A change compares the sets before and after it and writes the differences only: most changes leave most sets as they
//! are.

use super::{Ledger, Tier};
use crate::order::{ExtentId, Key, Ranked};
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
pub(super) struct MembersBefore {
    members: Vec<Member>,
    /// The version's place in the order of use. `None` if there is no such version.
    key: Option<Key>,
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

impl Ledger {
    /// Returns the sets that the replica at `at` of an extent belongs to.
    fn sets_of(&self, record: &Record, extent: &Extent, at: usize) -> SetMask {
        let replica = &extent.replicas[at];
        let tier = replica.tier;
        let lies_encoded = self.lies_encoded(tier);
        let is_readable = replica.is_readable();
        let is_below = extent.is_sound_below(tier);
        let write_back = extent.write_back(tier, self.last(), record.unreadable);
        // A version that others build upon stays on some lower tier.
        let is_built_upon = !record.dependents.is_empty() && lies_encoded;
        let is_wanted = !record.discarded && !record.unreadable;
        let clean = replica.is_idle() && is_below;
        let superseded = replica.is_idle()
            && extent.is_sound_above(tier)
            && (is_below || !is_built_upon)
            && extent.replicas.iter().all(|r| r.arriving.is_none());
        let dirty = is_readable
            && write_back == WriteBack::Queued
            && record.is_taken_in
            && record.is_needed(lies_encoded);
        let sinkable = is_readable
            && record.is_taken_in
            && is_wanted
            && extent.on(TierId(tier.0 + 1)).is_none();
        let promotable =
            is_readable && at == 0 && tier != TierId::FASTEST && is_wanted && record.readers == 0;
        let sets = [clean, superseded, dirty, sinkable, promotable];
        let bits = sets
            .iter()
            .zip(0..)
            .map(|(&is_in, bit)| SetMask::from(is_in) << bit);
        bits.sum()
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn memberships(&self, record: &Record, extent: &Extent, at: usize) -> [bool; 5] {
        let sets = self.sets_of(record, extent, at);
        std::array::from_fn(|bit| sets >> bit & 1 == 1)
    }

    /// Reads the sets of the replicas of some extents, before these change.
    pub(super) fn members_before(
        &mut self,
        version: Version,
        extents: Range<usize>,
    ) -> MembersBefore {
        let mut members = std::mem::take(&mut self.member_buffer);
        members.clear();
        let key = self.members_of(version, extents, &mut members);
        MembersBefore { members, key }
    }

    /// Appends the replicas of some extents. Returns their version's place in the order of use.
    fn members_of(
        &self,
        version: Version,
        extents: Range<usize>,
        members: &mut Vec<Member>,
    ) -> Option<Key> {
        let record = self.records.get(&version)?;
        for extent in &record.extents[extents] {
            let replicas = extent.replicas.iter().enumerate();
            members.extend(replicas.map(|(at, replica)| Member {
                start: extent.start,
                tier: replica.tier,
                len: extent.len,
                sets: self.sets_of(record, extent, at),
            }));
        }
        Some(record.key)
    }

    /// Updates the sets after a change. `extents` are those in the places of the changed ones.
    pub(super) fn update_sets(
        &mut self,
        version: Version,
        extents: Range<usize>,
        before: MembersBefore,
    ) {
        let MembersBefore { mut members, key } = before;
        let old_count = members.len();
        let new_key = self.members_of(version, extents, &mut members);
        let (mut old, mut new) = members.split_at(old_count);
        loop {
            let place = |member: &Member| (member.start, member.tier);
            match (old.first(), new.first()) {
                (Some(was), Some(is)) if place(was) == place(is) => {
                    let unchanged = match key == new_key && was.len == is.len {
                        true => was.sets & is.sets,
                        // The entry itself changes: it leaves every set and enters anew.
                        false => 0,
                    };
                    self.leave(key, was, was.sets & !unchanged);
                    self.enter(new_key, version, is, is.sets & !unchanged);
                    (old, new) = (&old[1..], &new[1..]);
                }
                (Some(was), is) if is.is_none_or(|is| place(was) < place(is)) => {
                    self.leave(key, was, was.sets);
                    old = &old[1..];
                }
                (_, Some(is)) => {
                    self.enter(new_key, version, is, is.sets);
                    new = &new[1..];
                }
                (_, None) => break,
            }
        }
        self.member_buffer = members;
    }

    fn leave(&mut self, key: Option<Key>, member: &Member, sets: SetMask) {
        let Some(key) = key.filter(|_| sets != 0) else {
            return;
        };
        for set in self.chosen_sets(member.tier, sets) {
            set.remove(key, member.start, member.len);
        }
    }

    fn enter(&mut self, key: Option<Key>, version: Version, member: &Member, sets: SetMask) {
        let Some(key) = key.filter(|_| sets != 0) else {
            return;
        };
        let extent: ExtentId = (version, member.start);
        for set in self.chosen_sets(member.tier, sets) {
            set.insert(key, extent, member.len);
        }
    }

    fn chosen_sets(&mut self, tier: TierId, sets: SetMask) -> impl Iterator<Item = &mut Ranked> {
        let all = self.tiers[tier.0].sets().into_iter().zip(0..);
        all.filter_map(move |(set, bit)| (sets >> bit & 1 == 1).then_some(set))
    }
}
