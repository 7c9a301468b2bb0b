//! Gives up, for good, the versions of a history above the one from which it continues.

use super::catalog::Catalog;
use super::identity::Identity;
use super::prune::{Packing, prune_rank};
use super::{Repository, State};
use crate::Result;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// A rule by which pieces do not count, wherever they come from: those of numbers from `from` on that runs of lower epochs than
/// `epoch` wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Truncation {
    /// The epoch of the run that continued from an older version.
    pub epoch: u32,
    /// The lowest number that does not count.
    pub from: u64,
}

/// The most truncations that are remembered.
const TRUNCATIONS: usize = 64;

impl Truncation {
    /// Returns the name of the file or blob that represents the truncation.
    #[must_use]
    pub fn name(self) -> String {
        let Self { epoch, from } = self;
        format!("e{epoch:010}-{from:020}.cut")
    }

    /// Parses the name of such a file; `None` for other names.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name_of = name.strip_suffix(".cut")?.strip_prefix('e')?;
        let (epoch, from) = name_of.split_once('-')?;
        let truncation = Self {
            epoch: epoch.parse().ok()?,
            from: from.parse().ok()?,
        };
        // Names of other forms belong to other programs.
        (truncation.name() == name).then_some(truncation)
    }

    /// Returns true if a piece of this number and identity does not count.
    #[must_use]
    pub fn hits(self, version: u64, identity: &Identity) -> bool {
        version >= self.from && identity.epoch < self.epoch
    }

    /// Returns true if this truncation hits all pieces that `other` hits.
    fn covers(self, other: Self) -> bool {
        self.epoch >= other.epoch && self.from <= other.from
    }
}

impl Repository {
    /// Gives up the pieces that earlier runs wrote as this rank under higher numbers than `after`, or all their pieces if it is
    /// `None`. From now on, copies of these pieces are refused, and their numbers are free.
    ///
    /// Nothing of this is on the disk before this run writes its first own piece: if the run ends before that, it has changed
    /// nothing, and the next run finds everything. From then on the truncation is permanent. The pieces are removed once the first
    /// own piece is durable, or earlier if it needs their space.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the repository was opened for reading; [`Error::Remote`](crate::Error::Remote).
    pub fn truncate(&self, after: Option<u64>) -> Result<()> {
        let from = after.map_or(Some(0), |after| after.checked_add(1));
        let owned = self.writer()?;
        if self.blobs().is_some() {
            let mut state = self.state();
            self.list_once(&mut state)?;
            let own = state.catalogs.get_mut(&self.options.rank);
            if let (Some(from), Some(catalog)) = (from, own) {
                let (epoch, sequence, _) = catalog.highest();
                owned.order.see(epoch, sequence);
                let epoch = owned.order.epoch();
                catalog.go_on_from(Truncation { epoch, from });
            }
            return Ok(());
        }
        let epoch = owned.order.epoch();
        self.take_over(from.map(|from| Truncation { epoch, from }))
    }

    /// Returns the truncations of runs that wrote as this rank. After very many runs, only those of the last ones are known.
    ///
    /// # Errors
    /// As [`own_pieces`](Self::own_pieces).
    pub fn truncations(&self) -> Result<Vec<Truncation>> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank).into_iter();
        Ok(own.flat_map(|own| own.truncations.clone()).collect())
    }

    /// Returns true if a later run gave up this piece of this rank, so that copies of it are refused. Uses the state of the last
    /// [listing](Self::own_pieces) of the directory.
    ///
    /// # Errors
    /// [`Error::Remote`](crate::Error::Remote) if blobs were never listed and cannot be listed now.
    pub fn refuses(&self, version: u64, identity: &Identity) -> Result<bool> {
        let mut state = self.state();
        self.list_once(&mut state)?;
        let own = state.catalogs.get(&self.options.rank);
        Ok(own.is_some_and(|own| match own.is_of_blobs {
            true => own.gave_up_for_good(version, identity),
            false => own.gave_up(version, identity),
        }))
    }

    /// Takes over the truncations of runs that wrote as this rank in another directory, as if [`truncate`](Self::truncate) were
    /// called.
    ///
    /// # Errors
    /// As [`truncate`](Self::truncate).
    pub fn take_over(&self, truncations: impl IntoIterator<Item = Truncation>) -> Result<()> {
        self.writer()?;
        let mut state = self.state();
        if let Some(catalog) = state.catalogs.get_mut(&self.options.rank) {
            let new = truncations.into_iter();
            let new = new.filter(|new| !catalog.truncations.iter().any(|old| old.covers(*new)));
            catalog.unwritten.extend(new.collect::<Vec<_>>());
            catalog.sort();
        }
        Ok(())
    }

    /// Writes from now on as the run of this number instead of the [chosen](crate::Options::run) one. An earlier run had the chosen
    /// number, and the pieces that it left must form no version with those of this run. All ranks of the group do the same.
    pub fn renumber(&self, run: u64) {
        self.run.store(run, Ordering::Relaxed);
    }

    /// Writes the notes of what this run gives up, when it starts to write its first own piece.
    pub(super) fn note_truncations(&self) -> Result<()> {
        let mut state = self.state();
        let Some(catalog) = state.catalogs.get_mut(&self.options.rank) else {
            return Ok(());
        };
        while let Some(new) = catalog.unwritten.first().copied() {
            catalog.directory()?.mark(&new.name())?;
            catalog.unwritten.remove(&new);
            catalog.is_untidy = true;
            let known = std::mem::take(&mut catalog.truncations);
            let (mut old, kept): (Vec<_>, Vec<_>) =
                known.into_iter().partition(|known| new.covers(*known));
            catalog.truncations.extend(kept);
            catalog.truncations.insert(new);
            while catalog.truncations.len() > TRUNCATIONS {
                old.extend(catalog.truncations.pop_first());
            }
            for truncation in old.into_iter().filter(|old| *old != new) {
                let _of_no_use = catalog.directory()?.remove(&truncation.name());
            }
        }
        Ok(())
    }

    /// Removes the pieces that were given up for good, and returns true if there may have been any. Called between the writes of
    /// pieces of these `own` versions, if any. Pieces that cannot be removed now, and pieces of numbers that other threads write,
    /// are removed at the next call.
    pub(super) fn remove_given_up(&self, own: &BTreeSet<u64>) -> bool {
        let rank = self.options.rank;
        let (Some(owned), true) = (self.owned.get(&rank), self.is_untidy()) else {
            return false;
        };
        let _no_saving = self.stop_packing();
        let mut state = self.state();
        let is_untidy = state.saving.keys().any(|version| !own.contains(version));
        if let Some(catalog) = state.catalogs.get_mut(&rank) {
            catalog.is_untidy = is_untidy;
        }
        let _freed_later = prune_rank(&mut state, rank, owned, Packing::Stopped, own, &|_| true);
        true
    }

    fn is_untidy(&self) -> bool {
        let state = self.state();
        let own = state.catalogs.get(&self.options.rank);
        own.is_some_and(|own| own.is_untidy)
    }
}

impl Catalog {
    /// Returns true if a later run gave up a piece, as the run continued from an older version or noted that another copy counts.
    pub(crate) fn gave_up(&self, version: u64, identity: &Identity) -> bool {
        self.gave_up_for_good(version, identity)
            || self.was_not_offered(version, identity)
            || (self.unwritten.iter()).any(|truncation| truncation.hits(version, identity))
    }

    /// Returns true if a later run gave up a piece and noted that.
    pub(super) fn gave_up_for_good(&self, version: u64, identity: &Identity) -> bool {
        let mut noted = self.truncations.iter().filter(|note| self.counts(note));
        noted.any(|note| note.hits(version, identity)) || self.superseded.has(version, identity)
    }

    /// Returns true if a piece that does not count stays. The piece counts again in the next run if this run writes nothing, or
    /// another piece of its number is being written in its place.
    pub(super) fn must_stay(&self, version: u64, identity: &Identity) -> bool {
        let mut unwritten = self.unwritten.iter();
        self.being_written.contains(&version)
            || self.is_unnoted(version, identity)
            || unwritten.any(|truncation| truncation.hits(version, identity))
    }
}

impl State {
    /// Returns true if a later run gave up a piece of the rank.
    pub(super) fn gave_up(&self, rank: u32, version: u64, identity: &Identity) -> bool {
        let catalog = self.catalogs.get(&rank);
        catalog.is_some_and(|catalog| catalog.gave_up(version, identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Options, Region, Snapshot};

    fn save(repository: &Repository, version: u64, byte: u8) {
        let bytes = [byte];
        let regions = [Region::new("state", &bytes)];
        let snapshot = Snapshot::new(version, &regions);
        repository.save(&snapshot).unwrap();
    }

    fn listed(repository: &Repository) -> Vec<u64> {
        let versions = repository.versions().unwrap();
        versions.iter().map(|info| info.version).collect()
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let truncation = Truncation { epoch: 7, from: 42 };
        assert_eq!(truncation.name(), "e0000000007-00000000000000000042.cut");
        assert_eq!(Truncation::parse(&truncation.name()), Some(truncation));
        for other in ["e7-42.cut", "e0000000007-00000000000000000042.run", ".cut"] {
            assert_eq!(Truncation::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_was_given_up_stays_so_and_its_numbers_are_free() {
        let directory = tempfile::tempdir().unwrap();
        let (here, elsewhere) = (directory.path().join("a"), directory.path().join("b"));
        let first = Repository::open(&here, Options::default()).unwrap();
        (0..6).for_each(|version| save(&first, version, 1));
        let copies = Repository::open(&elsewhere, Options::default()).unwrap();
        for version in 0..6 {
            copies.copy(&first.piece(version).unwrap()).unwrap();
        }
        drop(first);
        let second = Repository::open(&here, Options::default()).unwrap();
        let reader = Repository::read_only(&here, Options::default()).unwrap();
        assert_eq!(listed(&reader), [0, 1, 2, 3, 4, 5]);
        second.truncate(Some(3)).unwrap();
        assert_eq!(listed(&second), [0, 1, 2, 3]);
        assert_eq!(listed(&reader), [0, 1, 2, 3, 4, 5], "nothing was written");
        // Copies of it from any place are refused, and its number may be used.
        let copied = second.copy(&copies.piece(4).unwrap());
        assert!(
            matches!(copied, Err(Error::GivenUp { version: 4 })),
            "{copied:?}"
        );
        second.copy(&copies.piece(3).unwrap()).unwrap();
        save(&second, 4, 2);
        assert_eq!(listed(&reader), [0, 1, 2, 3, 4]);
        drop(second);
        let third = Repository::open(&here, Options::default()).unwrap();
        assert_eq!(listed(&third), [0, 1, 2, 3, 4]);
        assert_eq!(third.piece(4).unwrap().read("state").unwrap(), [2]);
        let copied = third.copy(&copies.piece(5).unwrap());
        assert!(
            matches!(copied, Err(Error::GivenUp { version: 5 })),
            "{copied:?}"
        );
        // The new truncation gives up everything and replaces the earlier note.
        third.truncate(None).unwrap();
        save(&third, 9, 3);
        assert_eq!((listed(&third), listed(&reader)), (vec![9], vec![9]));
        let names = std::fs::read_dir(here.join("rank-0")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.ends_with(".cut")).count(), 1);
    }

    #[test]
    fn a_run_that_writes_nothing_gives_nothing_up() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Repository::open(directory.path(), Options::default()).unwrap();
        let first = open();
        (0..6).for_each(|version| save(&first, version, 1));
        drop(first);
        for after in [Some(3), None] {
            let run = open();
            run.truncate(after).unwrap();
            assert_eq!(listed(&run).last().copied(), after);
            // Other removals by such a run change nothing of this either.
            run.remove(&[0].into()).unwrap();
            drop(run);
            assert_eq!(listed(&open()), [1, 2, 3, 4, 5]);
        }
        let run = open();
        run.truncate(Some(3)).unwrap();
        save(&run, 4, 2);
        drop(run);
        assert_eq!(listed(&open()), [1, 2, 3, 4]);
    }

    #[test]
    fn what_is_written_in_place_of_what_was_given_up_stays() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let open = || {
                // Each piece has its own file.
                let options = Options::default().packed_below(4096);
                Repository::open(directory.path(), options).unwrap()
            };
            let save = |repository: &Repository, version: u64, byte: u8| {
                let bytes = vec![byte; 8192];
                let regions = [Region::new("state", &bytes)];
                let (base, regions) = (None, regions.as_slice());
                let snapshot = Snapshot {
                    version,
                    base,
                    regions,
                };
                repository.save(&snapshot).unwrap();
            };
            let first = open();
            (0..12).for_each(|version| save(&first, version, 1));
            drop(first);
            let second = open();
            second.truncate(Some(3)).unwrap();
            std::thread::scope(|scope| {
                for version in 4..10 {
                    let (second, save) = (&second, &save);
                    scope.spawn(move || save(second, version, 2));
                }
            });
            drop(second);
            let third = open();
            assert_eq!(listed(&third), (0..10).collect::<Vec<_>>());
            for version in 4..10 {
                assert!(third.piece(version).unwrap().read("state").unwrap() == [2; 8192]);
            }
        }
    }
}
