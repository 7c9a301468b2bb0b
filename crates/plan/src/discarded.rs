//! The discarded versions, as disjoint ranges: consecutive numbers cost one entry. Numbers with gaps between them, as those of
//! VELOC's checkpoints, cost one each; of them, those below the highest ranges are forgotten, so that a long run stays level.

use crate::Version;
use std::collections::BTreeMap;

/// Ranges that are remembered: some 128 KiB of them.
const MOST_RANGES: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Discarded {
    /// First version to last version of each range, both included.
    ranges: BTreeMap<Version, Version>,
}

impl Discarded {
    pub(crate) fn insert(&mut self, version: Version) {
        // Ranges do not touch: none begins right behind a version that is there.
        let next = version.checked_add(1);
        let behind = next.and_then(|next| self.ranges.remove(&next));
        let last = behind.unwrap_or(version);
        match self.ranges.range_mut(..=version).next_back() {
            Some((_, end)) if version <= *end => {}
            Some((_, end)) if end.checked_add(1) == Some(version) => *end = last,
            _ => drop(self.ranges.insert(version, last)),
        }
        if self.ranges.len() > MOST_RANGES {
            self.ranges.pop_first();
        }
    }

    /// Returns the greatest discarded version.
    pub(crate) fn last(&self) -> Option<Version> {
        self.ranges.last_key_value().map(|(_, &last)| last)
    }

    pub(crate) fn contains(&self, version: Version) -> bool {
        // A new version mostly is greater than all of them.
        let may_be = self.last().is_some_and(|last| version <= last);
        let range = || self.ranges.range(..=version).next_back();
        may_be && range().is_some_and(|(_, &end)| version <= end)
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
        assert_eq!(discarded.last(), model.iter().copied().max());
        discarded.insert(Version::MAX);
        assert_eq!(discarded.last(), Some(Version::MAX));
        assert!(discarded.contains(Version::MAX));
        assert_eq!(discarded.ranges.len(), 2);
    }

    #[test]
    fn of_numbers_with_gaps_the_highest_are_remembered() {
        let mut discarded = Discarded::default();
        let versions = 10 * MOST_RANGES as Version;
        for version in (0..versions).step_by(2) {
            discarded.insert(version);
        }
        assert_eq!(discarded.ranges.len(), MOST_RANGES);
        let lowest = versions - 2 * MOST_RANGES as Version;
        for version in 0..versions {
            let is_remembered = version >= lowest && version.is_multiple_of(2);
            assert_eq!(discarded.contains(version), is_remembered, "{version}");
        }
    }
}
