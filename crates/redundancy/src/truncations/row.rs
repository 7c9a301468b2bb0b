//! Rows of versions whose protection does not count, and their names on the disk.

use crate::wire::wire;
use std::collections::BTreeSet;

/// A row goes on with one of so many that began last: few versions lie between those of a row.
const NEAR: usize = 8;

/// Versions from `from` to `last`, at equal distances, that were protected in earlier starts than `start` do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Truncation {
    /// The start that went on from an older version, or the one behind that in which the versions were discarded.
    pub(crate) start: u64,
    /// The first version that does not count.
    pub(crate) from: u64,
    /// The last one: [`u64::MAX`] unless the versions were discarded.
    pub(crate) last: u64,
    /// The distance from one of the versions to the next; 1 for a single one.
    pub(crate) step: u64,
}

impl Truncation {
    /// Returns the truncation of all versions from one on.
    pub(crate) fn behind(start: u64, from: u64) -> Self {
        Self {
            start,
            from,
            last: u64::MAX,
            step: 1,
        }
    }

    /// A version that was discarded.
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

    /// Returns true if the versions were discarded one by one.
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
        // Names of other forms are not ours.
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

    /// Returns true if the version was discarded, in whichever start it was protected.
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

    /// The row from one of its versions to another one; `None` if there is none in between.
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

    /// Returns one row for this and another one, which does not begin before it; `None` if that were versions at other distances.
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

/// Rows of versions, with those of `old`, the rows of the same start. Three versions at equal distances make a row, or two that no number
/// parts.
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
        // As directories have it that were written before discarded versions were noted.
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
