//! What lies in the store, as far as the heads tell.

use crate::index::{BATCH, Indexes, MOST_ROWS};
use crate::look;
use crate::name::{Holds, Name, Parsed};
use crate::remote::Remote;
use crate::seen::{Found, ROW, Seen, of_rows, sum_of, tag_of, to_row};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierflow_store::container::ManifestRow;
use tierflow_store::{Damage, Heads, Identity, Listed, PieceInfo, Result, with_bases};

/// All objects under a prefix: about 200 bytes of memory for each.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    seen: BTreeMap<Name, Seen>,
    indexes: Indexes,
    /// Whether the store was ever asked for its list.
    pub(crate) is_listed: bool,
    /// What has no row in an index yet.
    without_row: Vec<Name>,
    /// Rows are written once there are so many.
    enough: usize,
    /// The highest epoch and the highest sequence number of each rank.
    orders: BTreeMap<u32, (u32, u64)>,
}

/// An object that is on the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) size: u64,
    pub(crate) tag: u64,
    /// Whether the tag is made of the store's own.
    has_tag: bool,
}

/// Rows for indexes, and the indexes that are not needed once those are there.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) parts: Vec<Part>,
    pub(crate) worn: Vec<u32>,
}

/// The rows of one index.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    objects: Vec<(Name, u64)>,
}

impl Catalog {
    /// Looks at what changed.
    pub(crate) fn refresh(&mut self, remote: &Arc<Remote>, prefix: &Path) -> Result<()> {
        let (mut there, mut indexes) = (Vec::new(), Vec::new());
        remote.list(prefix, |meta| match Parsed::of(prefix, &meta.location) {
            Some(Parsed::Record(name)) => {
                there.push(Entry {
                    name,
                    size: meta.size,
                    tag: tag_of(&meta),
                    has_tag: meta.e_tag.is_some(),
                });
            }
            Some(Parsed::Index(rank)) => indexes.push((rank, meta)),
            None => {}
        })?;
        there.sort_unstable_by_key(|entry: &Entry| entry.name);
        let find = |name: &Name| there.binary_search_by_key(name, |entry| entry.name);
        let lost: Vec<Name> = self
            .seen
            .keys()
            .filter(|name| find(name).is_err())
            .copied()
            .collect();
        lost.into_iter().for_each(|name| self.forget(name));
        let paths: BTreeSet<&Path> = indexes.iter().map(|(_, meta)| &meta.location).collect();
        self.indexes.retain(|path| paths.contains(path));
        if there.iter().any(|entry| !self.knows(entry)) {
            self.read_indexes(remote, indexes, &there)?;
        }
        let unknown = there.into_iter().filter(|entry| !self.knows(entry));
        let unknown: Vec<Entry> = unknown.collect();
        for (entry, found) in look::at_all(remote, prefix, unknown)? {
            match found {
                Some(found) => self.insert(
                    entry.name,
                    Seen {
                        size: entry.size,
                        tag: entry.tag,
                        is_listed: true,
                        found,
                        index: 0,
                    },
                ),
                // It went since the list was made.
                None => self.forget(entry.name),
            }
        }
        self.is_listed = true;
        Ok(())
    }

    /// Whether an object that is on the list was looked at, and notes its tag.
    fn knows(&mut self, entry: &Entry) -> bool {
        let Some(seen) = self.seen.get_mut(&entry.name) else {
            return false;
        };
        // What was written here, nobody else writes as this rank, and the list may have tags of another kind.
        let is_own = !seen.is_listed && (seen.tag == 0 || !entry.has_tag);
        let is_same = seen.size == entry.size && (seen.tag == entry.tag || is_own);
        if is_same {
            (seen.tag, seen.is_listed) = (entry.tag, true);
        }
        is_same
    }

    fn read_indexes(
        &mut self,
        remote: &Arc<Remote>,
        indexes: Vec<(u32, ObjectMeta)>,
        there: &[Entry],
    ) -> Result<()> {
        let new = indexes.into_iter();
        let new = new.filter(|(_, meta)| !self.indexes.knows(&meta.location));
        look::at_indexes(remote, new.collect(), |rank, path, rows| {
            let number = self.indexes.add(path, rank, rows.len() / ROW);
            for (name, mut seen) in of_rows(rank, &rows) {
                let at = there.binary_search_by_key(&name, |entry| entry.name);
                let counts = at
                    .ok()
                    .and_then(|at| there.get(at))
                    .is_some_and(|entry| (entry.size, entry.tag) == (seen.size, seen.tag));
                if counts && self.seen.get(&name).is_none_or(|old| old.index == 0) {
                    seen.index = number;
                    self.replace(name, seen);
                }
            }
        })
    }

    /// Takes what was just written, or looked at.
    pub(crate) fn insert(&mut self, name: Name, seen: Seen) {
        self.replace(name, seen);
        self.without_row.push(name);
    }

    fn replace(&mut self, name: Name, seen: Seen) {
        self.indexes.gain(seen.index);
        if let Some((epoch, sequence)) = seen.found.order() {
            let order = self.orders.entry(name.rank).or_default();
            *order = (order.0.max(epoch), order.1.max(sequence));
        }
        if let Some(old) = self.seen.insert(name, seen) {
            self.indexes.lose(old.index);
        }
    }

    /// Forgets what was removed.
    pub(crate) fn forget(&mut self, name: Name) {
        if let Some(old) = self.seen.remove(&name) {
            self.indexes.lose(old.index);
        }
    }

    /// The rows of a rank that are to be written into indexes, if there are enough.
    pub(crate) fn take_rows(&mut self, rank: u32) -> Option<Rows> {
        if self.without_row.len() < self.enough.max(BATCH) {
            return None;
        }
        let mut names: BTreeSet<Name> = std::mem::take(&mut self.without_row)
            .into_iter()
            .filter(|name| name.rank == rank)
            .filter(|name| self.seen.get(name).is_some_and(|seen| seen.index == 0))
            .collect();
        let worn = self.indexes.worn(rank);
        if !worn.is_empty() {
            let rows = self.seen.iter();
            let rows = rows.filter(|(_, seen)| worn.contains(&seen.index));
            names.extend(rows.map(|(name, _)| *name));
        }
        let mut rows = Rows {
            parts: Vec::new(),
            worn,
        };
        let mut part = Part::default();
        for name in names {
            let seen = self.seen.get(&name);
            let row = seen.and_then(|seen| Some((seen.tag, to_row(name, seen)?)));
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

    /// Takes an index that was written.
    pub(crate) fn add_index(&mut self, path: Path, rank: u32, part: &Part) {
        let number = self.indexes.add(path, rank, part.objects.len());
        for (name, tag) in &part.objects {
            if let Some(seen) = self.seen.get_mut(name).filter(|seen| seen.tag == *tag) {
                let old = std::mem::replace(&mut seen.index, number);
                self.indexes.gain(number);
                self.indexes.lose(old);
            }
        }
    }

    /// Takes back rows that could not be written: they are tried again with as many more.
    pub(crate) fn take_back(&mut self, rows: &Rows) {
        let objects = rows.parts.iter().flat_map(|part| &part.objects);
        self.without_row.extend(objects.map(|(name, _)| *name));
        self.enough = self.without_row.len() + BATCH;
    }

    /// All rows were written: the indexes that are not needed any more, to be removed from the store.
    pub(crate) fn take_worn(&mut self, worn: &[u32]) -> Vec<Path> {
        self.enough = BATCH;
        worn.iter()
            .filter_map(|number| self.indexes.take(*number))
            .collect()
    }

    /// The highest epoch and the highest sequence number of a rank that were ever seen.
    pub(crate) fn order(&self, rank: u32) -> (u32, u64) {
        self.orders.get(&rank).copied().unwrap_or_default()
    }

    /// A rank's pieces, oldest version first.
    pub(crate) fn pieces(&self, rank: u32) -> Vec<PieceInfo> {
        let own = self.seen.iter().filter(|(name, _)| name.rank == rank);
        let pieces = own.filter_map(|(_, seen)| match seen.found {
            Found::Piece(Listed { info, .. }) => Some(info),
            Found::Manifest(..) | Found::Damaged { .. } => None,
        });
        pieces.collect()
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        self.seen.keys().copied()
    }

    /// What is wrong with objects of any rank.
    pub(crate) fn all_damage(&self, prefix: &Path) -> Vec<Damage> {
        let names = self.seen.keys();
        names
            .filter_map(|name| self.damage(*name, prefix))
            .collect()
    }

    /// What is wrong with an object that is there.
    pub(crate) fn damage(&self, name: Name, prefix: &Path) -> Option<Damage> {
        let Found::Damaged { offset, what } = self.seen.get(&name)?.found else {
            return None;
        };
        Some(Damage {
            path: name.path(prefix).as_ref().into(),
            offset,
            version: Some(name.version),
            what,
        })
    }

    /// What a rank's piece of a version is.
    pub(crate) fn identity(&self, version: u64, rank: u32) -> Option<Identity> {
        Some(self.listed(version, rank)?.info.identity)
    }

    /// The bytes of a piece's object.
    pub(crate) fn size(&self, version: u64, rank: u32) -> Option<u64> {
        Some(self.seen.get(&Name::piece(version, rank))?.size)
    }

    /// The versions of which a rank's piece is there.
    pub(crate) fn versions_of(&self, rank: u32) -> Vec<u64> {
        let own = self
            .names()
            .filter(|name| name.rank == rank && name.holds == Holds::Piece);
        own.map(|name| name.version).collect()
    }

    /// What pieces are differences against: versions and their bases.
    pub(crate) fn bases(&self) -> BTreeMap<u64, u64> {
        let found = self.seen.values().filter_map(|seen| match seen.found {
            Found::Piece(Listed { info, .. }) => Some((info.version, info.identity.base?)),
            Found::Manifest(..) | Found::Damaged { .. } => None,
        });
        found.collect()
    }

    /// `versions` but for those that others which stay are differences against.
    pub(crate) fn without_bases(&self, versions: &BTreeSet<u64>) -> BTreeSet<u64> {
        let bases = self.bases();
        let stay = bases.keys().filter(|version| !versions.contains(version));
        versions - &with_bases(stay.copied().collect(), &bases)
    }
}

impl Heads for Catalog {
    fn listed(&self, version: u64, rank: u32) -> Option<Listed> {
        match self.seen.get(&Name::piece(version, rank))?.found {
            Found::Piece(listed) => Some(listed),
            Found::Manifest(..) | Found::Damaged { .. } => None,
        }
    }

    fn has_manifest(&self, version: u64, rows: &[ManifestRow]) -> bool {
        let sum = sum_of(rows.iter().copied());
        let ranks = (0..).take(rows.len());
        let seen = |rank| self.seen.get(&Name::manifest(version, rank));
        let mut found = ranks.filter_map(seen).map(|seen| seen.found);
        found.any(|found| matches!(found, Found::Manifest(_, there) if there == sum))
    }

    fn candidates(&self, before: Option<u64>) -> Box<dyn DoubleEndedIterator<Item = u64> + '_> {
        let end = before.map(|version| Name::piece(version, 0));
        let names = match end {
            Some(end) => self.seen.range(..end),
            None => self.seen.range(..),
        };
        let names = names.map(|(name, _)| name);
        let first = names.filter(|name| name.rank == 0 && name.holds == Holds::Piece);
        Box::new(first.map(|name| name.version))
    }
}
