//! Retention: the choice of the versions that stay.

use super::{PieceInfo, VersionInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A rule for the versions that stay: those that any part of the rule keeps, and all of their bases, direct or indirect. Versions
/// newer than the newest whole one stay as well, since they may still be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    newest: usize,
    every: Option<u64>,
    younger_than: Option<Duration>,
}

impl Retention {
    /// Keeps the `count` newest whole versions. The newest one is kept in any case.
    #[must_use]
    pub fn newest(count: usize) -> Self {
        Self {
            newest: count.max(1),
            every: None,
            younger_than: None,
        }
    }

    /// Also keeps versions whose numbers are multiples of `step`.
    #[must_use]
    pub fn and_every(self, step: u64) -> Self {
        let every = Some(step).filter(|step| *step > 0);
        Self { every, ..self }
    }

    /// Also keeps versions that were written less than `age` ago. If the clock was set back, a version from the future counts as
    /// young. If it was set forward, this part of the rule keeps less; the other parts are not affected.
    #[must_use]
    pub fn and_younger_than(self, age: Duration) -> Self {
        Self {
            younger_than: Some(age),
            ..self
        }
    }

    /// Returns the versions in `whole` that the rule gives up now. `whole` contains the whole versions in ascending order.
    #[must_use]
    pub fn given_up(&self, whole: &[VersionInfo]) -> Vec<u64> {
        let bases = whole
            .iter()
            .filter_map(|info| Some((info.version, info.base?)));
        let kept = self.kept(whole, &bases.collect(), super::save::now());
        let versions = whole.iter().map(|info| info.version);
        versions.filter(|version| !kept.contains(version)).collect()
    }

    /// Returns those of a rank's `pieces` whose versions are not in `whole` and that the rule gives up now: other ranks gave theirs
    /// up before. Pieces newer than the newest whole version, and pieces that the rule would keep, may still be completed.
    #[must_use]
    pub fn left_behind(&self, whole: &[VersionInfo], pieces: &[PieceInfo]) -> Vec<u64> {
        let Some(newest) = whole.last().map(|info| info.version) else {
            return Vec::new();
        };
        let is_whole = |version: &u64| {
            let found = whole.binary_search_by_key(version, |info| info.version);
            found.is_ok()
        };
        let pieces = pieces.iter().filter(|piece| piece.version < newest);
        let alone = pieces.filter(|piece| !is_whole(&piece.version));
        let alone = alone.map(|piece| VersionInfo {
            version: piece.version,
            ranks: piece.ranks,
            bytes: piece.bytes,
            decoded: piece.decoded,
            created: piece.identity.created,
            run: piece.identity.run,
            base: piece.identity.base,
        });
        let mut all: Vec<VersionInfo> = whole.iter().copied().chain(alone).collect();
        all.sort_unstable_by_key(|info| info.version);
        let mut given_up = self.given_up(&all);
        given_up.retain(|version| !is_whole(version));
        given_up
    }

    /// Returns the versions that stay: those of `whole` (ascending) that the rule keeps, all versions newer than the newest whole
    /// one, and the bases of all these. `bases` maps the version of each existing piece to its base. `now` is in nanoseconds since
    /// 1970.
    pub(super) fn kept(
        &self,
        whole: &[VersionInfo],
        bases: &BTreeMap<u64, u64>,
        now: u64,
    ) -> BTreeSet<u64> {
        let first_newest = whole.len().saturating_sub(self.newest);
        let keeps = |(at, info): &(usize, &VersionInfo)| {
            let age = Duration::from_nanos(now.saturating_sub(info.created));
            *at >= first_newest
                || self
                    .every
                    .is_some_and(|step| info.version.is_multiple_of(step))
                || self.younger_than.is_some_and(|limit| age < limit)
        };
        let versions = whole.iter().enumerate().filter(keeps);
        let mut kept: BTreeSet<u64> = versions.map(|(_, info)| info.version).collect();
        let newest = whole.last().map(|info| info.version);
        kept.extend(bases.keys().filter(|version| Some(**version) > newest));
        with_bases(kept, bases)
    }
}

/// Returns `versions` and all of their bases, direct or indirect. `bases` maps versions to their bases.
#[must_use]
pub fn with_bases(versions: BTreeSet<u64>, bases: &BTreeMap<u64, u64>) -> BTreeSet<u64> {
    let mut needed = versions.clone();
    for version in versions {
        let mut at = version;
        while let Some(base) = bases.get(&at)
            && needed.insert(*base)
        {
            at = *base;
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(versions: impl IntoIterator<Item = u64>) -> Vec<VersionInfo> {
        let info = |version| VersionInfo {
            version,
            ranks: 1,
            bytes: 0,
            decoded: None,
            created: version * 1_000,
            run: 0,
            base: None,
        };
        versions.into_iter().map(info).collect()
    }

    fn kept(rule: Retention, bases: &[(u64, u64)], now: u64) -> Vec<u64> {
        let bases = bases.iter().copied().collect();
        rule.kept(&whole(1..=9), &bases, now).into_iter().collect()
    }

    #[test]
    fn a_version_stays_if_any_rule_keeps_it() {
        assert_eq!(kept(Retention::newest(2), &[], 0), [8, 9]);
        assert_eq!(kept(Retention::newest(0), &[], u64::MAX), [9]);
        assert_eq!(kept(Retention::newest(1).and_every(4), &[], 0), [4, 8, 9]);
        let young = Retention::newest(1).and_younger_than(Duration::from_nanos(2_500));
        assert_eq!(kept(young, &[], 9_000), [7, 8, 9]);
    }

    #[test]
    fn what_other_ranks_gave_up_is_left_behind() {
        let piece = |version| PieceInfo {
            version,
            ranks: 2,
            identity: crate::Identity {
                epoch: 1,
                sequence: version,
                run: 0,
                created: 0,
                content: 0,
                base: None,
            },
            bytes: 0,
            decoded: None,
        };
        let pieces: Vec<PieceInfo> = (1..=12).map(piece).collect();
        let left = |rule: Retention| rule.left_behind(&whole([8, 10]), &pieces);
        // Version 9 is about to be complete, as are 11 and 12.
        assert_eq!(left(Retention::newest(2)), [1, 2, 3, 4, 5, 6, 7]);
        let fourth = Retention::newest(1).and_every(4);
        assert_eq!(left(fourth), [1, 2, 3, 5, 6, 7, 9]);
        assert_eq!(Retention::newest(1).left_behind(&[], &pieces), []);
    }

    #[test]
    fn a_clock_that_jumps_never_takes_the_newest() {
        let young = Retention::newest(2).and_younger_than(Duration::from_secs(1));
        assert_eq!(kept(young, &[], u64::MAX), [8, 9]);
        assert_eq!(kept(young, &[], 0).len(), 9);
    }

    #[test]
    fn what_a_difference_needs_stays() {
        let bases = [(9, 7), (7, 2), (4, 3)];
        assert_eq!(kept(Retention::newest(1), &bases, 0), [2, 7, 9]);
    }

    #[test]
    fn what_is_not_yet_whole_stays_with_its_base() {
        assert_eq!(kept(Retention::newest(1), &[(11, 5)], 0), [5, 9, 11]);
    }
}
