//! The objects in the store, by name, with what their heads say.

mod superseded;

use crate::entry::{Content, Entry, ROW, of_rows, sum_of, tag_of, to_row};
use crate::index::{BATCH, Indexes, MOST_ROWS};
use crate::inspect;
use crate::name::{Name, ObjectKind, Parsed};
use crate::remote::Remote;
use object_store::ObjectMeta;
use object_store::path::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use superseded::Truncations;
use tierflow_store::container::ManifestRow;
use tierflow_store::{Damage, Heads, Identity, PieceEntry, PieceInfo, Result, with_bases};

/// All objects under a prefix: about 200 bytes of memory for each.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    entries: BTreeMap<Name, Entry>,
    indexes: Indexes,
    /// True if the store's objects were ever listed.
    pub(crate) is_listed: bool,
    /// Objects that have no row in an index yet.
    without_row: Vec<Name>,
    /// The number of such objects from which on rows are written.
    batch: usize,
    /// The highest epoch and the highest sequence number of each rank.
    orders: BTreeMap<u32, (u32, u64)>,
    /// The notes of runs that were not offered all versions.
    truncations: Truncations,
    /// Pieces that do not count for that.
    superseded: BTreeMap<Name, Entry>,
}

/// An object as the store lists it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListEntry {
    pub(crate) name: Name,
    pub(crate) size: u64,
    pub(crate) tag: u64,
    /// True if the tag is of the store's entity tag, and not of the time of the last write.
    has_tag: bool,
}

/// Rows for new indexes, and the indexes that these replace.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) parts: Vec<Part>,
    pub(crate) replaced: Vec<u32>,
}

/// The rows of one index.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    objects: Vec<(Name, u64)>,
}

impl ListEntry {
    pub(crate) fn new(name: Name, meta: &ObjectMeta) -> Self {
        Self {
            name,
            size: meta.size,
            tag: tag_of(meta),
            has_tag: meta.e_tag.is_some(),
        }
    }
}

impl Catalog {
    /// Lists the store's objects, and reads indexes and heads of those that are new or changed.
    pub(crate) fn refresh(&mut self, remote: &Arc<Remote>, prefix: &Path) -> Result<()> {
        let (mut there, mut indexes, mut truncations) = (Vec::new(), Vec::new(), Vec::new());
        remote.list(prefix, |meta| match Parsed::of(prefix, &meta.location) {
            Some(Parsed::Record(name)) => {
                there.push(ListEntry::new(name, &meta));
            }
            Some(Parsed::Index(rank)) => indexes.push((rank, meta)),
            Some(Parsed::Truncation(rank, truncation)) => truncations.push((rank, truncation)),
            None => {}
        })?;
        there.sort_unstable_by_key(|listed: &ListEntry| listed.name);
        self.correct(&mut there, remote, prefix)?;
        let find = |name: &Name| there.binary_search_by_key(name, |listed| listed.name);
        let known = self.entries.keys().chain(self.superseded.keys());
        let lost: Vec<Name> = known.filter(|name| find(name).is_err()).copied().collect();
        lost.into_iter().for_each(|name| self.forget(name));
        let paths: BTreeSet<&Path> = indexes.iter().map(|(_, meta)| &meta.location).collect();
        self.indexes.retain(|path| paths.contains(path));
        if there.iter().any(|listed| !self.knows(listed)) {
            self.read_indexes(remote, indexes, &there)?;
        }
        let unknown = there.into_iter().filter(|listed| !self.knows(listed));
        let unknown: Vec<ListEntry> = unknown.collect();
        for (listed, content) in inspect::heads(remote, prefix, unknown)? {
            match content {
                Some(content) => self.insert(
                    listed.name,
                    Entry {
                        size: listed.size,
                        tag: listed.tag,
                        is_listed: true,
                        content,
                        index: 0,
                    },
                ),
                // The object was removed after it was listed.
                None => self.forget(listed.name),
            }
        }
        for (rank, truncation) in truncations {
            self.add_note(rank, truncation);
        }
        self.supersede();
        self.is_listed = true;
        Ok(())
    }

    /// Lists may lag: what they lack, or have otherwise, of objects that this process wrote and no list had so far, is asked for
    /// by name.
    fn correct(
        &mut self,
        there: &mut Vec<ListEntry>,
        remote: &Arc<Remote>,
        prefix: &Path,
    ) -> Result<()> {
        let new = self.entries.iter().filter(|(_, entry)| !entry.is_listed);
        let new: Vec<Name> = new.map(|(name, _)| *name).collect();
        let is_known = |catalog: &mut Self, name: &Name| {
            let at = there.binary_search_by_key(name, |listed| listed.name);
            let listed = at.ok().and_then(|at| there.get(at));
            listed.is_some_and(|listed| catalog.knows(listed))
        };
        let asked: BTreeSet<Name> = new
            .into_iter()
            .filter(|name| !is_known(self, name))
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        there.retain(|listed| !asked.contains(&listed.name));
        there.extend(inspect::by_name(
            remote,
            prefix,
            asked.into_iter().collect(),
        )?);
        there.sort_unstable_by_key(|listed| listed.name);
        Ok(())
    }

    /// Chooses whether a listed object is in the catalog, unchanged; if so, its listed tag is entered.
    fn knows(&mut self, listed: &ListEntry) -> bool {
        let superseded = self.superseded.get_mut(&listed.name);
        let Some(entry) = self.entries.get_mut(&listed.name).or(superseded) else {
            return false;
        };
        // An object that this process wrote is not written by another, as only one writes as a rank; and the answer to a write may
        // have another kind of tag than the list.
        let is_own = !entry.is_listed && (entry.tag == 0 || !listed.has_tag);
        let is_same = entry.size == listed.size && (entry.tag == listed.tag || is_own);
        if is_same {
            (entry.tag, entry.is_listed) = (listed.tag, true);
        }
        is_same
    }

    fn read_indexes(
        &mut self,
        remote: &Arc<Remote>,
        indexes: Vec<(u32, ObjectMeta)>,
        there: &[ListEntry],
    ) -> Result<()> {
        let new = indexes.into_iter();
        let new = new.filter(|(_, meta)| !self.indexes.knows(&meta.location));
        inspect::indexes(remote, new.collect(), |rank, path, rows| {
            let number = self.indexes.add(path, rank, rows.len() / ROW);
            for (name, mut entry) in of_rows(rank, &rows) {
                let at = there.binary_search_by_key(&name, |listed| listed.name);
                let counts = at
                    .ok()
                    .and_then(|at| there.get(at))
                    .is_some_and(|listed| (listed.size, listed.tag) == (entry.size, entry.tag));
                let old = self.entries.get(&name);
                let old = old.or_else(|| self.superseded.get(&name));
                if counts && old.is_none_or(|old| old.index == 0) {
                    entry.index = number;
                    self.replace(name, entry);
                }
            }
        })
    }

    /// Enters an object that was written, or whose head was read.
    pub(crate) fn insert(&mut self, name: Name, entry: Entry) {
        self.replace(name, entry);
        self.without_row.push(name);
    }

    fn replace(&mut self, name: Name, entry: Entry) {
        self.indexes.add_live(entry.index);
        if let Some(order) = entry.content.order() {
            self.see(name.rank, order);
        }
        self.superseded.remove(&name);
        if let Some(old) = self.entries.insert(name, entry) {
            self.indexes.remove_live(old.index);
        }
    }

    fn see(&mut self, rank: u32, (epoch, sequence): (u32, u64)) {
        let order = self.orders.entry(rank).or_default();
        *order = (order.0.max(epoch), order.1.max(sequence));
    }

    /// Removes the entry of an object that was removed.
    pub(crate) fn forget(&mut self, name: Name) {
        self.superseded.remove(&name);
        if let Some(old) = self.entries.remove(&name) {
            self.indexes.remove_live(old.index);
        }
    }

    /// The rows of a rank that are to be written into indexes, if there are enough; also those of indexes to be compacted.
    pub(crate) fn take_rows(&mut self, rank: u32) -> Option<Rows> {
        if self.without_row.len() < self.batch.max(BATCH) {
            return None;
        }
        let mut names: BTreeSet<Name> = std::mem::take(&mut self.without_row)
            .into_iter()
            .filter(|name| name.rank == rank)
            .filter(|name| self.entries.get(name).is_some_and(|entry| entry.index == 0))
            .collect();
        let replaced = self.indexes.to_compact(rank);
        if !replaced.is_empty() {
            let rows = self.entries.iter();
            let rows = rows.filter(|(_, entry)| replaced.contains(&entry.index));
            names.extend(rows.map(|(name, _)| *name));
        }
        let mut rows = Rows {
            parts: Vec::new(),
            replaced,
        };
        let mut part = Part::default();
        for name in names {
            let entry = self.entries.get(&name);
            let row = entry.and_then(|entry| Some((entry.tag, to_row(name, entry)?)));
            if let Some((tag, row)) = row {
                part.bytes.extend(row);
                part.objects.push((name, tag));
            }
            if part.objects.len() == MOST_ROWS {
                rows.parts.push(std::mem::take(&mut part));
            }
        }
        if !part.objects.is_empty() {
            rows.parts.push(part);
        }
        Some(rows)
    }

    /// Enters an index that was written.
    pub(crate) fn add_index(&mut self, path: Path, rank: u32, part: &Part) {
        let number = self.indexes.add(path, rank, part.objects.len());
        for (name, tag) in &part.objects {
            if let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.tag == *tag) {
                let old = std::mem::replace(&mut entry.index, number);
                self.indexes.add_live(number);
                self.indexes.remove_live(old);
            }
        }
    }

    /// Takes back rows that could not be written: they are tried again with [`BATCH`] more.
    pub(crate) fn take_back(&mut self, rows: &Rows) {
        let objects = rows.parts.iter().flat_map(|part| &part.objects);
        self.without_row.extend(objects.map(|(name, _)| *name));
        self.batch = self.without_row.len() + BATCH;
    }

    /// After all rows were written: forgets the replaced indexes, and returns their paths, to be removed from the store.
    pub(crate) fn take_replaced(&mut self, replaced: &[u32]) -> Vec<Path> {
        self.batch = BATCH;
        replaced
            .iter()
            .filter_map(|number| self.indexes.remove(*number))
            .collect()
    }

    /// The highest epoch and the highest sequence number of a rank's objects, removed ones included.
    pub(crate) fn order(&self, rank: u32) -> (u32, u64) {
        self.orders.get(&rank).copied().unwrap_or_default()
    }

    /// A rank's pieces, oldest version first.
    pub(crate) fn pieces(&self, rank: u32) -> Vec<PieceInfo> {
        let own = self.entries.iter().filter(|(name, _)| name.rank == rank);
        let pieces = own.filter_map(|(_, entry)| match entry.content {
            Content::Piece(PieceEntry { info, .. }) => Some(info),
            Content::Manifest(..) | Content::Damaged { .. } => None,
        });
        pieces.collect()
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        self.entries.keys().copied()
    }

    /// The damaged objects of all ranks.
    pub(crate) fn all_damage(&self, prefix: &Path) -> Vec<Damage> {
        let names = self.entries.keys();
        names
            .filter_map(|name| self.damage(*name, prefix))
            .collect()
    }

    /// The damage of an object, if it is in the catalog and damaged.
    pub(crate) fn damage(&self, name: Name, prefix: &Path) -> Option<Damage> {
        let Content::Damaged { offset, what } = self.entries.get(&name)?.content else {
            return None;
        };
        Some(Damage {
            path: name.path(prefix).as_ref().into(),
            offset,
            version: Some(name.version),
            what,
        })
    }

    /// The identity of a rank's piece of a version.
    pub(crate) fn identity(&self, version: u64, rank: u32) -> Option<Identity> {
        Some(self.listed(version, rank)?.info.identity)
    }

    /// The bytes of a piece's object.
    pub(crate) fn size(&self, version: u64, rank: u32) -> Option<u64> {
        Some(self.entries.get(&Name::piece(version, rank))?.size)
    }

    /// The versions of which there is a piece of a rank.
    pub(crate) fn versions_of(&self, rank: u32) -> Vec<u64> {
        let own = self
            .names()
            .filter(|name| name.rank == rank && name.kind == ObjectKind::Piece);
        own.map(|name| name.version).collect()
    }

    /// The bases of versions whose pieces are differences.
    pub(crate) fn bases(&self) -> BTreeMap<u64, u64> {
        let bases = self
            .entries
            .values()
            .filter_map(|entry| match entry.content {
                Content::Piece(PieceEntry { info, .. }) => {
                    Some((info.version, info.identity.base?))
                }
                Content::Manifest(..) | Content::Damaged { .. } => None,
            });
        bases.collect()
    }

    /// `versions` without the bases, direct and indirect, of versions that are not among them.
    pub(crate) fn without_bases(&self, versions: &BTreeSet<u64>) -> BTreeSet<u64> {
        let bases = self.bases();
        let stay = bases.keys().filter(|version| !versions.contains(version));
        versions - &with_bases(stay.copied().collect(), &bases)
    }
}

impl Heads for Catalog {
    fn listed(&self, version: u64, rank: u32) -> Option<PieceEntry> {
        match self.entries.get(&Name::piece(version, rank))?.content {
            Content::Piece(listed) => Some(listed),
            Content::Manifest(..) | Content::Damaged { .. } => None,
        }
    }

    fn has_manifest(&self, version: u64, rows: &[ManifestRow]) -> bool {
        let sum = sum_of(rows.iter().copied());
        let ranks = (0..).take(rows.len());
        let manifest = |rank| self.entries.get(&Name::manifest(version, rank));
        let mut contents = ranks.filter_map(manifest).map(|entry| entry.content);
        contents.any(|content| matches!(content, Content::Manifest(_, other) if other == sum))
    }

    fn candidates(&self, before: Option<u64>) -> Box<dyn DoubleEndedIterator<Item = u64> + '_> {
        let end = before.map(|version| Name::piece(version, 0));
        let names = match end {
            Some(end) => self.entries.range(..end),
            None => self.entries.range(..),
        };
        let names = names.map(|(name, _)| name);
        let first = names.filter(|name| name.rank == 0 && name.kind == ObjectKind::Piece);
        Box::new(first.map(|name| name.version))
    }
}
