//! Rows of versions whose protection does not count, and their names on the disk.

use crate::wire::wire;
use std::collections::BTreeSet;

/// Number of rows, the last that began, with which a next version may be joined: few versions lie between those of a row.
const NEAR: usize = 8;

/// A truncation: versions from `from` to `last`, at equal distances, do not count if they were protected in an earlier start than `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Truncation {
    /// The start that went on from an older version; for discarded versions, the start after the one that discarded them.
    pub(crate) start: u64,
    /// The first version that does not count.
    pub(crate) from: u64,
    /// The last version that does not count: [`u64::MAX`] unless the versions were discarded.
    pub(crate) last: u64,
    /// The distance from one version to the next; 1 for a single version.
    pub(crate) step: u64,
}

impl Truncation {
    /// Returns the truncation of all versions from `from` on.
    pub(crate) fn behind(start: u64, from: u64) -> Self {
        Self {
            start,
            from,
            last: u64::MAX,
            step: 1,
        }
    }

    /// Returns the truncation of a discarded version.
    pub(crate) fn discarded(start: u64, version: u64) -> Self {
        Self {
            start,
            from: version,
            last: version,
            step: 1,
        }
    }

    pub(crate) fn name(self) -> String {
        let Self {
            start,
            from,
            last,
            step,
        } = self;
        match (self.is_of_discarded(), step) {
            (true, 1) => format!("s{start:020}-{from:020}-{last:020}.cut"),
            (true, step) => format!("s{start:020}-{from:020}-{last:020}-{step:020}.cut"),
            (false, _) => format!("s{start:020}-{from:020}.cut"),
        }
    }

    /// Returns true if the versions were discarded, and false for a run that went on from an older version.
    pub(super) fn is_of_discarded(self) -> bool {
        self.last != u64::MAX
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let numbers = name.strip_suffix(".cut")?.strip_prefix('s')?;
        let mut numbers = numbers.split('-').map(|number| number.parse().ok());
        let truncation = Self {
            start: numbers.next()??,
            from: numbers.next()??,
            last: numbers.next().unwrap_or(Some(u64::MAX))?,
            step: numbers.next().unwrap_or(Some(1))?,
        };
        // A name of another form is no truncation.
        let is_row = truncation.step > 0 && truncation.has(truncation.last);
        (is_row && truncation.name() == name).then_some(truncation)
    }

    pub(crate) fn hits(self, version: u64, start: u64) -> bool {
        self.has(version) && start < self.start
    }

    fn has(self, version: u64) -> bool {
        (self.from..=self.last).contains(&version)
            && (version - self.from).is_multiple_of(self.step)
    }

    /// Returns true if the version was discarded, whatever start protected it.
    pub(crate) fn has_discarded(self, version: u64) -> bool {
        self.is_of_discarded() && self.has(version)
    }

    pub(super) fn covers(self, other: Self) -> bool {
        let is_within = self.from <= other.from && self.last >= other.last;
        self.step == 1 && self.start >= other.start && is_within
    }

    fn is_single(self) -> bool {
        self.from == self.last
    }

    /// Returns the part of the row from its version `from` to its version `last`; `None` if `from` is above `last`.
    pub(super) fn part(self, from: u64, last: u64) -> Option<Self> {
        let step = if from == last { 1 } else { self.step };
        let part = Self {
            from,
            last,
            step,
            ..self
        };
        (from <= last).then_some(part)
    }

    /// Returns a single row for this row and `next`, which does not begin before it; `None` if their versions are not at equal distances.
    fn with(self, next: Self) -> Option<Self> {
        let step = if self.is_single() {
            next.step
        } else {
            self.step
        };
        let is_equal = next.is_single() || next.step == step;
        let is_in_step = (next.from - self.from).is_multiple_of(step);
        let touches = next.from <= self.last.saturating_add(step);
        (is_equal && is_in_step && touches).then(|| Self {
            last: self.last.max(next.last),
            step,
            ..self
        })
    }
}

wire!(Truncation {
    start,
    from,
    last,
    step
});

/// Returns the rows of `versions` and of `old`, the rows of the same start. Three versions at equal distances make a row, as do two
/// consecutive versions.
pub(super) fn rows(
    start: u64,
    old: &BTreeSet<Truncation>,
    versions: &BTreeSet<u64>,
) -> BTreeSet<Truncation> {
    let is_new = |version: &&u64| !old.iter().any(|row| row.has(**version));
    let new = versions.iter().filter(is_new);
    let new = new.map(|version| Truncation::discarded(start, *version));
    let mut all: Vec<Truncation> = new.chain(old.iter().copied()).collect();
    all.sort_unstable();
    let mut rows: Vec<Truncation> = Vec::new();
    for next in all {
        let mut near = rows.iter_mut().rev().take(NEAR);
        let joined = near.find_map(|row| Some((row.with(next)?, row)));
        if let Some((whole, row)) = joined {
            *row = whole;
            continue;
        }
        if let [.., first, second] = rows.as_mut_slice()
            && [*first, *second, next].iter().all(|row| row.is_single())
            && second.from - first.from == next.from - second.from
        {
            first.step = next.from - second.from;
            first.last = next.last;
            rows.pop();
            continue;
        }
        rows.push(next);
    }
    rows.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (last, step) in [(12, 1), (40, 1), (40, 7), (u64::MAX, 1)] {
            let truncation = Truncation {
                start: 3,
                from: 12,
                last,
                step,
            };
            assert_eq!(Truncation::parse(&truncation.name()), Some(truncation));
        }
        // The name has the form of releases in which discarded versions were not noted.
        let before = "s00000000000000000003-00000000000000000012.cut";
        assert_eq!(Truncation::parse(before), Some(Truncation::behind(3, 12)));
        for other in [
            "s3-12.cut",
            "s3-12-14.cut",
            "s00000000000000000003-00000000000000000012-00000000000000000014-00000000000000000001.cut",
            "s00000000000000000003-00000000000000000012-00000000000000000014-00000000000000000000.cut",
            "s00000000000000000003-00000000000000000012-00000000000000000015-00000000000000000002.cut",
            "00000000000000000012.parity",
            ".cut",
        ] {
            assert_eq!(Truncation::parse(other), None, "{other}");
        }
    }
}
