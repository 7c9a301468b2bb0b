//! Truncations: a run that goes on from an older version gives up what redundancy protects of newer ones, by a file in each rank's parity
//! store, named by the start and the first version.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Versions from `from` on that were protected in earlier starts than `start` do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Truncation {
    /// The start that went on from an older version.
    pub(crate) start: u64,
    /// The first version that it gave up.
    pub(crate) from: u64,
}

/// No more are remembered.
const MOST: usize = 64;

impl Truncation {
    fn name(self) -> String {
        let Self { start, from } = self;
        format!("s{start:020}-{from:020}.cut")
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (start, from) = name
            .strip_suffix(".cut")?
            .strip_prefix('s')?
            .split_once('-')?;
        let truncation = Self {
            start: start.parse().ok()?,
            from: from.parse().ok()?,
        };
        // Names of other forms are not ours.
        (truncation.name() == name).then_some(truncation)
    }

    pub(crate) fn hits(self, version: u64, start: u64) -> bool {
        version >= self.from && start < self.start
    }

    fn covers(self, other: Self) -> bool {
        self.start >= other.start && self.from <= other.from
    }
}

/// The truncations of one rank.
#[derive(Debug, Default)]
pub(crate) struct Truncations {
    /// The truncations that count, some of which are on the disk.
    known: BTreeSet<Truncation>,
    /// The truncation of this run, until it begins to write a version of its own.
    unwritten: Option<Truncation>,
    /// The one whose versions may still be there.
    untidy: Option<Truncation>,
}

impl Truncations {
    /// Reads the truncations that are on the disk from their names.
    pub(crate) fn of(names: &[String]) -> Self {
        let known = names.iter().filter_map(|name| Truncation::parse(name));
        Self {
            known: known.collect(),
            ..Self::default()
        }
    }

    pub(crate) fn known(&self) -> &BTreeSet<Truncation> {
        &self.known
    }

    /// Takes those that another directory has, which count as well.
    pub(crate) fn extend(&mut self, others: impl IntoIterator<Item = Truncation>) {
        self.known.extend(others);
    }

    /// Gives up what one hits, once a version of this run is begun.
    pub(crate) fn give_up(&mut self, truncation: Truncation) {
        self.unwritten = Some(truncation);
    }

    /// Notes in a directory what was given up, before a version of this run is written.
    pub(crate) fn note(&mut self, directory: &Path) -> Result<()> {
        let Some(new) = self.unwritten else {
            return Ok(());
        };
        let path = directory.join(new.name());
        let made = File::create(&path).and_then(|file| file.sync_all());
        let made = made.and_then(|()| File::open(directory)?.sync_all());
        made.map_err(Error::io(&path))?;
        self.unwritten = None;
        self.untidy = Some(new);
        let known = std::mem::take(&mut self.known).into_iter();
        let (mut old, kept): (Vec<_>, Vec<_>) = known.partition(|known| new.covers(*known));
        self.known.extend(kept);
        self.known.insert(new);
        while self.known.len() > MOST {
            old.extend(self.known.pop_first());
        }
        for old in old.into_iter().filter(|old| *old != new) {
            // The file hits nothing that others do not.
            let _of_no_use = remove(&directory.join(old.name()));
        }
        Ok(())
    }

    /// The one whose versions may still be there. It is said once.
    pub(crate) fn take_untidy(&mut self) -> Option<Truncation> {
        self.untidy.take()
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
        let truncation = Truncation { start: 3, from: 12 };
        assert_eq!(Truncation::parse(&truncation.name()), Some(truncation));
        for other in ["s3-12.cut", "00000000000000000012.parity", ".cut"] {
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
        truncations.give_up(Truncation { start: 2, from: 5 });
        assert!(names().is_empty() && truncations.known().is_empty());
        truncations.note(home.path()).unwrap();
        truncations.give_up(Truncation { start: 3, from: 4 });
        truncations.note(home.path()).unwrap();
        let there = Truncations::of(&names());
        assert_eq!(there.known(), truncations.known());
        assert_eq!(there.known(), &[Truncation { start: 3, from: 4 }].into());
    }
}
