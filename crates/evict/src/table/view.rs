//! What policies see of a table.

use core::hash::Hash;

use super::{AllocationTable, Fragment};
use crate::{Candidates, Outlook};

impl<K: Copy + Eq + Hash> AllocationTable<K> {
    /// How many fragments from the start have not changed, nor the limit, since this was asked last.
    pub fn take_unchanged(&mut self) -> usize {
        core::mem::replace(&mut self.unchanged, usize::MAX)
    }

    /// The fragments that lie within the limit as a whole.
    #[must_use]
    pub fn fragments_within_limit(&self) -> &[Fragment<K>] {
        let within = |fragment: &Fragment<K>| fragment.offset + fragment.size <= self.limit;
        &self.fragments[..self.fragments.partition_point(within)]
    }

    /// Fills `candidates` for a policy with what lies within the limit, in the order of
    /// [`fragments`](Self::fragments): the first of them, the last one cut short if it is a gap that
    /// reaches beyond. Allocates only where there are more fragments than ever before.
    pub fn candidates_into(
        &self,
        candidates: &mut Candidates,
        mut outlook: impl FnMut(K) -> Outlook,
    ) {
        candidates.clear();
        self.append_candidates(candidates, |fragment| fragment.occupant.map(&mut outlook));
    }

    /// [Fills](Self::candidates_into) `candidates`, of which the first are right already, with the others.
    pub fn append_candidates(
        &self,
        candidates: &mut Candidates,
        outlook: impl FnMut(&Fragment<K>) -> Option<Outlook>,
    ) {
        let within = self.fragments_within_limit();
        let others = within.get(candidates.len()..).unwrap_or_default();
        let mut outlook = outlook;
        candidates.extend(
            others
                .iter()
                .map(|fragment| (fragment.size, outlook(fragment))),
        );
        if let Some(cut) = self.fragments.get(within.len())
            && cut.occupant.is_none()
            && cut.offset < self.limit
        {
            candidates.push(self.limit - cut.offset, None);
        }
    }
}
