//! Reads through a file: finds the records in it, and its damage.

use super::damage::{CHECKSUM, Damage, DamagedRange};
use super::directory::FileStamp;
use super::handle::Handle;
use super::listing::BlobEntry;
use super::record::{Detail, Name, Record, sum_of};
use super::tail;
use crate::container::{
    Found, Head, IndexRow, Kind, OF_ANOTHER_RANK, Row, Scanner, Source, UNREADABLE,
};
use crate::container::{damaged_block, rows};
use crate::file::BLOCK;
use crate::{Error, Result};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A file that was read through, or a blob whose head is known. A history has one entry for each large version, so it is small.
#[derive(Debug, Default)]
pub(crate) struct FileEntry {
    /// The records in the order of their positions.
    pub(crate) records: SmallVec<[Record; 1]>,
    /// The state of the blob in listings; `None` for a file.
    pub(super) blob: Option<BlobEntry>,
    pub(super) published: bool,
    /// True if a part of the file could not be read; a later read may succeed.
    pub(crate) is_unreadable: bool,
    /// The other properties; `None` for a sound blob.
    pub(super) details: Option<Box<FileDetails>>,
}

/// The properties of a file that a sound blob does not have.
#[derive(Debug, Default)]
pub(crate) struct FileDetails {
    pub(super) stamp: Option<FileStamp>,
    pub(crate) damage: Vec<Damage>,
    /// The offset from which the next look reads a segment that is still written. All bytes before it are sound.
    pub(super) end: u64,
    /// For an open segment, the end of the bytes that must stay.
    pub(super) whole: u64,
    /// For an open segment, the rows of the indexes of its batches.
    pub(super) listed: Vec<IndexRow>,
}

/// The details of a sound blob.
static NO_DETAILS: FileDetails = FileDetails {
    stamp: None,
    damage: Vec::new(),
    end: 0,
    whole: 0,
    listed: Vec::new(),
};

impl FileEntry {
    pub(crate) fn details(&self) -> &FileDetails {
        self.details.as_deref().unwrap_or(&NO_DETAILS)
    }

    pub(crate) fn details_mut(&mut self) -> &mut FileDetails {
        self.details.get_or_insert_default()
    }

    /// Returns the record that starts at this position.
    pub(super) fn record_at(&self, position: u64) -> Option<&Record> {
        let at = self
            .records
            .binary_search_by_key(&position, |record| record.position);
        self.records.get(at.ok()?)
    }

    pub(super) fn refused(path: PathBuf, what: &'static str, published: bool) -> Self {
        let mut seen = Self {
            published,
            ..Self::default()
        };
        seen.details_mut().damage.push(Damage {
            path,
            offset: 0,
            version: None,
            what,
        });
        seen
    }

    /// Makes the entry of a file that could not be read. The file may contain records.
    pub(super) fn unreadable(path: PathBuf, name: Name, published: bool) -> Self {
        let mut seen = Self::refused(path, UNREADABLE.what(), published);
        seen.is_unreadable = true;
        let damage = &mut seen.details_mut().damage;
        damage
            .iter_mut()
            .for_each(|damage| damage.version = name.version());
        seen
    }

    /// Reads through a file in the directory of this rank.
    pub(super) fn look_through(&mut self, rank: u32, name: Name, handle: &Handle) -> Result<()> {
        self.is_unreadable = false;
        match self.published {
            true => self.look_published(rank, name, handle),
            false => self.look_open(rank, name, handle),
        }
    }

    fn look_published(&mut self, rank: u32, name: Name, handle: &Handle) -> Result<()> {
        let damage = |offset, version, what| Damage {
            path: handle.path().to_path_buf(),
            offset,
            version,
            what,
        };
        let (mut lists, mut is_ended): (Vec<IndexRow>, _) = (Vec::new(), false);
        walk(handle, rank, 0, |found, end| {
            let head = match found {
                Found::Record(head) => head,
                Found::Damage { offset, what } => {
                    self.is_unreadable |= what == UNREADABLE;
                    let what = what.what();
                    self.details_mut()
                        .damage
                        .push(damage(offset, name.version(), what));
                    return Ok(());
                }
            };
            self.details_mut().end = end;
            let mut record = Record::new(name, head.position, &head);
            if head.kind == Kind::Piece {
                self.records.push(record);
                return Ok(());
            }
            // A published file is complete, unless it was damaged. Manifests and indexes are used now, so they are verified now.
            match damaged_block(&handle.plain, &head) {
                Ok(None) if head.kind == Kind::Manifest => {
                    record.detail = Detail::Manifest(sum_of(list(&handle.plain, &head)?));
                    self.records.push(record);
                }
                Ok(None) => {
                    lists.extend(list::<IndexRow>(&handle.plain, &head)?);
                    is_ended |= head.sequence == 0;
                }
                Ok(Some(at)) => {
                    let version = (head.kind == Kind::Manifest).then_some(head.version);
                    self.details_mut()
                        .damage
                        .push(damage(at, version, CHECKSUM));
                }
                Err(Error::Read { offset, .. }) => {
                    self.is_unreadable = true;
                    let what = UNREADABLE.what();
                    self.details_mut()
                        .damage
                        .push(damage(offset, Some(head.version), what));
                }
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        let size = handle.plain.size()?;
        if !size.is_multiple_of(BLOCK as u64) {
            self.details_mut()
                .damage
                .push(damage(size, None, "the file is cut off"));
        }
        match name {
            Name::Segment(_) | Name::Twin(_) => {
                self.compare(&lists, handle);
                if !is_ended {
                    let what = "the list of its records is missing at the segment's end";
                    let end = self.details().end;
                    self.details_mut().damage.push(damage(end, None, what));
                }
            }
            Name::Alone(version) | Name::Manifest(version) => {
                self.records.retain(|record| record.version == version);
                if self.records.is_empty() && self.details().damage.is_empty() {
                    let what = "it does not hold the version that its name says";
                    self.details_mut()
                        .damage
                        .push(damage(0, Some(version), what));
                }
            }
        }
        Ok(())
    }

    /// Reads through a segment that is still written, or that a crash left open.
    ///
    /// Batches are written in order, each after the previous one is durable. So unsound bytes before sound ones are damaged, unless
    /// they have become sound meanwhile. The last bytes may be a batch that was never completed; [`tail`] decides that.
    fn look_open(&mut self, rank: u32, name: Name, handle: &Handle) -> Result<()> {
        // The unsound bytes may have been a batch that the writer was just writing: then the batch is sound now, and perhaps a
        // later one is not. Damaged bytes are found a second time. The segment is finite, so the loop ends.
        let mut before: Option<Vec<u64>> = None;
        let (mut damaged, last, end) = loop {
            let from = self.details().end;
            self.records.retain(|record| record.position < from);
            self.details_mut().listed.retain(|row| row.position < from);
            let looked = self.look_open_from(from, rank, name, handle)?;
            let damaged: Vec<u64> = looked.0.iter().map(|stretch| stretch.offset).collect();
            if damaged.is_empty() || before.as_ref() == Some(&damaged) {
                break looked;
            }
            before = Some(damaged);
        };
        let first = damaged
            .iter()
            .map(|stretch: &DamagedRange| stretch.offset)
            .min();
        let start = |stretch: &DamagedRange| stretch.record.map_or(stretch.offset, |(at, _)| at);
        let first = first.map(|_| damaged.iter().map(start).min().unwrap_or(end));
        self.details_mut().end = first.unwrap_or(end);
        damaged.extend(last.into_iter().filter(DamagedRange::is_unreadable));
        self.is_unreadable = damaged.iter().any(DamagedRange::is_unreadable);
        if !self.is_unreadable {
            let tail = tail::classify(handle, &self.records, &self.details().listed, end)?;
            self.details_mut().whole = tail.end;
            damaged.extend(tail.damage);
        }
        for stretch in damaged {
            let at = start(&stretch);
            let row = self.details().listed.iter().find(|row| row.position == at);
            let version = row.map(|row| row.version);
            self.details_mut().damage.push(Damage {
                path: handle.path().to_path_buf(),
                offset: stretch.offset,
                version: version.or(stretch.record.map(|(_, version)| version)),
                what: stretch.what,
            });
        }
        Ok(())
    }

    /// Returns the damage before the last sound record, the damage behind it, and the end of that record.
    fn look_open_from(
        &mut self,
        from: u64,
        rank: u32,
        name: Name,
        handle: &Handle,
    ) -> Result<(Vec<DamagedRange>, Vec<DamagedRange>, u64)> {
        let (mut damaged, mut last, mut end) = (Vec::new(), Vec::new(), from);
        walk(handle, rank, from, |found, behind| {
            let head = match found {
                Found::Record(head) => head,
                Found::Damage { offset, what } => {
                    last.push(DamagedRange {
                        offset,
                        record: None,
                        what: what.what(),
                    });
                    return Ok(());
                }
            };
            let bad = match damaged_block(&handle.plain, &head) {
                Ok(bad) => bad.map(|offset| (offset, CHECKSUM)),
                Err(Error::Read { offset, .. }) => Some((offset, UNREADABLE.what())),
                Err(error) => return Err(error),
            };
            if let Some((offset, what)) = bad {
                last.push(DamagedRange {
                    offset,
                    record: Some((head.position, head.version)),
                    what,
                });
                return Ok(());
            }
            damaged.append(&mut last);
            end = behind;
            let mut record = Record::new(name, head.position, &head);
            match head.kind {
                Kind::Piece => self.records.push(record),
                Kind::Manifest => {
                    record.detail = Detail::Manifest(sum_of(list(&handle.plain, &head)?));
                    self.records.push(record);
                }
                Kind::Index => {
                    let rows: Vec<IndexRow> = list(&handle.plain, &head)?;
                    self.details_mut().listed.extend(rows);
                }
            }
            Ok(())
        })?;
        Ok((damaged, last, end))
    }

    /// Adds damage for the records that `rows` list and that are not there.
    fn compare(&mut self, rows: &[IndexRow], handle: &Handle) {
        let there: BTreeSet<u64> = self.records.iter().map(|record| record.position).collect();
        for row in rows.iter().filter(|row| !there.contains(&row.position)) {
            let known = self
                .details_mut()
                .damage
                .iter_mut()
                .find(|d| d.offset == row.position);
            match known {
                Some(damage) => damage.version = Some(row.version),
                None => self.details_mut().damage.push(Damage {
                    path: handle.path().to_path_buf(),
                    offset: row.position,
                    version: Some(row.version),
                    what: "the record is gone",
                }),
            }
        }
    }
}

/// Calls `each` with every record of the rank from `offset` on and the end of the record, and with every range that is no such record
/// or cannot be read.
fn walk(
    handle: &Handle,
    rank: u32,
    offset: u64,
    mut each: impl FnMut(Found, u64) -> Result<()>,
) -> Result<()> {
    let mut scanner = Scanner::new(&handle.plain, offset)?;
    loop {
        let found = match scanner.next() {
            Ok(None) => return Ok(()),
            Ok(found) => found,
            Err(Error::Read { .. }) => scanner.pass_over(),
            Err(error) => return Err(error),
        };
        let found = match found {
            None => continue,
            // The lists of a segment name no rank.
            Some(Found::Record(head)) if head.rank != rank && head.kind != Kind::Index => {
                Found::Damage {
                    offset: head.position,
                    what: OF_ANOTHER_RANK,
                }
            }
            Some(found) => found,
        };
        each(found, scanner.at())?;
    }
}

/// Reads the rows of a manifest or index whose blocks were verified.
fn list<R: Row>(source: &impl Source<Error = Error>, head: &Head) -> Result<Vec<R>> {
    let Some(region) = head.regions.first() else {
        return Ok(Vec::new());
    };
    // The rows lie within the file, so they are no longer than the file.
    let mut bytes = vec![0; region.length as usize];
    source.read(
        head.position + u64::from(head.length) + region.offset,
        &mut bytes,
    )?;
    Ok(rows(&bytes).collect())
}
