//! Durability in the plan: a version is settled once the lowest tier has its bytes and those of every version that it
//! builds upon there. Waits, suspensions and [`Plan::is_settled`](crate::Plan::is_settled) all ask here.

use super::Ledger;
use crate::{TierId, Version};
use smallvec::{SmallVec, smallvec};

impl Ledger {
    /// Returns a version and those that it builds upon on the lowest tier, nearest first.
    pub(crate) fn settled_with(&self, version: Version) -> impl Iterator<Item = Version> + '_ {
        let links = match self.lies_encoded(self.last()) {
            true => usize::MAX,
            false => 1,
        };
        self.chain(version).take(links)
    }

    /// Returns true if the lowest tier has a version and all that it builds upon.
    pub(crate) fn is_settled(&self, version: Version) -> bool {
        let has_reached = |version| {
            let record = self.records.get(&version);
            record.is_some_and(|record| record.has_reached(self.last()))
        };
        self.settled_with(version).all(has_reached)
    }

    /// Returns true if a version can be settled: no bytes that the lowest tier still needs are unreadable.
    pub(crate) fn can_settle(&self, version: Version) -> bool {
        let mut chain = self.settled_with(version);
        chain.all(|version| {
            let record = self.records.get(&version);
            record.is_some_and(|record| record.has_reached(self.last()) || !record.unreadable)
        })
    }

    /// Keeps the plan from reading a version by itself: until the application asks for something, or, if its bytes are known to be
    /// damaged, until a restore of it succeeds.
    pub(crate) fn set_unreadable(&mut self, version: Version, is_damaged: bool) {
        if !is_damaged {
            self.failing.insert(version);
        }
        self.change_record(version, |record| record.unreadable = true);
    }

    /// Lets the plan read the versions again that failed without known damage.
    pub(crate) fn retry_failing(&mut self) {
        while let Some(version) = self.failing.pop_first() {
            self.change_record(version, |record| record.unreadable = false);
        }
    }

    /// Updates the versions that tiers are owed: `version`, and those that build upon it. Called when it became whole
    /// on some tier or is not any more, was given up, or lost its dependents.
    pub(crate) fn settle_owed(&mut self, version: Version) {
        let mut next: SmallVec<[Version; 4]> = smallvec![version];
        while let Some(version) = next.pop() {
            if self.settle_owed_of(version) {
                next.extend_from_slice(self.dependents(version));
            }
        }
    }

    /// Updates one version. Returns true if the lowest tier is owed it now and was not before, or the other way round.
    fn settle_owed_of(&mut self, version: Version) -> bool {
        let Some(record) = self.records.get(&version) else {
            return false;
        };
        let (last, differences) = (self.last(), self.differences);
        // A version without a form builds upon none.
        let has_bases = record.form.is_none() || self.is_settled(version);
        let mut has_changed = false;
        for (at, tier) in self.tiers.iter_mut().enumerate() {
            let at = TierId(at);
            let is_there = record.has_reached(at) && (at != last || has_bases);
            if at == last && (is_there || record.discarded) {
                self.settled.push(version);
            }
            let Some(owed) = &mut tier.owed else { continue };
            let is_needed = record.is_needed(differences.is_some_and(|how| how.lie_on(at)));
            let entry = (record.written, version);
            let is_new = match record.is_taken_in && is_needed && !is_there {
                true => {
                    tier.unsent.insert(entry);
                    owed.insert(entry)
                }
                false => {
                    tier.unsent.remove(&entry);
                    owed.remove(&entry)
                }
            };
            has_changed |= is_new && at == last;
        }
        has_changed
    }
}
