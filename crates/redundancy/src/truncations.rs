//! Truncations: protection that does not count any more. A run that goes on from an older version gives up what redundancy protects of
//! newer ones, and a rank that discards versions what it protects of these: each by a file in the rank's parity store, named by the start
//! and the versions. A note of one rank counts for all.

use crate::wire::wire;
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

    pub(crate) fn name(self) -> String {
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

    fn covers(self, other: Self) -> bool {
        self.start >= other.start && self.from <= other.from && self.last >= other.last
    }
}

wire!(Truncation { start, from, last });

/// Rows of consecutive versions, with those of `old` that they touch.
fn rows(start: u64, old: &BTreeSet<Truncation>, versions: &BTreeSet<u64>) -> BTreeSet<Truncation> {
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

/// The truncations of one rank. [`ParityStore`](crate::ParityStore) changes the files as the calls here say.
#[derive(Debug, Default)]
pub(crate) struct Truncations {
    /// The truncations that count.
    known: BTreeSet<Truncation>,
    /// True if some lay in the rank's directory when it was opened: its node was not lost since.
    were_noted: bool,
    /// The truncations that count and have no file yet: the next change makes it.
    unmade: BTreeSet<Truncation>,
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
                self.unmade.insert(one);
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

    /// Returns true if a change is due before a version of this run is written.
    pub(crate) fn is_change_due(&self) -> bool {
        self.unwritten.is_some() || !self.unmade.is_empty()
    }

    /// Notes what this run gives up. Returns the truncations whose files are of no use then.
    pub(crate) fn note(&mut self) -> BTreeSet<Truncation> {
        let Some(new) = self.unwritten else {
            return BTreeSet::new();
        };
        self.unmade.insert(new);
        let covered = self.known.iter().copied();
        let covered = covered.filter(|known| new.covers(*known)).collect();
        self.replace(covered, [new].into())
    }

    /// Notes that versions are discarded: what was protected of them before `start` does not count. Rows of consecutive versions of one
    /// start are one file. Returns the truncations that the new ones replace.
    pub(crate) fn discard(&mut self, start: u64, versions: &BTreeSet<u64>) -> BTreeSet<Truncation> {
        let old: BTreeSet<Truncation> = self.rows().filter(|row| row.start == start).collect();
        let new = rows(start, &old, versions);
        self.replace(old, new)
    }

    /// Takes back that a version is discarded: its number was used again, and what is protected of it in a start counts from now on.
    /// Returns the truncations that do not count any more.
    pub(crate) fn take_back(&mut self, start: u64, version: u64) -> BTreeSet<Truncation> {
        let hits = |row: &Truncation| row.hits(version, start);
        let old: BTreeSet<Truncation> = self.rows().filter(hits).collect();
        let parts = old.iter().flat_map(|row| {
            let before = version
                .checked_sub(1)
                .map(|last| Truncation { last, ..*row });
            let from = version.saturating_add(1);
            [before, Some(Truncation { from, ..*row })]
        });
        let parts = parts.flatten().filter(|row| row.from <= row.last);
        let parts = parts.collect();
        self.replace(old, parts)
    }

    /// The rows of discarded versions.
    fn rows(&self) -> impl Iterator<Item = Truncation> {
        let known = self.known.iter().copied();
        known.filter(|known| known.is_of_discarded())
    }

    /// Enters truncations in the place of old ones. Returns these, and the oldest of each kind beyond its limit.
    fn replace(
        &mut self,
        old: BTreeSet<Truncation>,
        new: BTreeSet<Truncation>,
    ) -> BTreeSet<Truncation> {
        self.unmade.extend(new.difference(&self.known));
        self.known.extend(&new);
        let mut old = &old - &new;
        for (is_of_discarded, most) in [(false, MOST), (true, MOST_ROWS)] {
            let of_kind = |one: &&Truncation| one.is_of_discarded() == is_of_discarded;
            let kept: Vec<&Truncation> = self.known.difference(&old).filter(of_kind).collect();
            let oldest = kept.len().saturating_sub(most);
            old.extend(kept.into_iter().take(oldest).copied().collect::<Vec<_>>());
        }
        self.unmade.retain(|one| !old.contains(one));
        old
    }

    /// The truncations whose files a change makes now.
    pub(crate) fn take_unmade(&mut self) -> BTreeSet<Truncation> {
        std::mem::take(&mut self.unmade)
    }

    /// The files of these are on the disk, or some could not be made: then a later change makes them.
    pub(crate) fn end_making(&mut self, new: BTreeSet<Truncation>, are_made: bool) {
        if !are_made {
            self.unmade.extend(new);
        } else if let Some(written) = self.unwritten.take_if(|one| new.contains(one)) {
            self.untidy.push(written);
        }
    }

    /// The file of one is gone.
    pub(crate) fn forget(&mut self, one: &Truncation) {
        self.known.remove(one);
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

/// Makes the files of truncations, which are on the disk then: all of them before the first is synchronised, as a file system then
/// writes all at once.
pub(crate) fn make(directory: &Path, new: &BTreeSet<Truncation>) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let each = |file: &dyn Fn(&Path) -> std::io::Result<()>| {
        let mut paths = new.iter().map(|one| directory.join(one.name()));
        paths.try_for_each(|path| file(&path).map_err(Error::io(path)))
    };
    each(&|path| File::create(path).map(drop))?;
    each(&|path| File::open(path)?.sync_all())?;
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(Error::io(directory))
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
    use crate::ParityStore;
    use tempfile::TempDir;

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

    /// The truncations on a disk.
    fn on_disk(home: &TempDir) -> Truncations {
        let entries = std::fs::read_dir(home.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        Truncations::of(&names.collect::<Vec<_>>())
    }

    fn store() -> (ParityStore, TempDir) {
        let home = tempfile::tempdir().unwrap();
        (ParityStore::open(home.path()).unwrap(), home)
    }

    fn discard(store: &ParityStore, start: u64, versions: &[u64]) -> Result<()> {
        let versions = versions.iter().copied().collect();
        store.note_discarded(&versions, start, || ())
    }

    fn row(start: u64, from: u64, last: u64) -> Truncation {
        Truncation { start, from, last }
    }

    #[test]
    fn nothing_is_noted_before_a_version_is_begun() {
        let (store, home) = store();
        let give_up = |truncation| store.truncations().give_up(truncation);
        give_up(Truncation::behind(2, 5));
        assert!(on_disk(&home).known.is_empty() && store.truncations().known.is_empty());
        store.note_truncation().unwrap();
        give_up(Truncation::behind(3, 4));
        store.note_truncation().unwrap();
        let there = on_disk(&home);
        assert_eq!(there.known, store.truncations().known);
        assert!(there.were_noted());
        assert_eq!(there.known, [Truncation::behind(3, 4)].into());
        let untidy = [Truncation::behind(2, 5), Truncation::behind(3, 4)];
        assert_eq!(store.truncations().take_untidy(), untidy);
    }

    #[test]
    fn rows_of_discarded_versions_grow_and_are_taken_apart() {
        let (store, home) = store();
        let on_disk = || on_disk(&home).known;
        let discard = |start, versions: &[u64]| {
            discard(&store, start, versions).unwrap();
            assert_eq!(store.truncations().known, on_disk());
        };
        let take_back = |start, version| store.take_back(version, start, || true).unwrap();
        discard(3, &[4, 5, 9]);
        discard(3, &[6, 8]);
        assert_eq!(on_disk(), [row(3, 4, 6), row(3, 8, 9)].into());
        discard(3, &[7]);
        discard(5, &[10]);
        assert_eq!(on_disk(), [row(3, 4, 9), row(5, 10, 10)].into());
        // A number is used again in a start that its row hits, and in one that it does not hit.
        take_back(2, 6);
        take_back(5, 10);
        let expected = [row(3, 4, 5), row(3, 7, 9), row(5, 10, 10)].into();
        assert_eq!(store.truncations().known, expected);
        take_back(4, 10);
        let left = [row(3, 4, 5), row(3, 7, 9)];
        assert_eq!(on_disk(), left.into());
        assert!(left[0].hits(5, 2) && !left[0].hits(5, 3) && !left[0].hits(6, 2));
        // A run that goes on from an older version covers them.
        store.truncations().give_up(Truncation::behind(4, 5));
        store.note_truncation().unwrap();
        assert_eq!(on_disk(), [row(3, 4, 5), Truncation::behind(4, 5)].into());
        let many: Vec<u64> = (0..2 * MOST_ROWS as u64 + 8).step_by(2).collect();
        discard(9, &many);
        assert_eq!(on_disk().len(), MOST_ROWS + 1);
        assert!(on_disk().contains(&Truncation::behind(4, 5)));
    }

    #[test]
    fn what_another_directory_of_the_rank_has_is_noted_with_the_next_save() {
        let (store, home) = store();
        let count = || on_disk(&home).known.len();
        let other = Truncation::behind(2, 5);
        store.truncations().take_over([other]);
        assert_eq!(count(), 0);
        store.note_truncation().unwrap();
        store.note_truncation().unwrap();
        assert_eq!(count(), 1);
    }

    #[test]
    fn a_note_that_cannot_be_made_takes_none_away_and_is_made_later() {
        let (store, home) = store();
        let old = row(3, 4, 5);
        discard(&store, 3, &[4, 5]).unwrap();
        // Each of the new files in turn is the one that cannot be made.
        for new in [row(3, 4, 6), row(3, 8, 8), row(3, 10, 10)] {
            let obstacle = home.path().join(new.name());
            std::fs::create_dir(&obstacle).unwrap();
            discard(&store, 3, &[6, 8, 10]).unwrap_err();
            std::fs::remove_dir(&obstacle).unwrap();
            let there = on_disk(&home).known;
            assert!(there.contains(&old) && !there.contains(&new), "{there:?}");
        }
        // Before the next version is written, all are there, and no number is hidden that is used again.
        store.note_truncation().unwrap();
        let there = on_disk(&home).known;
        let is_discarded = |version| there.iter().any(|row| row.hits(version, 2));
        assert!([4, 5, 6, 8, 10].into_iter().all(is_discarded), "{there:?}");
        store.take_back(5, 2, || true).unwrap();
        let there = on_disk(&home).known;
        assert!(there.iter().all(|row| !row.hits(5, 2)), "{there:?}");
        assert_eq!(store.truncations().known, there);
    }

    #[test]
    fn a_version_that_is_discarded_meanwhile_is_not_taken_back() {
        let (store, home) = store();
        discard(&store, 3, &[4]).unwrap();
        store.take_back(4, 2, || false).unwrap();
        assert_eq!(on_disk(&home).known, [row(3, 4, 4)].into());
    }
}
