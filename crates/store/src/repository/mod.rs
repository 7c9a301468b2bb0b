//! The repository: the versions of one history, in a directory or in blobs.

mod aligned;
mod alone;
mod batch;
mod blob_names;
mod blobs;
mod catalog;
mod compare;
mod complete;
mod damage;
mod directory;
mod encoded;
mod handle;
mod heads;
mod identity;
mod indexes;
mod lagging;
mod listing;
mod locate;
mod lock;
mod meeting;
mod open;
mod piece;
mod prune;
mod quota;
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
mod state;
mod superseded;
mod tail;
mod threads;
mod through;
mod truncate;

pub use compare::{PieceDifference, RegionDifference, RegionPairs};
pub use damage::Damage;
pub use encoded::RecordBytes;
use heads::Heads;
pub use identity::{Identity, Mark, Marks, Order, left_behind};
pub use open::Options;
pub use piece::{ByteSource, Piece};
pub use prune::Pruned;
pub use restorable::last_restorable;
pub use retention::{Retention, with_bases};
pub use scrub::Scrubbed;
pub use snapshot::{Pull, Ready, Region, Snapshot};
use state::State;
pub(crate) use state::decoded;
pub use state::{PieceInfo, VersionInfo};
pub use truncate::Truncation;

use crate::{Blobs, Error, Result};
use aligned::WriteBuffers;
use catalog::Catalog;
use directory::Directory;
use lock::Lock;
use quota::Quota;
use segment::Packer;
use spare::SpareFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use tierflow_sync::{Condvar, Mutex, MutexGuard, RwLock, rank};

/// The versions of one history, in a directory or in blobs. The ranks of a group write them; ranks are threads, processes or hosts
/// that share the directory.
///
/// A version is either whole and listed, or it does not exist. A version for which [`save`](Self::save) returned survives the end
/// of the process and the loss of power. A process writes only into the directories of its own ranks. No other process may open
/// such a directory for writing meanwhile; any number of processes may read it.
#[derive(Debug)]
pub struct Repository {
    top: Top,
    options: Options,
    /// The number of the run that writes.
    run: AtomicU64,
    /// The ranks that this process writes.
    owned: BTreeMap<u32, Owned>,
    state: Mutex<State, { rank::REPOSITORY }>,
    /// Notified when blobs were removed.
    removed: Condvar,
    /// Held while heads are written into indexes of blobs.
    indexing: Mutex<(), { rank::CHORE }>,
    /// Shared while a batch is written and entered into the catalog. Exclusive while segments are rewritten, so that every record
    /// on the disk is in the catalog then.
    gate: RwLock<(), { rank::GATE }>,
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
    /// The files; `None` for blobs.
    files: Option<OwnedFiles>,
    order: Order,
    /// The epoch of the last mark that was left here.
    marked: AtomicU32,
    /// True if the files that a crash left half-written were removed.
    is_settled: Mutex<bool, { rank::CHORE }>,
}

/// The files with which a process writes as a rank.
#[derive(Debug)]
struct OwnedFiles {
    packer: Packer,
    spares: SpareFiles,
    buffers: WriteBuffers,
    quota: Option<Arc<Quota>>,
    /// The writer's lock, held until the packer has closed its segment.
    lock: Lock,
}

impl Owned {
    fn of_blobs(order: &Order) -> Self {
        Self {
            files: None,
            order: order.clone(),
            marked: AtomicU32::new(0),
            is_settled: Mutex::default(),
        }
    }

    fn files(&self) -> Result<&OwnedFiles> {
        let missing = || Error::Argument("blobs have no files: name a directory".to_owned());
        self.files.as_ref().ok_or_else(missing)
    }
}

/// Returns the name of a rank's directory.
fn rank_name(rank: u32) -> String {
    format!("rank-{rank}")
}

impl Repository {
    /// Returns the directory above those of the ranks; `None` for blobs.
    fn directories(&self) -> Option<&Directory> {
        match &self.top {
            Top::Directory(directory) => Some(directory),
            Top::Blobs(_) => None,
        }
    }

    /// Returns the blobs; `None` for a directory.
    fn blobs(&self) -> Option<&dyn Blobs> {
        match &self.top {
            Top::Directory(_) => None,
            Top::Blobs(blobs) => Some(&**blobs),
        }
    }

    fn state(&self) -> MutexGuard<'_, State, { rank::REPOSITORY }> {
        self.state.lock()
    }

    /// Returns the whole versions, oldest first.
    ///
    /// # Errors
    /// [`Error::Vanished`], [`Error::Refused`] and [`Error::File`]. Also the errors of [`save`](Self::save), if all ranks have
    /// saved a version and its manifest is still to be written. If the disk is too full for the manifest, the version is left out
    /// until there is space.
    pub fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.complete_all()?;
        let mut state = self.state();
        self.refresh(&mut state)?;
        Ok(state.whole())
    }

    /// Returns the newest whole version; with `before`, the newest one with a smaller number than that.
    ///
    /// # Errors
    /// As [`versions`](Self::versions).
    pub fn latest(&self, before: Option<u64>) -> Result<Option<u64>> {
        self.complete_all()?;
        let mut state = self.state();
        self.refresh(&mut state)?;
        Ok(state.older(before))
    }

    /// Returns this rank's piece of a whole version; rank 0's if the repository was opened for reading.
    ///
    /// # Errors
    /// [`Error::NoVersion`] if the version is not whole, [`Error::Damaged`] if the head of the piece is damaged, and as
    /// [`versions`](Self::versions).
    pub fn piece(&self, version: u64) -> Result<Piece> {
        self.piece_of(version, self.options.rank)
    }

    /// Returns a rank's piece of a whole version.
    ///
    /// # Errors
    /// As [`piece`](Self::piece), and [`Error::Argument`] for a rank that the version does not have.
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

    /// Returns this rank's pieces, oldest version first, whether or not their versions are whole.
    ///
    /// # Errors
    /// [`Error::Vanished`], [`Error::Refused`], [`Error::File`].
    pub fn own_pieces(&self) -> Result<Vec<PieceInfo>> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        let pieces = own.into_iter().flat_map(Catalog::counting_pieces);
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

    /// Returns the mark of the last run that wrote as this rank.
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

    /// Returns true if the run of this mark wrote here as this rank. Returns false if so many runs followed that its mark was
    /// dropped.
    ///
    /// # Errors
    /// As [`own_pieces`](Self::own_pieces).
    pub fn was_written_by(&self, mark: &Mark) -> Result<bool> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        Ok(own.is_some_and(|catalog| catalog.marks.contains(mark)))
    }

    /// Returns the marks of the last runs that wrote as this rank.
    ///
    /// # Errors
    /// As [`own_pieces`](Self::own_pieces).
    pub fn marks(&self) -> Result<Marks> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        Ok(own.map_or_else(Marks::default, |catalog| Marks(catalog.marks.clone())))
    }

    /// Returns the bytes that this rank's files in a [limited](Options::limit) directory take together: their lengths in blocks of
    /// 4 KiB, and the space reserved for files that are being written. `None` without a limit.
    #[must_use]
    pub fn used(&self) -> Option<u64> {
        let files = self.owned.get(&self.options.rank)?.files().ok()?;
        files.quota.as_ref().map(|quota| quota.used())
    }

    /// Returns true if the versions lie in blobs, through which ranks cannot meet.
    #[must_use]
    pub fn is_of_blobs(&self) -> bool {
        self.blobs().is_some()
    }

    /// Returns true if the repository was opened only for reading.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.owned.is_empty()
    }

    /// Returns true if this or another process has this rank's directory open for writing, and so holds its lock. Always false for
    /// blobs opened for reading, as blobs have no locks.
    ///
    /// # Errors
    /// As [`versions`](Self::versions), and [`Error::File`] if the lock cannot be examined.
    pub fn has_writer(&self) -> Result<bool> {
        if !self.is_read_only() {
            return Ok(true);
        }
        let Some(top) = self.directories() else {
            return Ok(false);
        };
        match top.sub(&rank_name(self.options.rank), false) {
            Err(Error::File {
                source: rustix::io::Errno::NOENT,
                ..
            }) => Ok(false),
            directory => directory?.has_writer(),
        }
    }

    /// Returns the ranks that have a directory or blobs here, in ascending order; none if nothing was ever saved.
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

    /// Returns the damage that is known without a read of payloads. [`scrub`](Self::scrub) reads everything.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let state = self.state();
        let seen = state.catalogs.values().flat_map(Catalog::damage);
        seen.chain(state.refused.values().cloned()).collect()
    }

    /// Looks for changes in the directories of other ranks. The directories of its own ranks change only by this process.
    fn refresh(&self, state: &mut State) -> Result<()> {
        let top = match &self.top {
            Top::Directory(top) => top,
            Top::Blobs(blobs) => return state.list(&**blobs),
        };
        let names = top.names()?;
        let listed = names.iter().filter_map(|name| {
            let rank = name.strip_prefix("rank-")?.parse().ok()?;
            (rank_name(rank) == *name).then_some(rank)
        });
        // A directory that is known and not listed is looked up by its name: it was removed, or the listing lags.
        let known = state.catalogs.keys().chain(state.refused.keys());
        let ranks: BTreeSet<u32> = listed.chain(known.copied()).collect();
        for rank in ranks {
            match self.refresh_rank(state, rank) {
                // A refused directory of one rank does not prevent the reading of the others.
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

    /// Looks for changes in the directory of a rank. Returns true if the rank has a directory or blobs.
    fn refresh_rank(&self, state: &mut State, rank: u32) -> Result<bool> {
        let top = match &self.top {
            Top::Directory(top) => top,
            Top::Blobs(blobs) => {
                // Only this process writes the blobs of its rank.
                let is_own = self.owned.contains_key(&rank) && self.options.ranks == 1;
                if !(is_own && state.listing.is_listed) {
                    state.list(&**blobs)?;
                }
                return Ok(state.catalogs.contains_key(&rank));
            }
        };
        if self.owned.contains_key(&rank) {
            // Only this process writes to this directory, but a file that could not be read may be readable now.
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
}
