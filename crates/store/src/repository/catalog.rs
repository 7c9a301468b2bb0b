//! What lies in one rank's directory, as far as the heads tell.

use super::directory::{Directory, Stamp};
use super::handle::Handle;
use crate::container::{
    Found, Head, IndexRow, Kind, ManifestRow, Row, Source, damaged_block, rows, scan,
};
use crate::file::BLOCK;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What a file of a rank's directory is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    /// One piece in a file of its own, named by its version.
    Alone(u64),
    /// A segment of many records, named by a number that counts them.
    Segment(u64),
}

impl Name {
    /// The name that the file has when it is whole.
    pub(crate) fn published(self) -> String {
        match self {
            Self::Alone(version) => format!("v{version:020}.tfc"),
            Self::Segment(number) => format!("s{number:020}.tfs"),
        }
    }

    /// The name that it has while it is written.
    pub(crate) fn unpublished(self) -> String {
        match self {
            Self::Alone(version) => format!("v{version:020}.tmp"),
            Self::Segment(number) => format!("s{number:020}.open"),
        }
    }

    /// What the name of a file says: which one it is, and whether it is published.
    pub(crate) fn parse(text: &str) -> Option<(Self, bool)> {
        let number = text.get(1..21)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = number.parse().ok()?;
        match (text.get(..1)?, text.get(21..)?) {
            ("v", ".tfc") => Some((Self::Alone(number), true)),
            ("s", ".tfs") => Some((Self::Segment(number), true)),
            ("s", ".open") => Some((Self::Segment(number), false)),
            _ => None,
        }
    }
}

/// A record, as far as its head tells.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) file: Name,
    pub(crate) position: u64,
    pub(crate) record_length: u64,
    /// Of the regions together.
    pub(crate) bytes: u64,
    pub(crate) version: u64,
    pub(crate) sequence: u64,
    pub(crate) run: u64,
    pub(crate) base: Option<u64>,
    pub(crate) created: u64,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// Of a manifest.
    pub(crate) rows: Option<Vec<ManifestRow>>,
}

impl Record {
    pub(crate) fn new(file: Name, position: u64, head: &Head) -> Self {
        Self {
            file,
            position,
            record_length: head.record_length(),
            bytes: head.regions.iter().map(|region| region.length).sum(),
            version: head.version,
            sequence: head.sequence,
            run: head.run,
            base: head.base,
            created: head.created,
            rank: head.rank,
            ranks: head.ranks,
            rows: None,
        }
    }

    /// What a manifest says of this piece.
    pub(crate) fn row(&self) -> ManifestRow {
        ManifestRow {
            rank: u64::from(self.rank),
            sequence: self.sequence,
            created: self.created,
            record_length: self.record_length,
        }
    }
}

/// Something in a repository that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The version that is hit, where that can be told.
    pub version: Option<u64>,
    /// What is wrong.
    pub what: &'static str,
}

/// A file that was looked through.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    stamp: Option<Stamp>,
    published: bool,
    /// Where the last record ends: what is behind it in a segment that is still written was not there yet.
    end: u64,
    pub(crate) records: Vec<Record>,
    pub(crate) damage: Vec<Damage>,
}

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

impl Seen {
    fn refused(path: PathBuf, what: &'static str, published: bool) -> Self {
        Self {
            published,
            damage: vec![Damage {
                path,
                offset: 0,
                version: None,
                what,
            }],
            ..Self::default()
        }
    }

    fn look_through(&mut self, name: Name, handle: &Handle) -> Result<()> {
        let damage = |offset, version, what| Damage {
            path: handle.path().to_path_buf(),
            offset,
            version,
            what,
        };
        let mut index: Option<Vec<IndexRow>> = None;
        let (records, found_damage) = (&mut self.records, &mut self.damage);
        let published = self.published;
        let end = scan(&handle.plain, self.end, |found| {
            let head = match found {
                Found::Record(head) => head,
                // Of a segment that is still written, what is no record yet does not count.
                Found::Damage { .. } if !published => return Ok(false),
                Found::Damage { offset, what } => {
                    found_damage.push(damage(offset, name.version(), what.what()));
                    return Ok(true);
                }
            };
            let mut record = Record::new(name, head.position, &head);
            // What was published is whole, or was; lists are read now, so they are checked now.
            if (!published || head.kind != Kind::Piece)
                && let Some(at) = damaged_block(&handle.plain, &head)?
            {
                if published {
                    found_damage.push(damage(at, Some(head.version), CHECKSUM));
                }
                return Ok(published);
            }
            match head.kind {
                Kind::Piece => records.push(record),
                Kind::Manifest => {
                    record.rows = Some(list(&handle.plain, &head)?);
                    records.push(record);
                }
                Kind::Index => index = Some(list(&handle.plain, &head)?),
            }
            Ok(true)
        })?;
        self.end = end;
        if !published {
            return Ok(());
        }
        let size = handle.plain.size()?;
        if !size.is_multiple_of(BLOCK as u64) {
            self.damage.push(damage(size, None, "the file is cut off"));
        }
        match name {
            Name::Segment(_) => match index {
                Some(rows) => self.compare(&rows, handle),
                None => self.damage.push(damage(
                    end,
                    None,
                    "the list of its records is missing at the segment's end",
                )),
            },
            Name::Alone(version) => {
                self.records.retain(|record| record.version == version);
                if self.records.is_empty() && self.damage.is_empty() {
                    let what = "it does not hold the version that its name says";
                    self.damage.push(damage(0, Some(version), what));
                }
            }
        }
        Ok(())
    }

    /// Finds the records that a segment had and that are not there.
    fn compare(&mut self, rows: &[IndexRow], handle: &Handle) {
        let there: BTreeSet<u64> = self.records.iter().map(|record| record.position).collect();
        for row in rows.iter().filter(|row| !there.contains(&row.position)) {
            let known = self.damage.iter_mut().find(|d| d.offset == row.position);
            match known {
                Some(damage) => damage.version = Some(row.version),
                None => self.damage.push(Damage {
                    path: handle.path().to_path_buf(),
                    offset: row.position,
                    version: Some(row.version),
                    what: "the record is gone",
                }),
            }
        }
    }
}

impl Name {
    fn version(self) -> Option<u64> {
        match self {
            Self::Alone(version) => Some(version),
            Self::Segment(_) => None,
        }
    }
}

pub(crate) const CHECKSUM: &str = "a block's checksum does not match";

/// Reads a list of records, whose blocks were checked.
fn list<R: Row>(source: &impl Source<Error = Error>, head: &Head) -> Result<Vec<R>> {
    let Some(region) = head.regions.first() else {
        return Ok(Vec::new());
    };
    // It lies within the file, so it is no longer than that.
    let mut bytes = vec![0; region.length as usize];
    source.read(
        head.position + u64::from(head.length) + region.offset,
        &mut bytes,
    )?;
    Ok(rows(&bytes).collect())
}
