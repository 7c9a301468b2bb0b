//! The view of a table that policies get.

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

    /// Fills `candidates` with the fragments within the limit, in the order of [`fragments`](Self::fragments). A gap
    /// that reaches beyond the limit is cut short; a copy that does is left out. Allocates only if there are more
    /// fragments than ever before.
    pub fn candidates_into(&self, candidates: &mut Candidates, outlook: impl Fn(K) -> Outlook) {
        candidates.clear();
        self.update_candidates(candidates, 0..self.capacity, |fragment| {
            fragment.occupant.map(&outlook)
        });
    }

    /// Returns the bytes in which fragments or the limit changed since the last call; empty if none did. Fragments in
    /// between may be unchanged.
    pub fn take_changed(&mut self) -> Range<u64> {
        core::mem::take(&mut self.changed)
    }

    /// Returns the range that [`take_changed`](Self::take_changed) would return now.
    #[must_use]
    pub fn changed(&self) -> Range<u64> {
        self.changed.clone()
    }

    /// Updates `candidates` that were [filled](Self::candidates_into) from this table. Only fragments within the bytes
    /// `changed` may differ: the range of [`take_changed`](Self::take_changed), and every copy with a new outlook. The
    /// update takes a few ns for each fragment in `changed`, and less than 1 ns for each one behind.
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
