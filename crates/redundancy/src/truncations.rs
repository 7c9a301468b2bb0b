//! Truncations: protected versions that do not count any more. A run that goes on from an older version gives up the protection of newer
//! ones, and a rank that discards versions gives up their protection. Each truncation is a file in the rank's parity store, whose name has
//! the start and the versions. A truncation of one rank counts for all ranks.

mod row;

pub(crate) use row::Truncation;

use crate::{Error, Result};
use row::rows;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Largest number of remembered runs that went on from older versions.
const MOST: usize = 64;
/// Largest number of remembered rows of discarded versions. A discard keeps all rows of its versions, even if they are more. Version
/// numbers in equal steps are one row; other numbers may be as many rows as versions.
const MOST_ROWS: usize = 512;

/// The truncations of one rank. [`ParityStore`](crate::ParityStore) changes their files, as these methods decide.
#[derive(Debug, Default)]
pub(crate) struct Truncations {
    /// The truncations that count.
    known: BTreeSet<Truncation>,
    /// True if the rank's directory had truncations when it was opened: then its node was not lost since they were noted.
    were_noted: bool,
    /// The truncations that count and have no file yet: the next change makes the files.
    unmade: BTreeSet<Truncation>,
    /// The truncation of this run, until this run begins to write a version.
    unwritten: Option<Truncation>,
    /// The truncations whose versions may still have files.
    untidy: Vec<Truncation>,
}

impl Truncations {
    /// Reads the truncations on the disk from the names of their files.
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

    /// Takes over the truncations of another directory of the rank, which is removed once a version of this run is protected. The next save
    /// makes their files here.
    pub(crate) fn take_over(&mut self, own: impl IntoIterator<Item = Truncation>) {
        for one in own {
            self.were_noted = true;
            if self.known.insert(one) {
                self.unmade.insert(one);
            }
        }
    }

    /// Adds the truncations of other ranks, which count too.
    pub(crate) fn extend(&mut self, others: impl IntoIterator<Item = Truncation>) {
        self.known.extend(others);
    }

    /// Sets the truncation of this run, which counts once the run begins to write a version.
    pub(crate) fn give_up(&mut self, truncation: Truncation) {
        self.unwritten = Some(truncation);
    }

    /// Returns true if a change is due before a version of this run is written.
    pub(crate) fn is_change_due(&self) -> bool {
        self.unwritten.is_some() || !self.unmade.is_empty()
    }

    /// Notes the truncation of this run. Returns the truncations that it replaces.
    pub(crate) fn note(&mut self) -> BTreeSet<Truncation> {
        let Some(new) = self.unwritten else {
            return BTreeSet::new();
        };
        self.unmade.insert(new);
        let covered = self.known.iter().copied();
        let covered = covered.filter(|known| new.covers(*known)).collect();
        self.replace(covered, [new].into(), &BTreeSet::new())
    }

    /// Notes that versions are discarded: their protection from before `start` does not count. Versions of one start at equal distances are
    /// one row, and one file. Returns the truncations that the new ones replace.
    pub(crate) fn discard(&mut self, start: u64, versions: &BTreeSet<u64>) -> BTreeSet<Truncation> {
        let old: BTreeSet<Truncation> = self.rows().filter(|row| row.start == start).collect();
        let new = rows(start, &old, versions);
        self.replace(old, new, versions)
    }

    /// Takes back the note that a version is discarded: its number was used again, and its protection in `start` counts from now on. Returns
    /// the truncations that do not count any more.
    pub(crate) fn take_back(&mut self, start: u64, version: u64) -> BTreeSet<Truncation> {
        let hits = |row: &Truncation| row.hits(version, start);
        let old: BTreeSet<Truncation> = self.rows().filter(hits).collect();
        let parts = old.iter().flat_map(|row| {
            let before = version.checked_sub(row.step);
            let behind = version.checked_add(row.step);
            let before = before.and_then(|last| row.part(row.from, last));
            [before, behind.and_then(|from| row.part(from, row.last))]
        });
        let parts = parts.flatten().collect();
        self.replace(old, parts, &BTreeSet::new())
    }

    /// Returns the rows of discarded versions.
    fn rows(&self) -> impl Iterator<Item = Truncation> {
        let known = self.known.iter().copied();
        known.filter(|known| known.is_of_discarded())
    }

    /// Enters the truncations `new` in place of `old`. Returns the truncations to be removed: the old ones, and the oldest of each kind
    /// beyond its limit. A truncation that has no file yet, or has a version of `now`, does not go because of the limit.
    fn replace(
        &mut self,
        old: BTreeSet<Truncation>,
        new: BTreeSet<Truncation>,
        now: &BTreeSet<u64>,
    ) -> BTreeSet<Truncation> {
        self.unmade.extend(new.difference(&self.known));
        self.known.extend(&new);
        let mut old = &old - &new;
        for (is_of_discarded, most) in [(false, MOST), (true, MOST_ROWS)] {
            let of_kind = |one: &&Truncation| one.is_of_discarded() == is_of_discarded;
            let mut kept: Vec<&Truncation> = self.known.difference(&old).filter(of_kind).collect();
            kept.sort_by_key(|one| (one.start, one.last));
            let beyond = kept.len().saturating_sub(most);
            let may_go = |one: &&Truncation| {
                !self.unmade.contains(*one)
                    && !now.iter().any(|version| one.has_discarded(*version))
            };
            let oldest = kept.into_iter().filter(may_go).take(beyond);
            old.extend(oldest.copied().collect::<Vec<_>>());
        }
        self.unmade.retain(|one| !old.contains(one));
        old
    }

    /// Takes the truncations whose files a change makes now.
    pub(crate) fn take_unmade(&mut self) -> BTreeSet<Truncation> {
        std::mem::take(&mut self.unmade)
    }

    /// Ends a change: if `are_made` is true, the files of `new` are on the disk. Otherwise a later change makes them.
    pub(crate) fn end_making(&mut self, new: BTreeSet<Truncation>, are_made: bool) {
        if !are_made {
            self.unmade.extend(new);
        } else if let Some(written) = self.unwritten.take_if(|one| new.contains(one)) {
            self.untidy.push(written);
        }
    }

    /// Forgets a truncation whose file is removed.
    pub(crate) fn forget(&mut self, one: &Truncation) {
        self.known.remove(one);
    }

    /// Enters a truncation whose versions may still have files, and are not needed by any rank.
    pub(crate) fn tidy_later(&mut self, truncation: Truncation) {
        self.untidy.push(truncation);
    }

    /// Takes the truncations whose versions may still have files. A later call does not return them again.
    pub(crate) fn take_untidy(&mut self) -> Vec<Truncation> {
        std::mem::take(&mut self.untidy)
    }
}

/// Makes the files of truncations, and returns once they are on the disk. Makes all files before it synchronises the first, as a file
/// system then writes all at once.
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

/// Removes a file, if there is one.
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

    /// Returns the truncations on the disk.
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
        let step = 1;
        Truncation {
            start,
            from,
            last,
            step,
        }
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
        // Version 6 is used again in a start that its row hits, version 10 in a start that its row does not hit.
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
    }

    #[test]
    fn versions_that_are_numbered_in_steps_are_one_row() {
        let (store, home) = store();
        // A run discards versions one by one, in steps of 100, and some versions of other numbers between them.
        for version in (100..=80_000).step_by(100) {
            discard(&store, 3, &[version]).unwrap();
            if version % 8_000 == 0 {
                discard(&store, 3, &[version - 50]).unwrap();
            }
        }
        let there = on_disk(&home).known;
        assert_eq!(store.truncations().known, there);
        assert!(there.len() < 15, "{there:?}");
        let hit = (0..=80_200).filter(|version| there.iter().any(|row| row.hits(*version, 2)));
        let is_discarded = |version: &u64| {
            let of_steps = *version > 0 && *version <= 80_000 && version.is_multiple_of(100);
            of_steps || (version + 50).is_multiple_of(8_000)
        };
        assert!(hit.eq((0..=80_200).filter(is_discarded)));
        // A version is used again, and discarded again.
        store.take_back(500, 2, || true).unwrap();
        let there = on_disk(&home).known;
        let hits = |version| there.iter().any(|row| row.hits(version, 2));
        assert!(!hits(500) && hits(400) && hits(600));
        discard(&store, 3, &[500]).unwrap();
        assert_eq!(store.truncations().known, on_disk(&home).known);
        assert!(on_disk(&home).known.iter().any(|row| row.hits(500, 2)));
    }

    #[test]
    fn what_is_discarded_is_noted_however_much_is() {
        let (store, home) = store();
        let are_noted = |versions: &[u64]| {
            let there = on_disk(&home).known;
            assert_eq!(store.truncations().known, there);
            let is_noted = |version: &u64| there.iter().any(|row| row.hits(*version, 2));
            versions.iter().all(is_noted)
        };
        // No three of the numbers are at equal distances.
        let cubes: Vec<u64> = (10..20 + MOST_ROWS as u64).map(|n| n * n * n).collect();
        discard(&store, 3, &cubes).unwrap();
        assert!(are_noted(&cubes));
        // The version below all of them is discarded twice.
        for _ in 0..2 {
            discard(&store, 3, &[5]).unwrap();
            assert!(are_noted(&[5]));
        }
        assert_eq!(on_disk(&home).known.len(), MOST_ROWS);
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
        // Before the next version is written, all files are made, and a version whose number is used again does count.
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
