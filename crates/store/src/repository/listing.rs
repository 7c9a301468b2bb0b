//! The catalogs of blobs, made from listings, which may lag, and from the heads of the blobs.

use super::blob_names::{BlobName, Parsed};
use super::catalog::Catalog;
use super::damage::Damage;
use super::indexes::{BATCH, Indexes, MOST_ROWS};
use super::record::{Detail, Name, Record, sum_of};
use super::rows::{ROW, of_rows, to_row};
use super::seen::FileEntry;
use super::threads::in_parallel;
use super::{Piece, State, rank_name};
use crate::container::{Kind, rows};
use crate::{BlobStamp, Blobs, Error, Result};
use std::collections::BTreeSet;

/// Blobs whose heads are read at the same time.
const AT_A_TIME: usize = 16;
/// Indexes that are read at the same time, each of at most 2 MiB.
const INDEXES_AT_A_TIME: usize = 4;

/// Bytes of a blob that are read first. Most heads, small pieces, and the manifests of most groups are shorter.
pub(super) const AHEAD: u64 = 16 << 10;

/// The name of the only region of an index.
pub(super) const ROWS: &str = "heads";

/// The state of a blob, without its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlobEntry {
    size: u64,
    tag: u64,
    is_exact: bool,
    /// True if the stamp comes from a listing, not from the answer to a write.
    is_listed: bool,
    /// Number of the index that has the row of the blob; 0 for none.
    index: u32,
}

impl BlobEntry {
    fn new(stamp: BlobStamp, is_listed: bool, index: u32) -> Self {
        let BlobStamp {
            size,
            tag,
            is_exact,
        } = stamp;
        Self {
            size,
            tag,
            is_exact,
            is_listed,
            index,
        }
    }

    pub(super) fn stamp(&self) -> BlobStamp {
        let Self {
            size,
            tag,
            is_exact,
            ..
        } = *self;
        BlobStamp {
            size,
            tag,
            is_exact,
        }
    }
}

/// The content of a blob as its head describes it, or the offset and the fault of the damage.
type Content = std::result::Result<Record, (u64, &'static str)>;

/// The name of a blob, and its stamp in a listing.
type Listed = (BlobName, BlobStamp);

/// The state that concerns the blobs of all ranks.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// True if the blobs were listed at least once.
    pub(super) is_listed: bool,
    indexes: Indexes,
    /// Blobs that no index has a row of.
    without_row: Vec<BlobName>,
    /// Length of `without_row` from which on rows are written.
    batch: usize,
}

/// Rows for new indexes, and the numbers of the indexes that they replace.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) parts: Vec<IndexPart>,
    pub(super) replaced: Vec<u32>,
}

/// The rows of one index.
#[derive(Debug, Default)]
pub(super) struct IndexPart {
    pub(super) bytes: Vec<u8>,
    blobs: Vec<(BlobName, u64)>,
}

impl State {
    /// Lists the blobs, then reads indexes, and the heads of new or changed blobs.
    pub(super) fn list(&mut self, blobs: &dyn Blobs) -> Result<()> {
        let (mut there, mut indexes, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        blobs.list(&mut |text, stamp| match Parsed::of(text) {
            Some(Parsed::Record(name)) => there.push((name, stamp)),
            Some(Parsed::Index(rank)) => indexes.push((rank, text.to_owned(), stamp.size)),
            Some(Parsed::Note(rank, truncation)) => notes.push((rank, truncation)),
            None => {}
        })?;
        there.sort_unstable_by_key(|(name, _): &Listed| *name);
        self.correct(&mut there, blobs)?;
        let is_there =
            |name: &BlobName| there.binary_search_by_key(name, |(name, _)| *name).is_ok();
        let known = self.names();
        let lost: Vec<BlobName> = known.filter(|name| !is_there(name)).collect();
        let mut changed: BTreeSet<u32> = lost.iter().map(|name| name.rank).collect();
        lost.into_iter().for_each(|name| self.forget(name));
        let paths: BTreeSet<&str> = indexes.iter().map(|(_, path, _)| path.as_str()).collect();
        self.listing.indexes.retain(|path| paths.contains(path));
        if there.iter().any(|listed| !self.knows(listed)) {
            changed.extend(self.read_indexes(blobs, indexes, &there)?);
        }
        let unknown = there.into_iter().filter(|listed| !self.knows(listed));
        let unknown: Vec<Listed> = unknown.collect();
        let mut contents = Vec::with_capacity(unknown.len());
        let read = |listed: Listed| Ok((listed, head(blobs, listed)?));
        in_parallel(AT_A_TIME, unknown, read, |content| contents.push(content))?;
        for ((name, stamp), content) in contents {
            changed.insert(name.rank);
            match content {
                Some(content) => self.enter(blobs, name, content, stamp, true),
                // The blob was removed after the listing.
                None => self.forget(name),
            }
        }
        for (rank, truncation) in notes {
            let catalog = self.catalog_of(blobs, rank);
            // No other run may get the epoch of the note.
            catalog.see(truncation.epoch, 0);
            if catalog.truncations.insert(truncation) {
                changed.insert(rank);
            }
        }
        for rank in changed {
            self.catalog_of(blobs, rank).sort();
        }
        self.listing.is_listed = true;
        Ok(())
    }

    /// Returns the catalog of a rank's blobs.
    pub(super) fn catalog_of(&mut self, blobs: &dyn Blobs, rank: u32) -> &mut Catalog {
        let new = || Catalog::of_blobs(blobs.shown(&rank_name(rank)), rank);
        self.catalogs.entry(rank).or_insert_with(new)
    }

    fn names(&self) -> impl Iterator<Item = BlobName> {
        self.catalogs.iter().flat_map(|(rank, catalog)| {
            let names = catalog.files.keys().copied();
            names.map(|name| BlobName { rank: *rank, name })
        })
    }

    fn entry(&mut self, name: BlobName) -> Option<&mut BlobEntry> {
        let catalog = self.catalogs.get_mut(&name.rank)?;
        catalog.files.get_mut(&name.name)?.blob.as_mut()
    }

    /// Corrects a listing that may lag. Considers the blobs of this process that no listing has shown yet: if this listing lacks
    /// one or shows another state, asks for that blob by its name.
    fn correct(&mut self, there: &mut Vec<Listed>, blobs: &dyn Blobs) -> Result<()> {
        let new = self.catalogs.iter().flat_map(|(rank, catalog)| {
            let new = catalog.files.iter();
            let new = new.filter(|(_, file)| file.blob.is_some_and(|blob| !blob.is_listed));
            new.map(|(name, _)| BlobName {
                rank: *rank,
                name: *name,
            })
        });
        let new: Vec<BlobName> = new.collect();
        let is_known = |state: &mut Self, name: &BlobName| {
            let at = there.binary_search_by_key(name, |(name, _)| *name);
            let listed = at.ok().and_then(|at| there.get(at));
            listed.is_some_and(|listed| state.knows(listed))
        };
        let asked: BTreeSet<BlobName> = new
            .into_iter()
            .filter(|name| !is_known(self, name))
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        there.retain(|(name, _)| !asked.contains(name));
        let asked: Vec<BlobName> = asked.into_iter().collect();
        let look = |name: BlobName| Ok(blobs.stamp(&name.text())?.map(|stamp| (name, stamp)));
        in_parallel(AT_A_TIME, asked, look, |listed| there.extend(listed))?;
        there.sort_unstable_by_key(|(name, _)| *name);
        Ok(())
    }

    /// Returns true if the catalog has a listed blob in the same state. If so, enters the listed stamp.
    fn knows(&mut self, (name, listed): &Listed) -> bool {
        let Some(entry) = self.entry(*name) else {
            return false;
        };
        // Another process does not write a blob that this process wrote, as only one writes as a rank. The answer to a write may
        // have another kind of tag than the listing.
        let is_own = !entry.is_listed && (entry.tag == 0 || !listed.is_exact);
        let is_same_tag = entry.tag == listed.tag || is_own;
        let is_same = entry.size == listed.size && is_same_tag;
        if is_same {
            *entry = BlobEntry::new(*listed, true, entry.index);
        }
        is_same
    }

    /// Reads the indexes that are not known yet. Returns the ranks whose blobs were found in them.
    fn read_indexes(
        &mut self,
        blobs: &dyn Blobs,
        indexes: Vec<(u32, String, u64)>,
        there: &[Listed],
    ) -> Result<BTreeSet<u32>> {
        let new = indexes.into_iter();
        let new = new.filter(|(_, path, _)| !self.listing.indexes.knows(path));
        let new: Vec<_> = new.collect();
        let mut changed = BTreeSet::new();
        let read = |(rank, path, size): (u32, String, u64)| {
            let rows = index(blobs, rank, &path, size)?;
            Ok((rank, path, rows))
        };
        let take = |(rank, path, rows): (u32, String, Vec<u8>)| {
            let count = rows.len() / ROW;
            let number = self.listing.indexes.add(path, rank, count, true);
            for (record, size, tag) in of_rows(&rows) {
                let name = BlobName {
                    rank,
                    name: record.file,
                };
                let at = there.binary_search_by_key(&name, |(name, _)| *name);
                let listed = at.ok().and_then(|at| there.get(at));
                let Some((_, stamp)) =
                    listed.filter(|(_, stamp)| (stamp.size, stamp.tag) == (size, tag))
                else {
                    continue;
                };
                if self.entry(name).is_none_or(|old| old.index == 0) {
                    changed.insert(rank);
                    let entry = BlobEntry::new(*stamp, true, number);
                    self.replace(blobs, name, Ok(record), entry);
                }
            }
        };
        in_parallel(INDEXES_AT_A_TIME, new, read, take)?;
        Ok(changed)
    }

    /// Enters a blob that was written or whose head was read.
    pub(super) fn enter(
        &mut self,
        blobs: &dyn Blobs,
        name: BlobName,
        content: Content,
        stamp: BlobStamp,
        is_listed: bool,
    ) {
        let entry = BlobEntry::new(stamp, is_listed, 0);
        self.replace(blobs, name, content, entry);
        self.listing.without_row.push(name);
    }

    fn replace(&mut self, blobs: &dyn Blobs, name: BlobName, content: Content, entry: BlobEntry) {
        self.listing.indexes.add_live(entry.index);
        let mut file = FileEntry {
            published: true,
            blob: Some(entry),
            ..FileEntry::default()
        };
        let record = match content {
            Ok(record) => {
                file.records.push(record.clone());
                Some(record)
            }
            Err((offset, what)) => {
                file.details_mut().damage.push(Damage {
                    path: blobs.shown(&name.text()),
                    offset,
                    version: name.name.version(),
                    what,
                });
                None
            }
        };
        let catalog = self.catalog_of(blobs, name.rank);
        let old = catalog.files.insert(name.name, Box::new(file));
        if let Some(record) = record {
            catalog.count(&record);
        }
        if let Some(old) = old.and_then(|old| old.blob) {
            self.listing.indexes.remove_live(old.index);
        }
    }

    /// Removes the entry of a removed blob.
    pub(super) fn forget(&mut self, name: BlobName) {
        let catalog = self.catalogs.get_mut(&name.rank);
        let old = catalog.and_then(|catalog| catalog.files.remove(&name.name));
        if let Some(old) = old.and_then(|old| old.blob) {
            self.listing.indexes.remove_live(old.index);
        }
    }

    /// Takes the rows of a rank that belong into new indexes, including those of indexes that should be compacted. Returns `None`
    /// if there are too few.
    pub(super) fn take_rows(&mut self, rank: u32) -> Option<Rows> {
        let listing = &mut self.listing;
        if listing.without_row.len() < listing.batch.max(BATCH) {
            return None;
        }
        let without_row = std::mem::take(&mut listing.without_row);
        let replaced = listing.indexes.to_compact(rank);
        let mut rows = Rows {
            parts: Vec::new(),
            replaced,
        };
        let files = &self.catalogs.get(&rank)?.files;
        let is_without = |name: &BlobName| {
            let blob = files.get(&name.name).and_then(|file| file.blob);
            name.rank == rank && blob.is_some_and(|blob| blob.index == 0)
        };
        let mut names: Vec<BlobName> = without_row.into_iter().filter(is_without).collect();
        if !rows.replaced.is_empty() {
            let is_replaced = |file: &FileEntry| {
                let index = file.blob.map(|blob| blob.index);
                index.is_some_and(|index| rows.replaced.contains(&index))
            };
            let more = files.iter().filter(|(_, file)| is_replaced(file));
            names.extend(more.map(|(name, _)| BlobName { rank, name: *name }));
        }
        names.sort_unstable_by_key(|BlobName { name, .. }| (name.version(), *name));
        names.dedup();
        let mut part = IndexPart::default();
        for name in names {
            let file = files.get(&name.name);
            let known = file.and_then(|file| Some((file.records.first()?, file.blob?)));
            if let Some((record, blob)) = known {
                part.bytes.extend(to_row(record, blob.stamp()));
                part.blobs.push((name, blob.tag));
            }
            if part.blobs.len() == MOST_ROWS {
                rows.parts.push(std::mem::take(&mut part));
            }
        }
        if !part.blobs.is_empty() {
            rows.parts.push(part);
        }
        Some(rows)
    }

    /// Enters an index that was written.
    pub(super) fn add_index(&mut self, path: String, rank: u32, part: &IndexPart) {
        let count = part.blobs.len();
        let number = self.listing.indexes.add(path, rank, count, false);
        for (name, tag) in &part.blobs {
            if let Some(entry) = self.entry(*name).filter(|entry| entry.tag == *tag) {
                let old = std::mem::replace(&mut entry.index, number);
                self.listing.indexes.add_live(number);
                self.listing.indexes.remove_live(old);
            }
        }
    }
}

impl Listing {
    /// Takes back rows that could not be written. The next attempt follows when there are [`BATCH`] more.
    pub(super) fn take_back(&mut self, rows: &Rows) {
        let blobs = rows.parts.iter().flat_map(|part| &part.blobs);
        self.without_row.extend(blobs.map(|(name, _)| *name));
        self.batch = self.without_row.len() + BATCH;
    }

    /// Removes the entries of replaced indexes after all rows were written. Returns their names, for the removal from the store.
    pub(super) fn take_replaced(&mut self, replaced: &[u32]) -> Vec<String> {
        self.batch = BATCH;
        replaced
            .iter()
            .filter_map(|number| self.indexes.remove(*number))
            .collect()
    }
}

/// Reads the head of a blob; `None` if the blob was removed.
pub(super) fn head(blobs: &dyn Blobs, (name, stamp): Listed) -> Result<Option<Content>> {
    match record(blobs, name, stamp.size) {
        Ok(record) => Ok(record.map(Ok)),
        Err(Error::Damaged { offset, what, .. }) => Ok(Some(Err((offset, what)))),
        Err(error) => Err(error),
    }
}

fn record(
    blobs: &dyn Blobs,
    BlobName { rank, name }: BlobName,
    size: u64,
) -> Result<Option<Record>> {
    let text = BlobName { rank, name }.text();
    let Some(source) = blobs.open(&text, size, AHEAD)? else {
        return Ok(None);
    };
    let shown = blobs.shown(&text);
    let piece = Piece::elsewhere(source, shown.clone(), 1, None)?;
    let head = piece.head();
    let kind = match name {
        Name::Manifest(_) => Kind::Manifest,
        _ => Kind::Piece,
    };
    if (Some(head.version), head.rank, head.kind) != (name.version(), rank, kind) {
        return Err(Error::Damaged {
            path: shown,
            offset: 0,
            what: "it does not hold what its name says",
            older: None,
        });
    }
    let mut record = Record::new(name, 0, head);
    if kind == Kind::Manifest {
        record.detail = Detail::Manifest(sum_of(rows(&piece.read("pieces")?)));
    }
    Ok(Some(record))
}

/// Returns the rows of an index; none if the index is damaged or was removed, or is longer than one can be.
fn index(blobs: &dyn Blobs, rank: u32, path: &str, size: u64) -> Result<Vec<u8>> {
    /// More than the head of an index takes, in bytes.
    const HEAD: usize = 1 << 20;
    if size > (MOST_ROWS * ROW + HEAD) as u64 {
        return Ok(Vec::new());
    }
    let Some(source) = blobs.open(path, size, size)? else {
        return Ok(Vec::new());
    };
    let piece = Piece::elsewhere(source, blobs.shown(path), 1, None);
    let rows = piece.and_then(|piece| match piece.head().kind {
        Kind::Index if piece.head().rank == rank => piece.read(ROWS),
        _ => Ok(Vec::new()),
    });
    match rows {
        Err(error @ Error::Remote(_)) => Err(error),
        rows => Ok(rows.unwrap_or_default()),
    }
}
