//! The bytes of one tier: the gaps, and the owners of the rest.

use crate::order::ExtentId;
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Capacity from which on a tier counts as endless: it places bytes itself, and never has to be emptied.
const ENDLESS: u64 = 1 << 59;

/// A run of bytes of a tier, and its owner; `None` for a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) owner: Option<ExtentId>,
}

/// Runs of bytes: mostly one, which needs no allocation.
pub(crate) type Runs = SmallVec<[Range<u64>; 1]>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Space {
    capacity: u64,
    alignment: u64,
    /// Bytes from the start that may be used; a multiple of the alignment.
    limit: u64,
    /// Bytes set aside, beyond the limit too.
    used: u64,
    /// Bytes of all gaps.
    free: u64,
    /// Lengths of the gaps by the byte behind them; all within the limit, no two adjacent. Bytes are taken from the front of a
    /// gap and mostly come back there, so the gap keeps its entry.
    gaps: BTreeMap<u64, u64>,
    /// The gaps by length: length and first byte.
    sizes: BTreeSet<(u64, u64)>,
    /// Lengths and owners of the other runs by first byte; not kept for an endless tier.
    owners: Option<BTreeMap<u64, (u64, ExtentId)>>,
}

impl Space {
    /// Makes a space that is all free. The capacity is rounded down to whole alignments.
    pub(crate) fn new(capacity: u64, alignment: u64) -> Self {
        let alignment = alignment.max(1);
        let capacity = capacity.min(1 << 60) / alignment * alignment;
        let mut space = Self {
            capacity,
            alignment,
            limit: capacity,
            used: 0,
            free: 0,
            gaps: BTreeMap::new(),
            sizes: BTreeSet::new(),
            owners: (capacity < ENDLESS).then(BTreeMap::new),
        };
        space.add_gap(0..capacity);
        space
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Returns the bytes that `size` bytes occupy.
    pub(crate) fn reserved(&self, size: u64) -> u64 {
        let units = size.div_ceil(self.alignment);
        units.saturating_mul(self.alignment)
    }

    /// Returns true if `size` bytes fit within the limit once nothing else is there.
    pub(crate) fn holds(&self, size: u64) -> bool {
        self.reserved(size) <= self.limit
    }

    /// Bytes that are free and within the limit.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Returns the first byte of the smallest gap of at least `bytes` bytes.
    pub(crate) fn gap(&self, bytes: u64) -> Option<u64> {
        // Mostly the smallest gap is large enough: a search in the tree takes five times as many instructions as this look.
        let smallest = self.sizes.first().filter(|gap| gap.0 >= bytes);
        let gap = smallest.or_else(|| self.sizes.range((bytes, 0)..).next());
        gap.map(|&(_, offset)| offset)
    }

    /// Returns free runs of up to `bytes` bytes together: the smallest gap that is large enough alone, or else the
    /// largest gaps, each but the last in multiples of `grain`.
    pub(crate) fn find(&self, bytes: u64, grain: u64) -> Runs {
        if let Some(offset) = self.gap(bytes) {
            return smallvec![offset..offset + bytes];
        }
        let mut left = bytes;
        let mut runs = Runs::new();
        for &(gap, offset) in self.sizes.iter().rev() {
            let taken = match gap < left {
                true => gap / grain * grain,
                false => left,
            };
            if taken == 0 {
                break;
            }
            runs.push(offset..offset + taken);
            left -= taken;
        }
        runs
    }

    /// Sets a free run aside.
    pub(crate) fn take(&mut self, run: Range<u64>, owner: ExtentId) {
        let Some((&end, bytes)) = self.gaps.range_mut(run.end..).next() else {
            return;
        };
        let start = end - *bytes;
        debug_assert!(start <= run.start, "only what is free is set aside");
        match end - run.end {
            0 => self.remove_gap(start..end),
            behind => {
                self.sizes.remove(&(*bytes, start));
                self.sizes.insert((behind, run.end));
                *bytes = behind;
                self.free -= run.end - start;
            }
        }
        self.add_gap(start..run.start);
        self.used += run.end - run.start;
        if let Some(owners) = &mut self.owners {
            owners.insert(run.start, (run.end - run.start, owner));
        }
    }

    /// Frees a run that was set aside.
    pub(crate) fn give(&mut self, run: Range<u64>) {
        self.used -= run.end - run.start;
        if let Some(owners) = &mut self.owners {
            owners.remove(&run.start);
        }
        self.open(run);
    }

    /// Makes a gap of a run without owner, as far as it lies within the limit.
    fn open(&mut self, run: Range<u64>) {
        let mut run = run.start..run.end.min(self.limit);
        if run.is_empty() {
            return;
        }
        if let Some(&bytes) = self.gaps.get(&run.start) {
            let before = run.start - bytes..run.start;
            run.start = before.start;
            self.remove_gap(before);
        }
        match self.gaps.range_mut(run.end..).next() {
            Some((end, bytes)) if end - *bytes == run.end => {
                self.sizes.remove(&(*bytes, run.end));
                *bytes = end - run.start;
                self.sizes.insert((*bytes, run.start));
                self.free += run.end - run.start;
            }
            _ => self.add_gap(run),
        }
    }

    fn add_gap(&mut self, run: Range<u64>) {
        if !run.is_empty() {
            self.free += run.end - run.start;
            self.gaps.insert(run.end, run.end - run.start);
            self.sizes.insert((run.end - run.start, run.start));
        }
    }

    fn remove_gap(&mut self, gap: Range<u64>) {
        self.free -= gap.end - gap.start;
        self.gaps.remove(&gap.end);
        self.sizes.remove(&(gap.end - gap.start, gap.start));
    }

    /// Splits the run at `offset` in two extents: `second` begins `at` bytes later.
    pub(crate) fn split(&mut self, offset: u64, at: u64, second: ExtentId) {
        if let Some(owners) = &mut self.owners
            && let Some((bytes, _)) = owners.get_mut(&offset)
        {
            let rest = std::mem::replace(bytes, at) - at;
            owners.insert(offset + at, (rest, second));
        }
    }

    /// Joins the run at `offset` with the one `at` bytes later into one extent.
    pub(crate) fn merge(&mut self, offset: u64, at: u64) {
        if let Some(owners) = &mut self.owners
            && let Some((rest, _)) = owners.remove(&(offset + at))
            && let Some((bytes, _)) = owners.get_mut(&offset)
        {
            *bytes += rest;
        }
    }

    /// Frees the end of the run at `offset`, which then occupies `to` instead of `from` bytes.
    pub(crate) fn shrink(&mut self, offset: u64, from: u64, to: u64) {
        if to >= from {
            return;
        }
        if let Some(owners) = &mut self.owners
            && let Some((bytes, _)) = owners.get_mut(&offset)
        {
            *bytes = to;
        }
        self.used -= from - to;
        self.open(offset + to..offset + from);
    }

    /// Limits use to the first `bytes`.
    pub(crate) fn set_limit(&mut self, bytes: u64) {
        let limit = bytes.min(self.capacity) / self.alignment * self.alignment;
        let before = std::mem::replace(&mut self.limit, limit);
        let last_first = self.gaps.iter().rev();
        let cut: Vec<_> = last_first
            .map(|(&end, &bytes)| end - bytes..end)
            .take_while(|gap| gap.end > limit)
            .collect();
        for gap in cut {
            let start = gap.start;
            self.remove_gap(gap);
            self.add_gap(start..limit.max(start));
        }
        if limit > before {
            // The runs beyond the old limit keep their owners; the bytes between them are free again.
            let owners = self.owners.iter().flat_map(|owners| owners.range(..limit));
            let taken: Vec<_> = owners
                .map(|(&offset, &(bytes, _))| offset..offset + bytes)
                .filter(|run| run.end > before)
                .collect();
            let mut from = before;
            for run in taken {
                self.open(from..run.start.max(from));
                from = run.end.max(from);
            }
            self.open(from..limit.max(from));
        }
    }

    /// Returns the extents that lie beyond the limit, wholly or in part, the last one first.
    pub(crate) fn beyond_limit(&self) -> impl Iterator<Item = ExtentId> + '_ {
        let owners = self.owners.iter().flat_map(|owners| owners.iter().rev());
        owners
            .take_while(|&(offset, (bytes, _))| offset + bytes > self.limit)
            .map(|(_, &(_, owner))| owner)
    }

    /// Returns the fragments within the limit in ascending order. The owned runs of an endless tier are not known.
    pub(crate) fn fragments(&self) -> Vec<Fragment> {
        self.fragments_in(0..self.limit)
    }

    /// Returns the fragments that lie in `run`, or in a part of it, and within the limit; in the order of their bytes.
    pub(crate) fn fragments_in(&self, run: Range<u64>) -> Vec<Fragment> {
        // The fragment before may reach into the run.
        let first = |before: Option<u64>| before.unwrap_or(run.start);
        let owned = self.owners.iter().flat_map(|owners| {
            let before = owners.range(..run.start).next_back();
            owners.range(first(before.map(|(&at, _)| at))..run.end)
        });
        let owned = owned.map(|(&offset, &(bytes, owner))| Fragment {
            offset,
            bytes,
            owner: Some(owner),
        });
        let gaps = self.gaps.range(run.start..);
        let gaps = gaps.map(|(&end, &bytes)| Fragment {
            offset: end - bytes,
            bytes,
            owner: None,
        });
        let gaps = gaps.take_while(|gap| gap.offset < run.end);
        let mut fragments: Vec<_> = owned.chain(gaps).collect();
        fragments.retain(|fragment| {
            let end = fragment.offset + fragment.bytes;
            end > run.start && end <= self.limit
        });
        fragments.sort_unstable_by_key(|fragment| fragment.offset);
        fragments
    }

    /// Makes a space like this in which these runs alone are set aside.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn with_runs(&self, runs: Vec<(Range<u64>, ExtentId)>) -> Self {
        let mut like = Self::new(self.capacity, self.alignment);
        runs.into_iter().for_each(|(run, id)| like.take(run, id));
        like.set_limit(self.limit);
        like
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Take(u64),
        Give(prop::sample::Index),
        Split(prop::sample::Index),
        Limit(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_u64..30).prop_map(Step::Take),
            3 => any::<prop::sample::Index>().prop_map(Step::Give),
            1 => any::<prop::sample::Index>().prop_map(Step::Split),
            1 => (0_u64..110).prop_map(Step::Limit),
        ]
    }

    proptest! {
        #[test]
        fn every_byte_is_free_or_has_one_owner(steps in prop::collection::vec(step(), 1..120)) {
            let mut space = Space::new(100, 1);
            let mut taken: Vec<(Range<u64>, ExtentId)> = Vec::new();
            let mut name = 0;
            for step in steps {
                match step {
                    Step::Take(bytes) => {
                        if space.free() < bytes {
                            continue;
                        }
                        let runs = space.find(bytes, 1);
                        prop_assert_eq!(runs.iter().map(|run| run.end - run.start).sum::<u64>(), bytes);
                        prop_assert!(runs.len() == 1 || space.gap(bytes).is_none());
                        for run in runs {
                            prop_assert!(run.end <= space.limit());
                            prop_assert!(taken.iter().all(|(t, _)| t.end <= run.start || run.end <= t.start));
                            name += 1;
                            space.take(run.clone(), (name, 0));
                            taken.push((run, (name, 0)));
                        }
                    }
                    Step::Give(index) if !taken.is_empty() => {
                        let (run, _) = taken.swap_remove(index.index(taken.len()));
                        space.give(run);
                    }
                    Step::Split(index) if !taken.is_empty() => {
                        let at = index.index(taken.len());
                        let (run, first) = taken[at].clone();
                        if run.end - run.start > 1 {
                            space.split(run.start, 1, (0, 1));
                            taken[at] = (run.start..run.start + 1, first);
                            taken.push((run.start + 1..run.end, (0, 1)));
                        }
                    }
                    Step::Limit(limit) => {
                        space.set_limit(limit);
                        let beyond = taken.iter().filter(|(run, _)| run.end > space.limit()).count();
                        prop_assert_eq!(space.beyond_limit().count(), beyond);
                    }
                    Step::Give(_) | Step::Split(_) => {}
                }
                prop_assert_eq!(space.used(), taken.iter().map(|(run, _)| run.end - run.start).sum::<u64>());
                prop_assert_eq!(&space, &space.with_runs(taken.clone()));
            }
        }
    }
}
