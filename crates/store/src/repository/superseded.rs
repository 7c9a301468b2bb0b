//! The note of superseded copies: other copies of their versions, or of their bases, count instead.

use super::catalog::{Catalog, RefreshResult};
use super::damage::Damage;
use super::directory::{Directory, FileStamp};
use super::identity::Identity;
use super::prune::{Packing, prune_rank};
use super::{Repository, State};
use crate::Result;
use crate::container::{Source, checksum};
use std::collections::BTreeSet;

/// The name of the note. Older releases ignore a file of this name.
const NOTE: &str = "superseded.note";

/// The greatest length of a note that is read, in bytes. No directory has so many copies.
const LONGEST_NOTE: u64 = 256 << 20;

/// The fault of a note with a line whose checksum does not match.
const DAMAGED: &str =
    "a line of the note of superseded copies is damaged: one of them may count again";

/// A copy, identified by its number and identity.
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
            // Copies of a format 1 piece have different sequences.
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

/// The superseded copies in the directory of a rank.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    entries: BTreeSet<Entry>,
    /// The stamp of the note that was read.
    stamp: Option<FileStamp>,
    /// The damage of the note.
    pub(crate) damage: Option<Damage>,
}

impl Superseded {
    pub(crate) fn has(&self, version: u64, identity: &Identity) -> bool {
        !self.entries.is_empty() && self.entries.contains(&Entry::of(version, identity))
    }

    /// Reads the note if it changed. Returns `Changed` if its entries differ from before, and `Gone` if another note replaced it
    /// meanwhile; then the entries stay as they were until the next look. A damaged line becomes the damage of the note, and its
    /// copy may count again.
    ///
    /// # Errors
    /// If the note cannot be read. Then it is not known which copies count.
    pub(super) fn refresh(&mut self, directory: &Directory) -> Result<RefreshResult> {
        // The note is looked up by its name, since a listing of the directory may lack it, as while it is replaced on NFS.
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
    /// Returns true if a file contains a superseded copy.
    fn holds_noted(&self) -> bool {
        let records = self.files.values().flat_map(|seen| &seen.records);
        let mut pieces = records.filter(|record| record.manifest().is_none());
        pieces.any(|piece| self.superseded.has(piece.version, &piece.identity))
    }
}

impl Repository {
    /// Notes durably that these pieces of this rank are superseded: other copies of their versions, or of their bases, count
    /// instead. From now on the pieces are not listed, copies of them are refused, and their numbers are free.
    ///
    /// # Errors
    /// As [`save`](Self::save). After an error, the pieces count as before.
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
        // Entries whose copies were removed are dropped. If some file could not be read, the copies may be in it.
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

    /// Removes the pieces that were [superseded](Self::supersede).
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
        // A note that was removed has no effect any more.
        std::fs::remove_file(home.path().join("rank-0/superseded.note")).unwrap();
        assert_eq!(numbers(&open()), [1, 2, 3, 4]);
    }
}
