//! The files in one rank's directory, as described by the heads of their records.

use super::damage::Damage;
use super::directory::{Directory, FileStamp};
use super::identity::Mark;
use super::lagging::OwnTruncation;
use super::record::{Name, Record, RecordPlace, is_aside, parse_mark};
use super::seen::FileEntry;
use super::superseded::Superseded;
use super::truncate::Truncation;
use crate::container::UNREADABLE;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The outcome of a look at a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefreshResult {
    /// The file did not change.
    Same,
    /// The file is new or changed.
    Changed,
    /// The file vanished since the directory was read.
    Gone,
}

/// The catalog of one rank's directory.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// The directory, if it is open: while it is read, and always if this process writes as the rank.
    directory: Option<Directory>,
    path: PathBuf,
    /// The device and inode number of the directory, which identify it whatever its name is.
    identity: Option<(u64, u64)>,
    pub(crate) rank: u32,
    pub(crate) files: BTreeMap<Name, Box<FileEntry>>,
    /// For each version, the place of the piece that counts: the newest one that was not given up. May name a removed file until
    /// the next [`sort`](Self::sort).
    pub(super) pieces: BTreeMap<u64, RecordPlace>,
    manifests: BTreeMap<u64, RecordPlace>,
    /// The marks of the last runs.
    pub(crate) marks: BTreeSet<Mark>,
    /// The truncations of runs that continued from an older version.
    pub(crate) truncations: BTreeSet<Truncation>,
    /// The copies that a note declares superseded.
    pub(crate) superseded: Superseded,
    /// The truncations that this run writes when it starts to write a piece.
    pub(super) unwritten: BTreeSet<Truncation>,
    /// True if files that were given up for good may still exist.
    pub(super) is_untidy: bool,
    /// Versions that other threads write while given-up files are removed.
    pub(super) being_written: BTreeSet<u64>,
    /// Names of damaged files that were put aside.
    aside: Vec<String>,
    /// True if each file is a blob of one record.
    pub(super) is_of_blobs: bool,
    /// The highest epoch and sequence of blobs, removed ones included.
    pub(super) seen: (u32, u64),
    /// The epochs of the pieces in blobs.
    pub(super) epochs: BTreeSet<u32>,
    /// The version from which this run continues, in blobs.
    pub(super) begun: Option<OwnTruncation>,
    /// True if some pieces do not count because this run was not offered them.
    pub(super) has_hidden: bool,
}

impl Catalog {
    pub(crate) fn new(directory: Directory, rank: u32) -> Self {
        Self {
            identity: directory.identity(),
            path: directory.path().to_path_buf(),
            directory: Some(directory),
            is_of_blobs: false,
            ..Self::of_blobs(PathBuf::new(), rank)
        }
    }

    /// Makes the catalog of a rank's blobs. `path` stands for them in errors.
    pub(super) fn of_blobs(path: PathBuf, rank: u32) -> Self {
        Self {
            path,
            identity: None,
            directory: None,
            rank,
            files: BTreeMap::new(),
            pieces: BTreeMap::new(),
            manifests: BTreeMap::new(),
            marks: BTreeSet::new(),
            truncations: BTreeSet::new(),
            superseded: Superseded::default(),
            unwritten: BTreeSet::new(),
            is_untidy: false,
            being_written: BTreeSet::new(),
            aside: Vec::new(),
            is_of_blobs: true,
            seen: (0, 0),
            epochs: BTreeSet::new(),
            begun: None,
            has_hidden: false,
        }
    }

    /// Returns the directory; [`Error::Vanished`] if it is closed.
    pub(crate) fn directory(&self) -> Result<&Directory> {
        let closed = || Error::Vanished {
            directory: self.path.clone(),
        };
        self.directory.as_ref().ok_or_else(closed)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the directory after it was opened again. Returns false if another directory has the name now.
    pub(crate) fn reopen(&mut self, directory: Directory) -> bool {
        let is_same = self.identity.is_some() && self.identity == directory.identity();
        self.directory = Some(directory);
        is_same
    }

    /// Closes the directory, since only a few of many ranks' directories are open at a time.
    pub(crate) fn close(&mut self) {
        self.directory = None;
    }

    /// Returns the known damage.
    pub(crate) fn damage(&self) -> impl Iterator<Item = Damage> {
        let aside = self.aside.iter().map(|name| Damage {
            path: self.path.join(name),
            offset: 0,
            version: None,
            what: "some of it is damaged, and the rest is in other files, too: remove it unless it can be repaired",
        });
        let seen = self.files.values().flat_map(|seen| &seen.details().damage);
        let noted = self.superseded.damage.iter().cloned();
        seen.cloned().chain(aside).chain(noted)
    }

    /// Looks again at files that could not be read.
    pub(crate) fn look_again(&mut self) -> Result<()> {
        let unreadable = self.files.iter().filter(|(_, seen)| seen.is_unreadable);
        let unreadable: Vec<_> = unreadable
            .map(|(name, seen)| (*name, seen.published))
            .collect();
        for (name, published) in &unreadable {
            self.look_at(*name, *published)?;
        }
        if !unreadable.is_empty() {
            self.sort();
        }
        Ok(())
    }

    /// Looks again at a published file after a failed change.
    pub(super) fn look_anew(&mut self, name: Name) {
        // If the look fails, the entry of the file stays as it is.
        let _as_before = self.look_at(name, true);
        self.sort();
    }

    /// Looks at everything that changed in the directory, and repeats this if files were renamed meanwhile.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        /// The most looks: another one follows only if a file was renamed or removed since the last one.
        const LOOKS: usize = 16;
        let mut changed = false;
        for _ in 0..LOOKS {
            let looks = self.look()?;
            changed |= looks.contains(&RefreshResult::Changed);
            if !looks.contains(&RefreshResult::Gone) {
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
    fn look(&mut self) -> Result<Vec<RefreshResult>> {
        let names = self.directory()?.names()?;
        self.marks = names.iter().filter_map(|name| parse_mark(name)).collect();
        let names_of = names.iter().filter_map(|name| Truncation::parse(name));
        let truncations: BTreeSet<Truncation> = names_of.collect();
        let directory = self.directory()?.clone();
        let noted = self.superseded.refresh(&directory)?;
        let is_truncated = truncations != self.truncations;
        self.truncations = truncations;
        self.aside = names
            .iter()
            .filter(|name| is_aside(name))
            .cloned()
            .collect();
        let mut there: BTreeMap<Name, bool> = BTreeMap::new();
        let files: BTreeSet<(Name, bool)> =
            names.iter().filter_map(|name| Name::parse(name)).collect();
        for &(name, published) in &files {
            match name {
                Name::Segment(number) if !published && files.contains(&(name, true)) => {
                    there.insert(Name::Twin(number), false);
                }
                name => drop(there.insert(name, published)),
            }
        }
        let before = self.files.len();
        self.files.retain(|name, _| there.contains_key(name));
        // A read of the directory may show neither name of a file that is being renamed.
        let listed = match before == self.files.len() {
            true => RefreshResult::Same,
            false => RefreshResult::Gone,
        };
        let mut looks = vec![noted, listed];
        if is_truncated {
            looks.push(RefreshResult::Changed);
        }
        for (name, published) in there {
            looks.push(self.look_at(name, published)?);
        }
        Ok(looks)
    }

    /// Reads the heads of one file, unless it is the file that was read before.
    fn look_at(&mut self, name: Name, published: bool) -> Result<RefreshResult> {
        let text = if published {
            name.published()
        } else {
            name.unpublished()
        };
        let stamp = match self.directory()?.stamp(&text) {
            Ok(Some(stamp)) => stamp,
            // The next look finds the file that replaced it.
            Ok(None) => return Ok(self.forget_vanished(name)),
            Err(Error::Refused { path, why }) => {
                let refused = FileEntry::refused(path, why, published);
                self.files.insert(name, Box::new(refused));
                return Ok(RefreshResult::Changed);
            }
            Err(Error::File { path, .. }) => {
                let unreadable = FileEntry::unreadable(path, name, published);
                self.files.insert(name, Box::new(unreadable));
                return Ok(RefreshResult::Changed);
            }
            Err(error) => return Err(error),
        };
        let seen = self.files.get(&name);
        // A segment that is still written is always read. The size may stay the same, as the segment grows in reserved space. The
        // modification time may stay the same, as a write sets it when it begins, and by a coarse clock.
        let is_same =
            |seen: &FileEntry| seen.details().stamp == Some(stamp) && seen.published == published;
        if published && seen.is_some_and(|seen| is_same(seen)) {
            return Ok(RefreshResult::Same);
        }
        let before = seen
            .filter(|seen| is_same(seen))
            .map(|seen| seen.records.len());
        let handle = match self.directory()?.read(&text) {
            Ok(Some(handle)) => handle,
            Ok(None) => return Ok(self.forget_vanished(name)),
            Err(Error::File { path, .. }) => {
                let unreadable = FileEntry::unreadable(path, name, published);
                self.files.insert(name, Box::new(unreadable));
                return Ok(RefreshResult::Changed);
            }
            Err(error) => return Err(error),
        };
        let mut seen = match self.files.remove(&name) {
            // A segment only grows while it is written.
            Some(mut seen) if !published && !seen.published => {
                seen.details_mut().damage.clear();
                seen
            }
            _ => Box::default(),
        };
        seen.details_mut().stamp = Some(stamp);
        seen.published = published;
        match seen.look_through(self.rank, name, &handle) {
            // The other files are sound, and this one may be readable at the next look.
            Err(Error::Read { offset, .. }) => {
                seen.is_unreadable = true;
                seen.details_mut().damage.push(Damage {
                    path: handle.path().to_path_buf(),
                    offset,
                    version: name.version(),
                    what: UNREADABLE.what(),
                });
            }
            looked => looked?,
        }
        if seen.is_unreadable {
            seen.details_mut().stamp = None;
        }
        // The writer may have closed or removed the file meanwhile. Then its pieces are in other files, and are not damaged.
        let is_there = |now: Option<FileStamp>| now.is_some_and(|now| now.is_grown(&stamp));
        if !seen.details().damage.is_empty() && !self.directory()?.stamp(&text).is_ok_and(is_there)
        {
            return Ok(self.forget_vanished(name));
        }
        let same = before == Some(seen.records.len());
        self.files.insert(name, seen);
        Ok(if same {
            RefreshResult::Same
        } else {
            RefreshResult::Changed
        })
    }

    /// Removes the entry of a file that was removed since the directory was read.
    fn forget_vanished(&mut self, name: Name) -> RefreshResult {
        self.files.remove(&name);
        RefreshResult::Gone
    }

    /// Enters a record that was just written.
    pub(crate) fn insert(&mut self, record: Record) {
        self.take(&record);
        let seen = self.files.entry(record.file).or_default();
        if let Name::Alone(_) = record.file {
            **seen = FileEntry::default();
        }
        let is_before = |known: &Record| known.position < record.position;
        let at = seen.records.partition_point(is_before);
        seen.records.insert(at, record);
    }

    /// Adds damage that was found in payloads, which no look at a closed file reads.
    pub(crate) fn say(&mut self, name: Name, damage: Vec<Damage>) {
        let Some(seen) = self.files.get_mut(&name) else {
            return;
        };
        for mut damage in damage {
            let mut known = seen.details().damage.iter();
            if !known.any(|known| known.offset == damage.offset) {
                let text = if seen.published {
                    name.published()
                } else {
                    name.unpublished()
                };
                damage.path = self.path.join(text);
                seen.details_mut().damage.push(damage);
            }
        }
    }

    /// Renames a damaged file so that it is not read any more. The records in it that stay also lie in other files.
    pub(crate) fn put_aside(&mut self, text: &str, name: Name) {
        let aside = name.aside();
        let renamed = self
            .directory()
            .map(|directory| directory.rename(text, &aside));
        if renamed.unwrap_or(false) {
            self.aside.push(aside);
        }
    }

    /// Removes the entry of a removed file.
    pub(crate) fn forget(&mut self, name: Name) {
        self.files.remove(&name);
    }

    /// Determines which records count.
    pub(crate) fn sort(&mut self) {
        self.has_hidden = false;
        // Collecting the map halves its memory, compared with one that has grown.
        let files: BTreeMap<_, _> = std::mem::take(&mut self.files).into_iter().collect();
        let records = || files.values().flat_map(|seen| &seen.records);
        if self.is_of_blobs {
            let pieces = records().filter(|record| record.manifest().is_none());
            self.epochs = pieces.map(|piece| piece.identity.epoch).collect();
        }
        let mut newest: BTreeMap<(bool, u64), &Record> = BTreeMap::new();
        for record in records() {
            let key = (record.manifest().is_some(), record.version);
            if !self.is_given_up(record) && record.replaces(newest.get(&key).copied()) {
                newest.insert(key, record);
            }
        }
        let places = newest.into_iter();
        let places =
            places.map(|((is_manifest, version), record)| (is_manifest, version, record.place()));
        let (manifests, pieces): (Vec<_>, Vec<_>) =
            places.partition(|(is_manifest, ..)| *is_manifest);
        let by_version = |places: Vec<(bool, u64, RecordPlace)>| -> BTreeMap<u64, RecordPlace> {
            places
                .into_iter()
                .map(|(_, version, place)| (version, place))
                .collect()
        };
        (self.pieces, self.manifests) = (by_version(pieces), by_version(manifests));
        self.files = files;
    }

    /// Returns true if a piece was given up. Sets `has_hidden` if it was, because this run was not offered it.
    fn is_given_up(&mut self, record: &Record) -> bool {
        let (version, identity) = (record.version, &record.identity);
        let is_given_up = record.manifest().is_none() && self.gave_up(version, identity);
        self.has_hidden |= is_given_up && self.was_not_offered(version, identity);
        is_given_up
    }

    /// Enters one record. The record counts if it was not given up and no newer one is there.
    pub(super) fn take(&mut self, record: &Record) {
        let (version, place) = (record.version, record.place());
        let is_given_up = self.is_given_up(record);
        let is_newest = match record.manifest() {
            None => record.replaces(self.piece(version)),
            Some(_) => record.replaces(self.manifest(version)),
        };
        let places = match record.manifest() {
            None => &mut self.pieces,
            Some(_) => &mut self.manifests,
        };
        if is_given_up {
            // The record may lie in the place of one that counted before.
            if places.get(&version) == Some(&place) {
                places.remove(&version);
            }
        } else if is_newest {
            places.insert(version, place);
        }
    }

    fn record_at(&self, place: RecordPlace) -> Option<&Record> {
        self.files.get(&place.file)?.record_at(place.position)
    }

    /// Returns the piece of a version that counts.
    pub(super) fn piece(&self, version: u64) -> Option<&Record> {
        self.record_at(*self.pieces.get(&version)?)
    }

    /// Returns the manifest of a version that counts.
    pub(super) fn manifest(&self, version: u64) -> Option<&Record> {
        self.record_at(*self.manifests.get(&version)?)
    }

    /// Returns the pieces that count, in the order of their versions.
    pub(super) fn counting_pieces(&self) -> impl Iterator<Item = &Record> {
        self.pieces
            .values()
            .filter_map(|place| self.record_at(*place))
    }

    /// Returns the highest epoch, the highest sequence, and the highest segment number in use.
    pub(crate) fn highest(&self) -> (u32, u64, u64) {
        if self.is_of_blobs {
            return (self.seen.0, self.seen.1, 0);
        }
        let records = || self.files.values().flat_map(|seen| &seen.records);
        let epoch = records().map(|record| record.identity.epoch).max();
        let sequence = records().map(|record| record.identity.sequence).max();
        let segments = self.files.keys().filter_map(|name| name.segment());
        // Twins get new numbers before anything is written.
        let twins = self.twins().count() as u64;
        (
            epoch
                .max(self.marks.last().map(|mark| mark.epoch))
                .unwrap_or(0),
            sequence.unwrap_or(0),
            segments.max().unwrap_or(0) + twins,
        )
    }

    /// Returns the open segments whose numbers other, published segments have.
    pub(super) fn twins(&self) -> impl Iterator<Item = Name> {
        let twin = |name: &&Name| matches!(name, Name::Twin(_));
        self.files.keys().filter(twin).copied()
    }
}
