//! A repository over [`Blobs`]: it writes and removes records here. Everything else is as in a directory.

use super::blob_names::{BlobName, index_name, note_name};
use super::encoded::RecordBytes;
use super::identity::Identity;
use super::listing::{ROWS, Rows, head};
use super::record::{Detail, Name, Record, sum_of};
use super::snapshot::{Region, Snapshot};
use super::truncate::Truncation;
use super::{Heads, Options, Owned, Piece, Repository, State};
use crate::container::{Kind, ManifestRow, encode_rows};
use crate::{BlobStamp, Blobs, Error, Guarded, PutRule, Ready, Result, Written};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The [`Ready`] of records that are published without waiting for others.
const AT_ONCE: &Ready<'static> = &|| Ok(());

/// The way in which a piece came.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    /// The piece is new, and its number must be free.
    Saved,
    /// The piece is a copy from another place, and may replace an older one.
    Copied,
}

impl Arrival {
    /// Fails with [`Error::Exists`] unless the new piece may replace another piece of a whole version: only a copy from a newer
    /// epoch may. Within one epoch, sequences do not tell which piece is newer: if a listing lagged, two runs may have got the same
    /// epoch.
    fn may_replace(self, version: u64, there: &Identity, identity: &Identity) -> Result<()> {
        let is_newer = identity.is_newer_than(there) && identity.epoch != there.epoch;
        match self {
            Self::Copied if is_newer => Ok(()),
            Self::Copied | Self::Saved => Err(Error::Exists { version }),
        }
    }
}

/// Returns true if two pieces of one number come from one run and hold the same bytes.
pub(super) fn has_same_bytes(one: &Identity, other: &Identity) -> bool {
    let key = |of: &Identity| (of.epoch, of.run, of.content, of.base);
    key(one) == key(other)
}

impl Repository {
    /// Opens blobs to save and restore as one rank. Sends no request yet. Only one process at a time may write as a rank, since
    /// blobs have no locks.
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank outside the group.
    pub fn open_blobs(blobs: Arc<dyn Blobs>, options: Options) -> Result<Self> {
        options.check()?;
        let ranks = [options.rank];
        Ok(Self::with_blobs(blobs, options, ranks))
    }

    /// Opens blobs for reading, whether or not other processes write them at the same time. Sends no request yet.
    #[must_use]
    pub fn read_blobs(blobs: Arc<dyn Blobs>, options: Options) -> Self {
        Self::with_blobs(blobs, options, [])
    }

    /// Opens blobs as all ranks at once, to prune them. No rank may write meanwhile.
    ///
    /// # Errors
    /// [`Error::Remote`] if they cannot be listed.
    pub fn maintain_blobs(blobs: Arc<dyn Blobs>, options: Options) -> Result<Self> {
        let mut state = State::default();
        state.list(&*blobs)?;
        let ranks: Vec<u32> = state.catalogs.keys().copied().collect();
        Ok(Self::with_blobs(blobs, options, ranks))
    }

    fn with_blobs(
        blobs: Arc<dyn Blobs>,
        options: Options,
        ranks: impl IntoIterator<Item = u32>,
    ) -> Self {
        let blobs: Arc<dyn Blobs> = Arc::new(Guarded::new(blobs));
        let mut state = State::default();
        let order = options.order.clone().unwrap_or_default();
        let mut own = |rank| {
            state.catalog_of(&*blobs, rank);
            (rank, Owned::of_blobs(&order))
        };
        let owned: BTreeMap<u32, Owned> = ranks.into_iter().map(&mut own).collect();
        Self::assembled(super::Top::Blobs(blobs), options, owned, state)
    }

    /// Lists the blobs, if they were never listed. Directories are listed when they are opened.
    pub(super) fn list_once(&self, state: &mut State) -> Result<()> {
        match self.blobs() {
            Some(blobs) if !state.listing.is_listed => state.list(blobs),
            _ => Ok(()),
        }
    }

    /// Lists the blobs so that those of this rank are known. Only this process writes them, so a group of one rank lists them once.
    pub(super) fn list_own(&self) -> Result<()> {
        let Some(blobs) = self.blobs() else {
            return Ok(());
        };
        let mut state = self.state();
        match self.options.ranks {
            1 => self.list_once(&mut state),
            _ => state.list(blobs),
        }
    }

    /// Saves a piece as a blob.
    pub(super) fn save_blob(
        &self,
        owned: &Owned,
        blobs: &dyn Blobs,
        snapshot: &Snapshot<'_>,
        ready: &Ready<'_>,
    ) -> Result<()> {
        let label = self.label(owned, Kind::Piece)?;
        if let Some(own) = self.state().catalogs.get_mut(&self.options.rank) {
            own.begin(label.epoch);
        }
        let record = RecordBytes::new(snapshot, label)?;
        self.put_piece(blobs, &record, ready, Arrival::Saved)
    }

    /// Copies a piece into a blob.
    pub(super) fn copy_blob(
        &self,
        blobs: &dyn Blobs,
        piece: &Piece,
        ready: &Ready<'_>,
    ) -> Result<()> {
        self.list_own()?;
        let (version, identity) = (piece.version(), Identity::of(piece.head()));
        let (there, sequence, before) = {
            let mut state = self.state();
            let own = state.catalog_of(blobs, self.options.rank);
            own.begin_if_later(identity.epoch);
            let before = own.bring(version, &identity);
            if own.gave_up_for_good(version, &identity) && before.is_none() {
                return Err(Error::GivenUp { version });
            }
            let there = own.piece(version).map(|record| record.identity);
            (there, own.highest().1, before)
        };
        if before.is_some() {
            self.note_hidden(blobs, before)?;
        }
        if !there.is_some_and(|there| there.is_same(&identity)) {
            self.reserve(version, identity.base, Some(identity))?;
            let record = RecordBytes::copy(piece, sequence + 1);
            let put =
                record.and_then(|record| self.put_piece(blobs, &record, ready, Arrival::Copied));
            self.release([version]);
            put?;
        }
        self.finish_blob(blobs, version)
    }

    /// Finishes the put of a piece: notes the pieces that it supersedes, completes its version, and writes an index if one is due.
    pub(super) fn finish_blob(&self, blobs: &dyn Blobs, version: u64) -> Result<()> {
        let own = |state: &State| {
            let own = state.catalogs.get(&self.options.rank);
            own.is_some_and(|own| own.has_hidden)
        };
        if own(&self.state()) {
            self.note_hidden(blobs, None)?;
        }
        self.complete(version)?;
        self.write_indexes(blobs);
        Ok(())
    }

    /// Puts a piece where there is none, in place of one that `arrival` may replace, or in place of one whose version never became
    /// whole. Succeeds without a write if this run wrote the same bytes before and the answer was lost.
    fn put_piece(
        &self,
        blobs: &dyn Blobs,
        record: &RecordBytes<'_>,
        ready: &Ready<'_>,
        arrival: Arrival,
    ) -> Result<()> {
        let (head, rank) = (record.head(), self.options.rank);
        let (version, identity) = (head.version, Identity::of(head));
        let name = BlobName {
            rank,
            name: Name::Alone(version),
        };
        let how = {
            let mut state = self.state();
            let there = state.piece(rank, version).map(|record| record.identity);
            if let Some(there) = there
                && state.has_all(version).is_some()
            {
                let is_retried =
                    state.unconfirmed.contains(&version) && has_same_bytes(&there, &identity);
                if is_retried || there.is_same(&identity) {
                    state.unconfirmed.remove(&version);
                    return Ok(());
                }
                arrival.may_replace(version, &there, &identity)?;
            }
            // A damaged piece is also written over.
            let files = &state.catalog_of(blobs, rank).files;
            let is_damaged = files
                .get(&name.name)
                .is_some_and(|file| !file.details().damage.is_empty());
            match there.is_some() || is_damaged {
                true => PutRule::Replace,
                false => PutRule::Absent,
            }
        };
        let put = |how| {
            let put = blobs.put(&name.text(), record, how, ready);
            let unconfirmed = &mut self.state().unconfirmed;
            match put {
                Ok(_) => unconfirmed.remove(&version),
                Err(_) => unconfirmed.insert(version),
            };
            put
        };
        let mut written = put(how)?;
        if written == Written::Taken {
            // The name has a blob that the listing lacks.
            let was_not_offered = |there: &Identity| {
                let state = self.state();
                let own = state.catalogs.get(&rank);
                own.is_some_and(|own| own.was_not_offered(version, there))
            };
            match find(blobs, name)? {
                Some((there, stamp)) if has_same_bytes(&there.identity, &identity) => {
                    self.state().enter(blobs, name, Ok(there), stamp, false);
                    return Ok(());
                }
                Some((there, _)) if was_not_offered(&there.identity) => {
                    self.note_hidden(blobs, None)?;
                }
                Some((there, _)) => arrival.may_replace(version, &there.identity, &identity)?,
                // The blob is damaged, or was removed since.
                None => {}
            }
            written = put(PutRule::Replace)?;
        }
        self.enter_written(blobs, name, Record::new(name.name, 0, head), written);
        Ok(())
    }

    fn enter_written(&self, blobs: &dyn Blobs, name: BlobName, record: Record, written: Written) {
        let stamp = BlobStamp {
            size: record.record_length,
            tag: match written {
                Written::Done(tag) => tag,
                Written::Taken => 0,
            },
            is_exact: true,
        };
        let mut state = self.state();
        state.enter(blobs, name, Ok(record), stamp, false);
    }

    /// Writes the note that hides the pieces of earlier runs after the version from which this run continued.
    fn note_hidden(&self, blobs: &dyn Blobs, before: Option<Truncation>) -> Result<()> {
        let rank = self.options.rank;
        let own = |state: &State| state.catalogs.get(&rank)?.to_note();
        let Some(truncation) = own(&self.state()) else {
            return Ok(());
        };
        blobs.note(&note_name(rank, truncation))?;
        if let Some(before) = before {
            blobs.remove(&note_name(rank, before))?;
        }
        if let Some(own) = self.state().catalogs.get_mut(&rank) {
            own.note(truncation, before);
        }
        Ok(())
    }

    /// Writes these rows as the manifest of a version.
    pub(super) fn put_manifest(
        &self,
        owned: &Owned,
        blobs: &dyn Blobs,
        version: u64,
        rows: &[ManifestRow],
    ) -> Result<()> {
        let list = encode_rows(rows.iter().copied());
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &[Region::new("pieces", &list)],
        };
        let record = RecordBytes::new(&snapshot, self.label(owned, Kind::Manifest)?)?;
        let name = BlobName {
            rank: self.options.rank,
            name: Name::Manifest(version),
        };
        let written = blobs.put(&name.text(), &record, PutRule::Replace, AT_ONCE)?;
        let known = Record {
            detail: Detail::Manifest(sum_of(rows.iter().copied())),
            ..Record::new(name.name, 0, record.head())
        };
        self.enter_written(blobs, name, known, written);
        Ok(())
    }

    /// Writes indexes if enough heads are in no index yet. The next process that opens the history reads the indexes instead of the
    /// pieces. If the write fails, that process reads the pieces.
    fn write_indexes(&self, blobs: &dyn Blobs) {
        let Some(_one_at_a_time) = self.indexing.try_lock() else {
            return;
        };
        let rows = self.state().take_rows(self.options.rank);
        let Some(rows) = rows else {
            return;
        };
        if self.put_indexes(blobs, &rows).is_err() {
            self.state().listing.take_back(&rows);
            return;
        }
        let replaced = self.state().listing.take_replaced(&rows.replaced);
        for path in replaced {
            // A later process compacts the index again if this fails.
            let _tried_again = blobs.remove(&path);
        }
    }

    fn put_indexes(&self, blobs: &dyn Blobs, rows: &Rows) -> Result<()> {
        let (owned, rank) = (self.writer()?, self.options.rank);
        for part in &rows.parts {
            let label = self.label(owned, Kind::Index)?;
            let snapshot = Snapshot {
                version: 0,
                base: None,
                regions: &[Region::new(ROWS, &part.bytes)],
            };
            let record = RecordBytes::new(&snapshot, label)?;
            let path = index_name(rank, label.epoch, label.sequence);
            blobs.put(&path, &record, PutRule::Replace, AT_ONCE)?;
            self.state().add_index(path, rank, part);
        }
        Ok(())
    }

    /// Removes the records of the ranks that this process writes, except for versions that stay. Also removes the pieces of
    /// `asked`, even if no listing shows them. Versions that are being saved stay as well. Returns the bytes of the removed
    /// records.
    pub(super) fn remove_blobs(
        &self,
        blobs: &dyn Blobs,
        asked: &BTreeSet<u64>,
        stays: &dyn Fn(u64) -> bool,
    ) -> Result<u64> {
        let (going, versions) = {
            let mut state = self.state();
            let mut going = Vec::new();
            for rank in self.owned.keys() {
                state.going(*rank, stays, &mut going);
            }
            let known: BTreeSet<BlobName> = going.iter().map(|one| one.name).collect();
            let kinds = [Name::Manifest as fn(u64) -> Name, Name::Alone];
            let kinds = kinds.into_iter().skip(usize::from(self.options.ranks == 1));
            for kind in kinds.filter(|_| self.owned.contains_key(&self.options.rank)) {
                let names = asked.iter().map(|version| BlobName {
                    rank: self.options.rank,
                    name: kind(*version),
                });
                let unknown = names.filter(|name| !known.contains(name));
                going.extend(unknown.map(|name| Going {
                    class: 1,
                    name,
                    bytes: 0,
                }));
            }
            let saving: BTreeSet<u64> = state.saving.keys().copied().collect();
            going.retain(|one| one.name.name.version().is_none_or(|v| !saving.contains(&v)));
            going.sort_unstable();
            let versions = going.iter().filter_map(|one| one.name.name.version());
            let versions: Arc<BTreeSet<u64>> = Arc::new(versions.collect());
            state.removing.push(Arc::clone(&versions));
            (going, versions)
        };
        let mut bytes = 0;
        let removed = going.iter().try_for_each(|one| {
            blobs.remove(&one.name.text())?;
            self.state().forget(one.name);
            bytes += one.bytes;
            Ok(())
        });
        let mut state = self.state();
        for rank in self.owned.keys() {
            state.catalog_of(blobs, *rank).sort();
        }
        state
            .removing
            .retain(|other| !Arc::ptr_eq(other, &versions));
        drop(state);
        self.removed.notify_all();
        removed.map(|()| bytes)
    }
}

/// A blob that will be removed. Blobs are removed in the order of their fields: first pieces that do not count, then manifests,
/// then the other pieces. So no piece counts again, and a version ends with its manifest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Going {
    class: u8,
    name: BlobName,
    bytes: u64,
}

impl State {
    fn going(&self, rank: u32, stays: &dyn Fn(u64) -> bool, going: &mut Vec<Going>) {
        let Some(catalog) = self.catalogs.get(&rank) else {
            return;
        };
        let records = catalog.files.values().flat_map(|file| &file.records);
        for record in records {
            let is_hidden = record.manifest().is_none()
                && catalog.piece(record.version).is_none()
                && !catalog.must_stay(record.version, &record.identity);
            let class = match (is_hidden, record.manifest()) {
                (true, _) => 0,
                (false, Some(_)) => 1,
                (false, None) => 2,
            };
            let name = BlobName {
                rank,
                name: record.file,
            };
            let bytes = record.record_length;
            if is_hidden || !stays(record.version) {
                going.push(Going { class, name, bytes });
            }
        }
        // The file of a damaged blob has no record.
        let damaged = catalog
            .files
            .iter()
            .filter(|(_, file)| file.records.is_empty());
        for (name, _) in damaged {
            if name.version().is_some_and(|version| !stays(version)) {
                let name = BlobName { rank, name: *name };
                going.push(Going {
                    class: 2,
                    name,
                    bytes: 0,
                });
            }
        }
    }
}

/// Looks up a piece that the listing lacks by its name. Returns `None` if the blob is missing or damaged.
fn find(blobs: &dyn Blobs, name: BlobName) -> Result<Option<(Record, BlobStamp)>> {
    let Some(stamp) = blobs.stamp(&name.text())? else {
        return Ok(None);
    };
    let there = head(blobs, (name, stamp))?;
    Ok(there
        .and_then(std::result::Result::ok)
        .map(|record| (record, stamp)))
}
