//! Giving up, for good, what a history had above the version from which it goes on.

use super::catalog::Catalog;
use super::identity::Identity;
use super::prune::prune_rank;
use super::{Repository, State};
use crate::Result;

/// Pieces of numbers from `from` on, written by runs of lower epochs than `epoch`, do not count, wherever they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Truncation {
    /// The epoch of the run that went on from an older version.
    pub epoch: u32,
    /// The lowest number that does not count.
    pub from: u64,
}

/// No more truncations are remembered.
const TRUNCATIONS: usize = 64;

impl Truncation {
    /// The name of the file, or object, that stands for it.
    #[must_use]
    pub fn name(self) -> String {
        let Self { epoch, from } = self;
        format!("e{epoch:010}-{from:020}.cut")
    }

    /// The truncation that a file of this name stands for, if it does.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name_of = name.strip_suffix(".cut")?.strip_prefix('e')?;
        let (epoch, from) = name_of.split_once('-')?;
        let truncation = Self {
            epoch: epoch.parse().ok()?,
            from: from.parse().ok()?,
        };
        // Names of other forms are not ours.
        (truncation.name() == name).then_some(truncation)
    }

    /// Whether a piece of this number and identity does not count.
    #[must_use]
    pub fn hits(self, version: u64, identity: &Identity) -> bool {
        version >= self.from && identity.epoch < self.epoch
    }

    /// Whether all that `other` hits is hit.
    fn covers(self, other: Self) -> bool {
        self.epoch >= other.epoch && self.from <= other.from
    }
}

impl Repository {
    /// Gives up, for good, the pieces of this rank that earlier runs wrote under higher numbers than `after`, or under any:
    /// copies of them are refused from now on. Their numbers are free.
    ///
    /// # Errors
    /// As [`save`](Self::save) and [`prune`](Self::prune). Once the pieces do not count any more, it is none that their
    /// space cannot be freed.
    pub fn truncate(&self, after: Option<u64>) -> Result<()> {
        let owned = self.writer()?;
        let rank = self.options.rank;
        let from = after.map_or(Some(0), |after| after.checked_add(1));
        let (Some(from), Some(directory)) = (from, self.directory(rank)) else {
            return Ok(());
        };
        let epoch = owned.order.epoch();
        let new = Truncation { epoch, from };
        let _no_saving = self.stop_packing();
        let mut state = self.state();
        let Some(catalog) = state.catalogs.get_mut(&rank) else {
            return Ok(());
        };
        directory.mark(&new.name())?;
        let known = std::mem::take(&mut catalog.truncations);
        let (mut old, kept): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|known| new.covers(*known));
        catalog.truncations.extend(kept);
        catalog.truncations.insert(new);
        while catalog.truncations.len() > TRUNCATIONS {
            old.extend(catalog.truncations.pop_first());
        }
        for truncation in old.into_iter().filter(|old| *old != new) {
            let _of_no_use = directory.remove(&truncation.name());
        }
        catalog.sort();
        // What does not count is removed where something else is, too.
        let _freed_later = prune_rank(&mut state, rank, owned, &|_| true);
        Ok(())
    }
}

impl Catalog {
    /// Whether a later run gave a piece up when it continued from an older version, or noted that another one counts.
    pub(crate) fn gave_up(&self, version: u64, identity: &Identity) -> bool {
        let mut truncations = self.truncations.iter();
        truncations.any(|truncation| truncation.hits(version, identity))
            || self.superseded.has(version, identity)
    }
}

impl State {
    /// Whether a later run gave a piece of the rank up.
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
        let base = None;
        let snapshot = Snapshot {
            version,
            base,
            regions: &regions,
        };
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
        assert_eq!(
            (listed(&second), listed(&reader)),
            (vec![0, 1, 2, 3], vec![0, 1, 2, 3])
        );
        // Copies of it, from wherever, are refused, and its numbers may be used.
        let copied = second.copy(&copies.piece(4).unwrap());
        assert!(
            matches!(copied, Err(Error::GivenUp { version: 4 })),
            "{copied:?}"
        );
        second.copy(&copies.piece(3).unwrap()).unwrap();
        save(&second, 4, 2);
        drop(second);
        let third = Repository::open(&here, Options::default()).unwrap();
        assert_eq!(listed(&third), [0, 1, 2, 3, 4]);
        assert_eq!(third.piece(4).unwrap().read("state").unwrap(), [2]);
        let copied = third.copy(&copies.piece(5).unwrap());
        assert!(
            matches!(copied, Err(Error::GivenUp { version: 5 })),
            "{copied:?}"
        );
        // All of it, which takes the place of what was noted before.
        third.truncate(None).unwrap();
        assert_eq!((listed(&third), listed(&reader)), (vec![], vec![]));
        let names = std::fs::read_dir(here.join("rank-0")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.ends_with(".cut")).count(), 1);
    }
}
