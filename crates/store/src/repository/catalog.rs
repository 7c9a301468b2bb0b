//! What lies in one rank's directory, as far as the heads tell.

use super::directory::Directory;
use super::record::{Name, Record};
use super::seen::{Damage, Seen};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// What a look at a file found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// What was known.
    Same,
    /// Something else.
    Changed,
    /// Nothing: it was there when the directory was read, or before, and is not any more.
    Gone,
}

/// One rank's directory.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) directory: Directory,
    pub(crate) rank: u32,
    pub(crate) files: BTreeMap<Name, Seen>,
    /// The record of each version that counts: the one of the highest sequence.
    pub(crate) pieces: BTreeMap<u64, Record>,
    pub(crate) manifests: BTreeMap<u64, Record>,
}

impl Catalog {
    pub(crate) fn new(directory: Directory, rank: u32) -> Self {
        Self {
            directory,
            rank,
            files: BTreeMap::new(),
            pieces: BTreeMap::new(),
            manifests: BTreeMap::new(),
        }
    }

    /// Looks at what changed in the directory, again where files got their other name meanwhile.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        /// Each further look is due to a file that was renamed or removed since the one before.
        const LOOKS: usize = 16;
        let mut changed = false;
        for _ in 0..LOOKS {
            let looks = self.look()?;
            changed |= looks.contains(&Look::Changed);
            if !looks.contains(&Look::Gone) {
                break;
            }
            changed = true;
        }
        if changed {
            self.sort();
        }
        Ok(())
    }

    /// Looks at every file once.
    fn look(&mut self) -> Result<Vec<Look>> {
        let names = self.directory.names()?;
        let mut there: BTreeMap<Name, bool> = BTreeMap::new();
        for (name, published) in names.iter().filter_map(|name| Name::parse(name)) {
            // Published wins over a name from before.
            *there.entry(name).or_default() |= published;
        }
        let before = self.files.len();
        self.files.retain(|name, _| there.contains_key(name));
        // A directory that is read while a file is renamed may show neither name.
        let mut looks = vec![match before == self.files.len() {
            true => Look::Same,
            false => Look::Gone,
        }];
        for (name, published) in there {
            looks.push(self.look_at(name, published)?);
        }
        Ok(looks)
    }

    /// Looks through one file, if it is not the one that was seen.
    fn look_at(&mut self, name: Name, published: bool) -> Result<Look> {
        let text = if published {
            name.published()
        } else {
            name.unpublished()
        };
        let stamp = match self.directory.stamp(&text) {
            Ok(Some(stamp)) => stamp,
            // The next look finds its successor.
            Ok(None) => return Ok(self.lose(name)),
            Err(Error::Refused { path, why }) => {
                self.files.insert(name, Seen::refused(path, why, published));
                return Ok(Look::Changed);
            }
            Err(error) => return Err(error),
        };
        let seen = self.files.get(&name);
        // Not so a segment that is written: it grows in space set aside for it before, and the time of a write is noted
        // when it begins, or may be that of the one before by a coarse clock.
        let is_same = |seen: &Seen| seen.stamp == Some(stamp) && seen.published == published;
        if published && seen.is_some_and(is_same) {
            return Ok(Look::Same);
        }
        let before = seen
            .filter(|seen| is_same(seen))
            .map(|seen| seen.records.len());
        let Some(handle) = self.directory.read(&text)? else {
            return Ok(self.lose(name));
        };
        let mut seen = match self.files.remove(&name) {
            // Segments only grow while they are written.
            Some(seen) if !published && !seen.published => Seen {
                damage: Vec::new(),
                ..seen
            },
            _ => Seen::default(),
        };
        seen.stamp = Some(stamp);
        seen.published = published;
        match seen.look_through(name, &handle) {
            // The other files are still good, and this one may be when it is looked at again.
            Err(Error::Read { offset, .. }) => {
                seen.stamp = None;
                seen.damage.push(Damage {
                    path: handle.path().to_path_buf(),
                    offset,
                    version: name.version(),
                    what: "it cannot be read",
                });
            }
            looked => looked?,
        }
        let same = before == Some(seen.records.len());
        self.files.insert(name, seen);
        Ok(if same { Look::Same } else { Look::Changed })
    }

    /// Forgets a file that went since the directory was read.
    fn lose(&mut self, name: Name) -> Look {
        self.files.remove(&name);
        Look::Gone
    }

    /// Takes a record that was just written.
    pub(crate) fn insert(&mut self, record: Record) {
        self.take(&record);
        let seen = self.files.entry(record.file).or_default();
        if let Name::Alone(_) = record.file {
            seen.records.clear();
        }
        seen.records.push(record);
    }

    /// Drops a file that was removed.
    pub(crate) fn forget(&mut self, name: Name) {
        self.files.remove(&name);
    }

    /// Finds the records that count.
    pub(crate) fn sort(&mut self) {
        self.pieces.clear();
        self.manifests.clear();
        let files = std::mem::take(&mut self.files);
        for record in files.values().flat_map(|seen| &seen.records) {
            self.take(record);
        }
        self.files = files;
    }

    fn take(&mut self, record: &Record) {
        let versions = match record.rows {
            None => &mut self.pieces,
            Some(_) => &mut self.manifests,
        };
        let newest = versions.get(&record.version);
        if newest.is_none_or(|newest| newest.sequence < record.sequence) {
            versions.insert(record.version, record.clone());
        }
    }

    /// The highest sequence number and segment number in use.
    pub(crate) fn highest(&self) -> (u64, u64) {
        let records = self.files.values().flat_map(|seen| &seen.records);
        let sequence = records.map(|record| record.sequence).max().unwrap_or(0);
        let segments = self.files.keys().map(|name| match name {
            Name::Segment(number) => *number,
            Name::Alone(_) => 0,
        });
        (sequence, segments.max().unwrap_or(0))
    }
}
