//! A directory of versions.

mod aligned;
mod alone;
mod batch;
mod blobs;
mod catalog;
mod damage;
mod directory;
mod encoded;
mod handle;
mod heads;
mod identity;
mod indexes;
mod lagging;
mod listing;
mod lock;
mod meeting;
mod open;
mod parallel;
mod piece;
mod prune;
mod record;
mod rename;
mod restorable;
mod retention;
mod rows;
mod save;
mod scrub;
mod seen;
mod segment;
mod snapshot;
mod spare;
mod superseded;
mod tail;
mod threads;
mod through;
mod truncate;

pub use damage::Damage;
pub use encoded::{Encoded, RecordLabel};
pub use heads::{Heads, PieceEntry};
pub use identity::{Identity, Mark, Marks, Order, left_behind};
pub use open::Options;
pub use piece::{ByteSource, Piece};
pub use prune::Pruned;
pub use restorable::{can_be_restored, last_restorable};
pub use retention::{Retention, with_bases};
pub use scrub::Scrubbed;
pub use snapshot::{Pull, Ready, Region, Snapshot};
pub use truncate::Truncation;

use crate::container::ManifestRow;
use crate::{Blobs, Error, Result};
use catalog::Catalog;
use directory::Directory;
use listing::{AHEAD, BlobName, Listing};
use lock::Lock;
use record::{Record, sum_of};
use segment::Packer;
use spare::SpareFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// A directory that holds the versions of one history, written by the ranks of a group: threads, processes, or hosts
/// that share it.
///
/// A version is either whole and listed, or it is not there. What [`save`](Self::save) has returned for survives the
/// process and the machine's power. A process writes only into the directories of its own ranks, each of which no other
/// may open for writing meanwhile; any number of them may read.
#[derive(Debug)]
pub struct Repository {
    top: Top,
    options: Options,
    /// The number of the run that writes.
    run: AtomicU64,
    /// The ranks that this process writes.
    owned: BTreeMap<u32, Owned>,
    state: Mutex<State>,
    /// Blobs were removed.
    removed: Condvar,
    /// Held while heads are written into indexes of blobs.
    indexing: Mutex<()>,
}

/// The place of a repository.
#[derive(Debug)]
enum Top {
    Directory(Directory),
    Blobs(Arc<dyn Blobs>),
}

/// The state with which a process writes as a rank.
#[derive(Debug)]
struct Owned {
    /// In a directory.
    files: Option<OwnedFiles>,
    order: Order,
    /// The epoch that was marked here.
    marked: AtomicU32,
    /// True if what a crash left half-written was taken away.
    is_settled: Mutex<bool>,
    /// Read while a batch is written and entered into the catalog, written while segments are rewritten: what is on
    /// the disk and not yet known must not be left out.
    gate: RwLock<()>,
}

/// The files with which a process writes as a rank.
#[derive(Debug)]
struct OwnedFiles {
    packer: Packer,
    spares: SpareFiles,
    /// Held until the packer has closed its segment.
    lock: Lock,
}

impl Owned {
    fn of_blobs(order: &Order) -> Self {
        Self {
            files: None,
            order: order.clone(),
            marked: AtomicU32::new(0),
            is_settled: Mutex::default(),
            gate: RwLock::default(),
        }
    }

    fn files(&self) -> Result<&OwnedFiles> {
        let missing = || Error::Argument("blobs have no files: name a directory".to_owned());
        self.files.as_ref().ok_or_else(missing)
    }
}

#[derive(Debug, Default)]
struct State {
    catalogs: BTreeMap<u32, Catalog>,
    /// The versions that are being saved, each with the version that it is a difference against.
    saving: BTreeMap<u64, Option<u64>>,
    /// The versions that this process saved: their checksums were made of the bytes that were handed to the disk.
    saved: BTreeSet<u64>,
    /// Entries that have the name of a rank's directory and are none.
    refused: BTreeMap<u32, Damage>,
    /// What lists of blobs say.
    listing: Listing,
    /// Versions in blobs whose writes failed, though they may have been executed.
    unconfirmed: BTreeSet<u64>,
    /// Versions that are being removed from blobs.
    removing: BTreeSet<u64>,
}

/// The place of a piece.
enum PiecePlace {
    Directory(Directory),
    /// A blob, by its name and size.
    Blob(String, u64),
}

/// A whole version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionInfo {
    /// The number of the version.
    pub version: u64,
    /// How many pieces it consists of.
    pub ranks: u32,
    /// The bytes of the regions of all its pieces.
    pub bytes: u64,
    /// The bytes once they are decoded, if some are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
    /// When its first rank wrote it, in nanoseconds since 1970 by that one's clock.
    pub created: u64,
    /// The run of the application that wrote it.
    pub run: u64,
    /// The version that it is a difference against.
    pub base: Option<u64>,
}

/// The piece of one rank, as far as its head tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceInfo {
    /// The version.
    pub version: u64,
    /// How many pieces it consists of.
    pub ranks: u32,
    /// The identity of the piece, wherever it is copied.
    pub identity: Identity,
    /// The bytes of its regions.
    pub bytes: u64,
    /// The bytes once they are decoded, if some are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
}

/// Finds where a piece lies; once more, with `true`, after looking again.
type Find<'a> = dyn Fn(&mut State, bool) -> Result<(PiecePlace, Record)> + 'a;

/// Returns the decoded bytes of pieces of so many bytes, and so many once they are decoded.
pub(crate) fn decoded(pieces: impl Iterator<Item = (u64, Option<u64>)>) -> Option<u64> {
    let (mut sum, mut is_any) = (0_u64, false);
    for (bytes, decoded) in pieces {
        sum = sum.saturating_add(decoded.unwrap_or(bytes));
        is_any |= decoded.is_some();
    }
    is_any.then_some(sum)
}

/// The directory of a rank.
fn rank_name(rank: u32) -> String {
    format!("rank-{rank}")
}

impl Repository {
    /// The directory above those of the ranks, if the versions lie in one.
    fn directories(&self) -> Option<&Directory> {
        match &self.top {
            Top::Directory(directory) => Some(directory),
            Top::Blobs(_) => None,
        }
    }

    /// The blobs, if the versions lie in some.
    fn blobs(&self) -> Option<&dyn Blobs> {
        match &self.top {
            Top::Directory(_) => None,
            Top::Blobs(blobs) => Some(&**blobs),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole versions, oldest first.
    ///
    /// # Errors
    /// [`Error::Vanished`], [`Error::Refused`], [`Error::File`], and what [`save`](Self::save) says where a version
    /// turns out to have been completed by all its ranks and its manifest is still to be written. Without room for that it is
    /// left unlisted until there is some.
    pub fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.complete_all()?;
        let mut state = self.state();
        self.refresh(&mut state)?;
        Ok(state.whole())
    }

    /// The newest whole version; with `before`, the newest one of a smaller number than that.
    ///
    /// # Errors
    /// As [`versions`](Self::versions).
    pub fn latest(&self, before: Option<u64>) -> Result<Option<u64>> {
        self.complete_all()?;
        let mut state = self.state();
        self.refresh(&mut state)?;
        Ok(state.older(before))
    }

    /// Returns this rank's piece of a whole version (rank 0's where the repository was opened for reading).
    ///
    /// # Errors
    /// [`Error::NoVersion`], [`Error::Damaged`] if its head is, and as [`versions`](Self::versions).
    pub fn piece(&self, version: u64) -> Result<Piece> {
        self.piece_of(version, self.options.rank)
    }

    /// A rank's piece of a whole version.
    ///
    /// # Errors
    /// As [`piece`](Self::piece); [`Error::Argument`] for a rank that the version does not have.
    pub fn piece_of(&self, version: u64, rank: u32) -> Result<Piece> {
        let find = |state: &mut State, again: bool| {
            if again || !state.is_whole(version) {
                self.refresh(state)?;
            }
            match state.is_whole(version) {
                true => self.found(state, rank, version)?.ok_or_else(|| {
                    Error::Argument(format!("version {version} has no piece of rank {rank}"))
                }),
                false => Err(state.missing(version)),
            }
        };
        self.open_piece(version, &find)
    }

    /// Opens what `find` finds. Should it not be there any more, it is looked up again: the writer moves the
    /// records that stay when versions are removed.
    fn open_piece(&self, version: u64, find: &Find<'_>) -> Result<Piece> {
        match self.look_for_piece(version, find) {
            Err(Error::Damaged {
                path,
                offset,
                what,
                older: None,
            }) if self.options.ranks > 1 => {
                let mut state = self.state();
                // The pieces of other ranks tell which older version is whole.
                let _as_far_as_it_goes = self.refresh(&mut state);
                Err(Error::Damaged {
                    path,
                    offset,
                    what,
                    older: state.older(Some(version)),
                })
            }
            opened => opened,
        }
    }

    fn look_for_piece(&self, version: u64, find: &Find<'_>) -> Result<Piece> {
        const LOOKS: usize = 8;
        let mut state = self.state();
        let (mut place, mut record) = find(&mut state, false)?;
        for _ in 1..LOOKS {
            let older = state.older(Some(version));
            drop(state);
            let opened = self.open_record(&place, &record, older);
            if !matches!(
                opened,
                Err(Error::Damaged { .. } | Error::NoVersion { .. } | Error::Read { .. })
            ) {
                return opened;
            }
            state = self.state();
            let found = find(&mut state, true)?;
            if found.1.is_at(&record) {
                return opened;
            }
            (place, record) = found;
        }
        let older = state.older(Some(version));
        drop(state);
        self.open_record(&place, &record, older)
    }

    /// Opens the piece of a record.
    fn open_record(
        &self,
        place: &PiecePlace,
        record: &Record,
        older: Option<u64>,
    ) -> Result<Piece> {
        let (name, size) = match place {
            PiecePlace::Directory(directory) => {
                return Piece::open(directory, record, self.options.threads, older);
            }
            PiecePlace::Blob(name, size) => (name, *size),
        };
        let missing = Error::NoVersion {
            version: record.version,
            older,
        };
        let Some(blobs) = self.blobs() else {
            return Err(missing);
        };
        let source = blobs.open(name, size, AHEAD)?.ok_or(missing)?;
        let path = blobs.shown(name);
        let piece = Piece::elsewhere(source, path.clone(), self.options.threads, older)?;
        match piece.info().identity == record.identity {
            true => Ok(piece),
            false => Err(Error::Damaged {
                path,
                offset: 0,
                what: "another record lies in the place of this one",
                older,
            }),
        }
    }

    /// Returns this rank's pieces, oldest version first, whether or not those of all others are there.
    ///
    /// # Errors
    /// [`Error::Vanished`], [`Error::Refused`], [`Error::File`].
    pub fn own_pieces(&self) -> Result<Vec<PieceInfo>> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        let pieces = own.into_iter().flat_map(|catalog| catalog.pieces.values());
        Ok(pieces.map(|record| record.listed().info).collect())
    }

    /// Returns this rank's piece of a version that need not be whole.
    ///
    /// # Errors
    /// As [`piece`](Self::piece).
    pub fn own_piece(&self, version: u64) -> Result<Piece> {
        let rank = self.options.rank;
        let find = |state: &mut State, again: bool| {
            if again || state.piece(rank, version).is_none() {
                match self.blobs() {
                    Some(blobs) => state.list(blobs)?,
                    None => drop(self.refresh_rank(state, rank)?),
                }
            }
            let found = self.found(state, rank, version)?;
            found.ok_or_else(|| state.missing(version))
        };
        self.open_piece(version, &find)
    }

    /// The mark of the last run that wrote as this rank.
    ///
    /// # Errors
    /// As [`own_pieces`](Self::own_pieces).
    pub fn last_run(&self) -> Result<Mark> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        let mark = |catalog: &Catalog| {
            let epoch = catalog.highest().0;
            let mark = catalog.marks.last().filter(|mark| mark.epoch >= epoch);
            mark.copied().unwrap_or(Mark { epoch, run: 0 })
        };
        Ok(own.map(mark).unwrap_or_default())
    }

    /// Returns true if the run of this mark wrote here as this rank; of the oldest of very many runs, that is not known any more.
    ///
    /// # Errors
    /// As [`own_pieces`](Self::own_pieces).
    pub fn was_written_by(&self, mark: &Mark) -> Result<bool> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        Ok(own.is_some_and(|catalog| catalog.marks.contains(mark)))
    }

    /// The marks of the last runs that wrote as this rank.
    ///
    /// # Errors
    /// As [`own_pieces`](Self::own_pieces).
    pub fn marks(&self) -> Result<Marks> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        Ok(own.map_or_else(Marks::default, |catalog| Marks(catalog.marks.clone())))
    }

    /// Returns true if the versions lie in blobs, in which ranks cannot meet.
    #[must_use]
    pub fn is_of_blobs(&self) -> bool {
        self.blobs().is_some()
    }

    /// Returns true if it was opened for reading alone.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.owned.is_empty()
    }

    /// The ranks that have a directory here, in ascending order; none where nothing was ever saved.
    ///
    /// # Errors
    /// As [`versions`](Self::versions).
    pub fn ranks(&self) -> Result<Vec<u32>> {
        let mut state = self.state();
        self.refresh(&mut state)?;
        let is_there = |catalog: &&Catalog| !catalog.is_of_blobs || !catalog.files.is_empty();
        let there = state.catalogs.values().filter(is_there);
        Ok(there.map(|catalog| catalog.rank).collect())
    }

    /// Returns true if nothing was ever saved here.
    ///
    /// # Errors
    /// As [`versions`](Self::versions).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.ranks()?.is_empty() && self.damage().is_empty())
    }

    /// Returns the damage that is known without reading payloads; [`scrub`](Self::scrub) reads all.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let state = self.state();
        let seen = state.catalogs.values().flat_map(Catalog::damage);
        seen.chain(state.refused.values().cloned()).collect()
    }

    /// Looks at what changed in the directories of other ranks. Those of its own this process changes itself.
    fn refresh(&self, state: &mut State) -> Result<()> {
        let top = match &self.top {
            Top::Directory(top) => top,
            Top::Blobs(blobs) => return state.list(&**blobs),
        };
        for name in top.names()? {
            let rank = name
                .strip_prefix("rank-")
                .and_then(|rank| rank.parse().ok());
            let Some(rank) = rank.filter(|rank| rank_name(*rank) == name) else {
                continue;
            };
            match self.refresh_rank(state, rank) {
                // A rank's directory that is refused does not keep the others from being read.
                Err(Error::Refused { path, why }) if rank != self.options.rank => {
                    let damage = Damage {
                        path,
                        offset: 0,
                        version: None,
                        what: why,
                    };
                    state.refused.insert(rank, damage);
                }
                refreshed => {
                    refreshed?;
                    state.refused.remove(&rank);
                }
            }
        }
        Ok(())
    }

    /// Says whether the rank has a directory.
    fn refresh_rank(&self, state: &mut State, rank: u32) -> Result<bool> {
        let top = match &self.top {
            Top::Directory(top) => top,
            Top::Blobs(blobs) => {
                // Only this process writes those of its rank.
                let is_own = self.owned.contains_key(&rank) && self.options.ranks == 1;
                if !(is_own && state.listing.is_listed) {
                    state.list(&**blobs)?;
                }
                return Ok(state.catalogs.contains_key(&rank));
            }
        };
        if self.owned.contains_key(&rank) {
            // Only this process writes there, but what could not be read may be readable now.
            if let Some(catalog) = state.catalogs.get_mut(&rank) {
                catalog.look_again()?;
            }
            return Ok(true);
        }
        let directory = match top.sub(&rank_name(rank), false) {
            Err(Error::File {
                source: rustix::io::Errno::NOENT,
                ..
            }) => {
                state.catalogs.remove(&rank);
                return Ok(false);
            }
            directory => directory?,
        };
        let known = state.catalogs.remove(&rank);
        let known = known.and_then(|mut known| known.reopen(directory.clone()).then_some(known));
        let mut catalog = known.unwrap_or_else(|| Catalog::new(directory, rank));
        let refreshed = catalog.refresh();
        catalog.close();
        if matches!(refreshed, Err(Error::Vanished { .. })) {
            // The directory was removed meanwhile.
            return Ok(false);
        }
        state.catalogs.insert(rank, catalog);
        refreshed.map(|()| true)
    }

    /// The place of a piece.
    fn found(
        &self,
        state: &State,
        rank: u32,
        version: u64,
    ) -> Result<Option<(PiecePlace, Record)>> {
        let Some(catalog) = state.catalogs.get(&rank) else {
            return Ok(None);
        };
        let Some(record) = catalog.pieces.get(&version).cloned() else {
            return Ok(None);
        };
        let place = match (catalog.directory(), self.directories()) {
            (Ok(directory), _) => PiecePlace::Directory(directory.clone()),
            (Err(_), Some(top)) => PiecePlace::Directory(top.sub(&rank_name(rank), false)?),
            (Err(_), None) => {
                let name = record.file;
                let file = catalog.files.get(&name);
                let blob = file.and_then(|file| file.blob);
                let size = blob.map_or(record.record_length, |blob| blob.stamp.size);
                PiecePlace::Blob(BlobName { rank, name }.text(), size)
            }
        };
        Ok(Some((place, record)))
    }
}

impl Heads for State {
    fn listed(&self, version: u64, rank: u32) -> Option<PieceEntry> {
        Some(self.piece(rank, version)?.listed())
    }

    fn has_manifest(&self, version: u64, rows: &[ManifestRow]) -> bool {
        let sum = sum_of(rows.iter().copied());
        let mut catalogs = self.catalogs.values();
        catalogs.any(|catalog| {
            let manifest = catalog.manifests.get(&version);
            manifest.and_then(|manifest| manifest.manifest) == Some(sum)
        })
    }

    fn candidates(&self, before: Option<u64>) -> Box<dyn DoubleEndedIterator<Item = u64> + '_> {
        let below = before.map_or(Bound::Unbounded, Bound::Excluded);
        // Every version has a rank 0.
        let first = self.catalogs.get(&0).into_iter();
        let versions =
            first.flat_map(move |catalog| catalog.pieces.range((Bound::Unbounded, below)));
        Box::new(versions.map(|(version, _)| *version))
    }
}

impl State {
    fn piece(&self, rank: u32, version: u64) -> Option<&Record> {
        self.catalogs.get(&rank)?.pieces.get(&version)
    }

    /// Why a version is not there. A head that was damaged since it was published tells more than that there is none.
    fn missing(&self, version: u64) -> Error {
        let older = self.older(Some(version));
        match self.damage_of(version) {
            Some(damage) => Error::Damaged {
                path: damage.path,
                offset: damage.offset,
                what: damage.what,
                older,
            },
            None => Error::NoVersion { version, older },
        }
    }

    fn damage_of(&self, version: u64) -> Option<Damage> {
        let mut damage = self.catalogs.values().flat_map(Catalog::damage);
        damage.find(|damage| damage.version == Some(version))
    }
}
