//! The note of copies that do not count any more: other copies of their versions, or of their bases, do.

use super::catalog::{Catalog, RefreshResult};
use super::damage::Damage;
use super::directory::{Directory, FileStamp};
use super::identity::Identity;
use super::prune::{Packing, prune_rank};
use super::{Repository, State};
use crate::Result;
use crate::container::{Source, checksum};
use std::collections::BTreeSet;

/// The name of the note. Releases that know none pass over it.
const NOTE: &str = "superseded.note";

/// No longer note is read, in bytes: so many copies lie in no directory.
const LONGEST_NOTE: u64 = 256 << 20;

/// The fault of a note of which a line has another checksum.
const DAMAGED: &str =
    "a line of the note of superseded copies is damaged: one of them may count again";

/// A copy, by its number and identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    version: u64,
    epoch: u32,
    sequence: u64,
    content: u64,
}

impl Entry {
    fn of(version: u64, identity: &Identity) -> Self {
        Self {
            version,
            epoch: identity.epoch,
            // Copies of format 1 were given sequences of their own.
            sequence: match identity.epoch {
                0 => 0,
                _ => identity.sequence,
            },
            content: identity.content,
        }
    }

    fn line(self) -> String {
        let Self {
            version,
            epoch,
            sequence,
            content,
        } = self;
        let fields = format!("{version:020} {epoch:010} {sequence:020} {content:016x}");
        let sum = checksum(fields.as_bytes());
        format!("{fields} {sum:016x}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let entry = Self {
            version: words.next()?.parse().ok()?,
            epoch: words.next()?.parse().ok()?,
            sequence: words.next()?.parse().ok()?,
            content: u64::from_str_radix(words.next()?, 16).ok()?,
        };
        (entry.line().trim_end() == line).then_some(entry)
    }
}

/// The copies that were noted not to count any more, in the directory of a rank.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    entries: BTreeSet<Entry>,
    /// Of the note as it was read.
    stamp: Option<FileStamp>,
    /// The damage of the note.
    pub(crate) damage: Option<Damage>,
}

impl Superseded {
    pub(crate) fn has(&self, version: u64, identity: &Identity) -> bool {
        !self.entries.is_empty() && self.entries.contains(&Entry::of(version, identity))
    }

    /// Reads the note if it changed, and tells if it says something else than before. A damaged line is named as damage, and its copy may
    /// count again. A note that gives way to another one meanwhile is `Gone`: the list stays as it was until the next look.
    ///
    /// # Errors
    /// When the note cannot be read: which copies count is not known then.
    pub(super) fn refresh(&mut self, directory: &Directory) -> Result<RefreshResult> {
        // A list of the directory may lack the note, as while it is replaced on NFS: its name is asked for.
        let stamp = directory.stamp(NOTE)?;
        if stamp == self.stamp {
            return Ok(RefreshResult::Same);
        }
        let mut new = Self {
            stamp,
            ..Self::default()
        };
        if stamp.is_some() {
            let Some(handle) = directory.read(NOTE)? else {
                return Ok(RefreshResult::Gone);
            };
            let size = handle.plain.size()?.min(LONGEST_NOTE);
            let mut bytes = vec![0; size as usize];
            handle.plain.read(0, &mut bytes)?;
            for line in String::from_utf8_lossy(&bytes).lines() {
                match Entry::parse(line) {
                    Some(entry) => drop(new.entries.insert(entry)),
                    None => {
                        new.damage = Some(Damage {
                            path: directory.path().join(NOTE),
                            offset: 0,
                            version: None,
                            what: DAMAGED,
                        });
                    }
                }
            }
        }
        let is_other = new.entries != self.entries;
        *self = new;
        Ok(match is_other {
            true => RefreshResult::Changed,
            false => RefreshResult::Same,
        })
    }
}

impl Catalog {
    /// Returns true if a noted copy lies in some file.
    fn holds_noted(&self) -> bool {
        let records = self.files.values().flat_map(|seen| &seen.records);
        let mut pieces = records.filter(|record| record.manifest().is_none());
        pieces.any(|piece| self.superseded.has(piece.version, &piece.identity))
    }
}

impl Repository {
    /// Notes, durably, that these pieces of this rank do not count any more: other copies of their versions, or of their bases,
    /// do. They are not listed from now on, copies of them are refused, and their numbers are free.
    ///
    /// # Errors
    /// As [`save`](Self::save). After an error, they count as before.
    pub fn supersede(&self, pieces: &[(u64, Identity)]) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        self.writer()?;
        let rank = self.options.rank;
        let _no_saving = self.stop_packing();
        let mut state = self.state();
        let Some(catalog) = state.catalogs.get_mut(&rank) else {
            return Ok(());
        };
        let records = catalog.files.values().flat_map(|seen| &seen.records);
        let there: BTreeSet<Entry> = records
            .map(|record| Entry::of(record.version, &record.identity))
            .collect();
        let new = pieces
            .iter()
            .map(|(version, identity)| Entry::of(*version, identity));
        // Earlier ones whose copies were removed are of no use any more. Where a file could not be read, they may be in that one.
        let mut files = catalog.files.values();
        let all_are_read = files.all(|file| file.details().damage.is_empty());
        let mut entries = catalog.superseded.entries.clone();
        entries.retain(|entry| !all_are_read || there.contains(entry));
        entries.extend(new);
        if entries == catalog.superseded.entries {
            return Ok(());
        }
        let lines: String = entries.iter().map(|entry| entry.line()).collect();
        let directory = catalog.directory()?.clone();
        directory.replace_durably(NOTE, lines.as_bytes())?;
        catalog.superseded = Superseded {
            entries,
            stamp: directory.stamp(NOTE)?,
            damage: None,
        };
        catalog.sort();
        Ok(())
    }

    /// Removes the pieces that were [noted](Self::supersede) not to count any more.
    ///
    /// # Errors
    /// As [`prune`](Self::prune).
    pub fn remove_superseded(&self) -> Result<()> {
        let owned = self.writer()?;
        let rank = self.options.rank;
        let is_any = |state: &State| state.catalogs.get(&rank).is_some_and(Catalog::holds_noted);
        if !is_any(&self.state()) {
            return Ok(());
        }
        let _no_saving = self.stop_packing();
        let none = BTreeSet::new();
        prune_rank(
            &mut self.state(),
            rank,
            owned,
            Packing::Stopped,
            &none,
            &|_| true,
        )?;
        Ok(())
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use crate::{Faults, Options, Region, Repository, Snapshot};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn numbers(repository: &Repository) -> Vec<u64> {
        let versions = repository.versions().unwrap();
        versions.into_iter().map(|info| info.version).collect()
    }

    fn supersede(repository: &Repository, version: u64) {
        let pieces = repository.own_pieces().unwrap().into_iter();
        let found = pieces.filter(|piece| piece.version == version);
        let found: Vec<_> = found.map(|piece| (version, piece.identity)).collect();
        repository.supersede(&found).unwrap();
    }

    #[test]
    fn copies_that_were_noted_do_not_count_while_lists_lack_the_note() {
        let home = tempfile::tempdir().unwrap();
        let faults = Arc::<Faults>::default();
        let open = || Repository::open(home.path(), Options::default()).unwrap();
        let writer = faults.during(open);
        let regions = [Region::new("state", &[7; 100])];
        for version in 1..5 {
            writer.save(&Snapshot::new(version, &regions)).unwrap();
        }
        supersede(&writer, 1);
        faults.lists_lack_notes.store(true, Ordering::Relaxed);
        assert_eq!(numbers(&writer), [2, 3, 4]);
        supersede(&writer, 2);
        assert_eq!(numbers(&writer), [3, 4]);
        drop(writer);
        let writer = faults.during(open);
        assert_eq!(numbers(&writer), [3, 4]);
        supersede(&writer, 3);
        faults.lists_lack_notes.store(false, Ordering::Relaxed);
        drop(writer);
        assert_eq!(numbers(&open()), [4]);
        // A note that is gone says nothing any more.
        std::fs::remove_file(home.path().join("rank-0/superseded.note")).unwrap();
        assert_eq!(numbers(&open()), [1, 2, 3, 4]);
    }
}
