//! Truncations: protection that does not count any more. A run that goes on from an older version gives up what redundancy protects of
//! newer ones, and a rank that discards versions what it protects of these: each by a file in the rank's parity store, named by the start
//! and the versions. A note of one rank counts for all.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Versions from `from` to `last` that were protected in earlier starts than `start` do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Truncation {
    /// The start that went on from an older version, or the one behind that in which the versions were discarded.
    pub(crate) start: u64,
    /// The first version that does not count.
    pub(crate) from: u64,
    /// The last one: [`u64::MAX`] unless the versions were discarded.
    pub(crate) last: u64,
}

/// No more runs that went on from older versions are remembered.
const MOST: usize = 64;
/// No more rows of discarded versions are remembered. Ranks remove hundreds of versions at a time, which may be as many rows.
const MOST_ROWS: usize = 512;

impl Truncation {
    /// From a version on.
    pub(crate) fn behind(start: u64, from: u64) -> Self {
        let last = u64::MAX;
        Self { start, from, last }
    }

    fn name(self) -> String {
        let Self { start, from, last } = self;
        match self.is_of_discarded() {
            true => format!("s{start:020}-{from:020}-{last:020}.cut"),
            false => format!("s{start:020}-{from:020}.cut"),
        }
    }

    /// Returns true if the versions were discarded one by one.
    fn is_of_discarded(self) -> bool {
        self.last != u64::MAX
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (start, from) = name
            .strip_suffix(".cut")?
            .strip_prefix('s')?
            .split_once('-')?;
        let (from, last) = match from.split_once('-') {
            Some((from, last)) => (from, last.parse().ok()?),
            None => (from, u64::MAX),
        };
        let truncation = Self {
            start: start.parse().ok()?,
            from: from.parse().ok()?,
            last,
        };
        // Names of other forms are not ours.
        (truncation.name() == name).then_some(truncation)
    }

    pub(crate) fn hits(self, version: u64, start: u64) -> bool {
        self.has(version) && start < self.start
    }

    fn has(self, version: u64) -> bool {
        (self.from..=self.last).contains(&version)
    }

    /// Returns true if the version was discarded, in whichever start it was protected.
    pub(crate) fn has_discarded(self, version: u64) -> bool {
        self.is_of_discarded() && self.has(version)
    }

    /// Truncations as words of a message.
    pub(crate) fn encode<'a>(all: impl IntoIterator<Item = &'a Self>) -> Vec<u64> {
        let words = |one: &Self| [one.start, one.from, one.last];
        all.into_iter().flat_map(words).collect()
    }

    /// The truncations of [`Self::encode`]; `None` for other words.
    pub(crate) fn decode(words: &[u64]) -> Option<Vec<Self>> {
        let (all, []) = words.as_chunks() else {
            return None;
        };
        let one = |[start, from, last]: &[u64; 3]| Self {
            start: *start,
            from: *from,
            last: *last,
        };
        Some(all.iter().map(one).collect())
    }

    fn covers(self, other: Self) -> bool {
        self.start >= other.start && self.from <= other.from && self.last >= other.last
    }
}

/// Rows of consecutive versions, with those of `old` that they touch.
fn rows(start: u64, old: &[Truncation], versions: &BTreeSet<u64>) -> BTreeSet<Truncation> {
    let one = |version: &u64| Truncation {
        start,
        from: *version,
        last: *version,
    };
    let mut all: Vec<Truncation> = versions
        .iter()
        .map(one)
        .chain(old.iter().copied())
        .collect();
    all.sort_unstable();
    let mut rows: Vec<Truncation> = Vec::new();
    for next in all {
        match rows.last_mut() {
            Some(row) if next.from <= row.last.saturating_add(1) => {
                row.last = row.last.max(next.last);
            }
            _ => rows.push(next),
        }
    }
    rows.into_iter().collect()
}

/// The truncations of one rank.
#[derive(Debug, Default)]
pub(crate) struct Truncations {
    /// The truncations that count, some of which are on the disk.
    known: BTreeSet<Truncation>,
    /// True if some lay in the rank's directory when it was opened: its node was not lost since.
    were_noted: bool,
    /// The truncations that lie in another directory of the rank, until this run begins to write a version of its own.
    unmoved: BTreeSet<Truncation>,
    /// The truncation of this run, until it begins to write a version of its own.
    unwritten: Option<Truncation>,
    /// The truncations whose versions may still be there.
    untidy: Vec<Truncation>,
}

impl Truncations {
    /// Reads the truncations that are on the disk from their names.
    pub(crate) fn of(names: &[String]) -> Self {
        let known = names.iter().filter_map(|name| Truncation::parse(name));
        let known: BTreeSet<Truncation> = known.collect();
        Self {
            were_noted: !known.is_empty(),
            known,
            ..Self::default()
        }
    }

    pub(crate) fn known(&self) -> &BTreeSet<Truncation> {
        &self.known
    }

    pub(crate) fn were_noted(&self) -> bool {
        self.were_noted
    }

    /// Takes those of another directory of the rank, which is removed once a version of this run is protected: the next save notes them
    /// here.
    pub(crate) fn take_over(&mut self, own: impl IntoIterator<Item = Truncation>) {
        for one in own {
            self.were_noted = true;
            if self.known.insert(one) {
                self.unmoved.insert(one);
            }
        }
    }

    /// Takes those of other ranks, which count as well.
    pub(crate) fn extend(&mut self, others: impl IntoIterator<Item = Truncation>) {
        self.known.extend(others);
    }

    /// Gives up what one hits, once a version of this run is begun.
    pub(crate) fn give_up(&mut self, truncation: Truncation) {
        self.unwritten = Some(truncation);
    }

    /// Notes in a directory what was given up, before a version of this run is written.
    pub(crate) fn note(&mut self, directory: &Path) -> Result<()> {
        make(directory, self.unmoved.iter().copied())?;
        self.unmoved.clear();
        let Some(new) = self.unwritten else {
            return Ok(());
        };
        make(directory, [new])?;
        self.unwritten = None;
        self.untidy.push(new);
        let known = std::mem::take(&mut self.known).into_iter();
        let (mut old, kept): (Vec<_>, Vec<_>) = known.partition(|known| new.covers(*known));
        self.known.extend(kept);
        self.known.insert(new);
        old.extend(self.forget(MOST, |one| !one.is_of_discarded()));
        for old in old.into_iter().filter(|old| *old != new) {
            // The file hits nothing that others do not.
            let _of_no_use = remove(&directory.join(old.name()));
        }
        Ok(())
    }

    /// Notes in a directory that versions are discarded: what was protected of them before `start` does not count. Rows of consecutive
    /// versions of one start are one file.
    pub(crate) fn discard(
        &mut self,
        directory: &Path,
        start: u64,
        versions: &BTreeSet<u64>,
    ) -> Result<()> {
        let old: Vec<Truncation> = self.rows().filter(|row| row.start == start).collect();
        let new = rows(start, &old, versions);
        self.replace(directory, &old, &new)
    }

    /// Takes back that a version is discarded: its number was used again, and what is protected of it in a start counts from now on.
    pub(crate) fn take_back(&mut self, directory: &Path, start: u64, version: u64) -> Result<()> {
        let hits = |row: &Truncation| row.hits(version, start);
        let old: Vec<Truncation> = self.rows().filter(hits).collect();
        let parts = old.iter().flat_map(|row| {
            let before = version
                .checked_sub(1)
                .map(|last| Truncation { last, ..*row });
            let from = version.saturating_add(1);
            [before, Some(Truncation { from, ..*row })]
        });
        let parts = parts.flatten().filter(|row| row.from <= row.last);
        self.replace(directory, &old, &parts.collect())
    }

    /// The rows of discarded versions.
    fn rows(&self) -> impl Iterator<Item = Truncation> {
        let known = self.known.iter().copied();
        known.filter(|known| known.is_of_discarded())
    }

    /// Replaces rows of discarded versions, of which each is on the disk, and the oldest beyond a limit.
    fn replace(
        &mut self,
        directory: &Path,
        old: &[Truncation],
        new: &BTreeSet<Truncation>,
    ) -> Result<()> {
        make(directory, new.difference(&self.known).copied())?;
        self.known.extend(new);
        for old in old.iter().filter(|old| !new.contains(old)) {
            remove(&directory.join(old.name()))?;
            self.known.remove(old);
        }
        let forgotten = self.forget(MOST_ROWS, Truncation::is_of_discarded);
        forgotten
            .iter()
            .try_for_each(|old| remove(&directory.join(old.name())))
    }

    /// Forgets the oldest of a kind beyond `most`, and returns them.
    fn forget(&mut self, most: usize, kind: impl Fn(Truncation) -> bool) -> Vec<Truncation> {
        let of_kind: Vec<Truncation> = self
            .known
            .iter()
            .copied()
            .filter(|one| kind(*one))
            .collect();
        let (old, _) = of_kind.split_at(of_kind.len().saturating_sub(most));
        self.known.retain(|known| !old.contains(known));
        old.to_vec()
    }

    /// Enters one whose versions may still be there, and are not needed by any rank.
    pub(crate) fn tidy_later(&mut self, truncation: Truncation) {
        self.untidy.push(truncation);
    }

    /// The truncations whose versions may still be there. They are said once.
    pub(crate) fn take_untidy(&mut self) -> Vec<Truncation> {
        std::mem::take(&mut self.untidy)
    }
}

/// Makes the files of truncations, which are on the disk then.
fn make(directory: &Path, new: impl IntoIterator<Item = Truncation>) -> Result<()> {
    let mut is_any = false;
    for new in new {
        let path = directory.join(new.name());
        let made = File::create(&path).and_then(|file| file.sync_all());
        made.map_err(Error::io(&path))?;
        is_any = true;
    }
    let sync = || File::open(directory).and_then(|directory| directory.sync_all());
    match is_any {
        true => sync().map_err(Error::io(directory)),
        false => Ok(()),
    }
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for last in [12, 40, u64::MAX] {
            let truncation = Truncation {
                start: 3,
                from: 12,
                last,
            };
            assert_eq!(Truncation::parse(&truncation.name()), Some(truncation));
        }
        // As directories have it that were written before discarded versions were noted.
        let before = "s00000000000000000003-00000000000000000012.cut";
        assert_eq!(Truncation::parse(before), Some(Truncation::behind(3, 12)));
        for other in [
            "s3-12.cut",
            "s3-12-14.cut",
            "00000000000000000012.parity",
            ".cut",
        ] {
            assert_eq!(Truncation::parse(other), None, "{other}");
        }
    }

    #[test]
    fn nothing_is_noted_before_a_version_is_begun() {
        let home = tempfile::tempdir().unwrap();
        let names = || {
            let entries = std::fs::read_dir(home.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect::<Vec<_>>()
        };
        let mut truncations = Truncations::default();
        truncations.give_up(Truncation::behind(2, 5));
        assert!(names().is_empty() && truncations.known().is_empty());
        truncations.note(home.path()).unwrap();
        truncations.give_up(Truncation::behind(3, 4));
        truncations.note(home.path()).unwrap();
        let there = Truncations::of(&names());
        assert_eq!(there.known(), truncations.known());
        assert!(there.were_noted());
        assert_eq!(there.known(), &[Truncation::behind(3, 4)].into());
    }

    #[test]
    fn rows_of_discarded_versions_grow_and_are_taken_apart() {
        let home = tempfile::tempdir().unwrap();
        let on_disk = || {
            let entries = std::fs::read_dir(home.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            Truncations::of(&names.collect::<Vec<_>>()).known
        };
        let row = |start, from, last| Truncation { start, from, last };
        let mut truncations = Truncations::default();
        let mut discard = |start, versions: &[u64]| {
            let versions = versions.iter().copied().collect();
            truncations.discard(home.path(), start, &versions).unwrap();
            assert_eq!(truncations.known, on_disk());
        };
        discard(3, &[4, 5, 9]);
        discard(3, &[6, 8]);
        assert_eq!(on_disk(), [row(3, 4, 6), row(3, 8, 9)].into());
        discard(3, &[7]);
        discard(5, &[10]);
        assert_eq!(on_disk(), [row(3, 4, 9), row(5, 10, 10)].into());
        // A number is used again in a start that its row hits, and in one that it does not hit.
        truncations.take_back(home.path(), 2, 6).unwrap();
        truncations.take_back(home.path(), 5, 10).unwrap();
        let expected = [row(3, 4, 5), row(3, 7, 9), row(5, 10, 10)].into();
        assert_eq!(truncations.known, expected);
        truncations.take_back(home.path(), 4, 10).unwrap();
        let left = [row(3, 4, 5), row(3, 7, 9)];
        assert_eq!(on_disk(), left.into());
        assert!(left[0].hits(5, 2) && !left[0].hits(5, 3) && !left[0].hits(6, 2));
        // A run that goes on from an older version covers them.
        truncations.give_up(Truncation::behind(4, 5));
        truncations.note(home.path()).unwrap();
        assert_eq!(on_disk(), [row(3, 4, 5), Truncation::behind(4, 5)].into());
        let many: BTreeSet<u64> = (0..2 * MOST_ROWS as u64 + 8).step_by(2).collect();
        truncations.discard(home.path(), 9, &many).unwrap();
        assert_eq!(on_disk().len(), MOST_ROWS + 1);
        assert!(on_disk().contains(&Truncation::behind(4, 5)));
    }

    #[test]
    fn what_another_directory_of_the_rank_has_is_noted_with_the_next_save() {
        let home = tempfile::tempdir().unwrap();
        let count = || std::fs::read_dir(home.path()).unwrap().count();
        let mut truncations = Truncations::default();
        truncations.take_over([Truncation::behind(2, 5)]);
        assert_eq!(count(), 0);
        truncations.note(home.path()).unwrap();
        truncations.note(home.path()).unwrap();
        assert_eq!(count(), 1);
    }
}
