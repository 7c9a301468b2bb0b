//! What policies see of a table.

use core::hash::Hash;
use core::ops::Range;

use super::{AllocationTable, Fragment, index_of};
use crate::{Candidates, Outlook};

impl<K: Copy + Eq + Hash> AllocationTable<K> {
    /// The fragment in which the copy of `key` lies. O(log N).
    #[must_use]
    pub fn fragment(&self, key: &K) -> Option<Fragment<K>> {
        let slot = self.slots.get(key)?;
        Some(self.fragments[index_of(&self.fragments, slot.offset)])
    }

    /// Fills `candidates` for a policy with what lies within the limit, in the order of
    /// [`fragments`](Self::fragments): the first of them, the last one cut short if it is a gap that
    /// reaches beyond. Allocates only where there are more fragments than ever before.
    pub fn candidates_into(&self, candidates: &mut Candidates, outlook: impl Fn(K) -> Outlook) {
        candidates.clear();
        self.update_candidates(candidates, 0..self.capacity, |fragment| {
            fragment.occupant.map(&outlook)
        });
    }

    /// The bytes in which fragments, or the limit, have changed since this was asked last; none of them if none did.
    /// In between, others may have changed or not.
    pub fn take_changed(&mut self) -> Range<u64> {
        core::mem::take(&mut self.changed)
    }

    /// What [`take_changed`](Self::take_changed) will answer.
    #[must_use]
    pub fn changed(&self) -> Range<u64> {
        self.changed.clone()
    }

    /// Brings `candidates` up to date that were [filled](Self::candidates_into) from this table, where only
    /// fragments within the bytes `changed` may differ since: those of [`take_changed`](Self::take_changed), and
    /// whatever has another outlook now. It takes a few ns for each of these, and less than one for each one behind them.
    pub fn update_candidates(
        &self,
        candidates: &mut Candidates,
        changed: Range<u64>,
        outlook: impl Fn(&Fragment<K>) -> Option<Outlook>,
    ) {
        let limit = self.limit;
        let mut usable = &self.fragments[..self.fragments.partition_point(|f| f.offset < limit)];
        if let [others @ .., last] = usable
            && last.occupant.is_some()
            && last.offset + last.size > limit
        {
            usable = others;
        }
        let before = |border: u64| usable.partition_point(|fragment| fragment.offset < border);
        let now = usable[before(changed.start)..before(changed.end)].iter();
        let was = candidates.before(changed.start)..candidates.before(changed.end);
        candidates.replace(was, now.map(|f| (f.size.min(limit - f.offset), outlook(f))));
    }
}
