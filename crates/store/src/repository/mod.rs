//! A directory of versions.

mod aligned;
mod alone;
mod catalog;
mod directory;
mod encoded;
mod handle;
mod identity;
mod lock;
mod meeting;
mod open;
mod piece;
mod prune;
mod record;
mod rename;
mod retention;
mod save;
mod scrub;
mod seen;
mod segment;
mod snapshot;
mod spare;
mod tail;
mod truncate;

pub use encoded::{Encoded, Stamp};
pub use identity::{Identity, Mark, Order, left_behind};
pub use open::Options;
pub use piece::{Elsewhere, Piece};
pub use prune::Pruned;
pub use retention::Retention;
pub use scrub::Scrubbed;
pub use seen::Damage;
pub use snapshot::{Pull, Region, Snapshot};

use crate::container::ManifestRow;
use crate::{Error, Result};
use catalog::Catalog;
use directory::Directory;
use lock::Lock;
use record::Record;
use segment::Packer;
use spare::Spares;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// A directory that holds the versions of one history, written by the ranks of a group: threads, processes, or hosts
/// that share it.
///
/// A version is either whole and listed, or it is not there. What [`save`](Self::save) has returned for survives the
/// process and the machine's power. A process writes only into the directories of its own ranks, each of which no other
/// may open for writing meanwhile; any number of them may read.
#[derive(Debug)]
pub struct Repository {
    top: Directory,
    options: Options,
    /// The ranks that this process writes.
    owned: BTreeMap<u32, Owned>,
    state: Mutex<State>,
}

/// What it takes to write as a rank.
#[derive(Debug)]
struct Owned {
    packer: Packer,
    spares: Spares,
    order: Order,
    /// The epoch that was marked here.
    marked: AtomicU32,
    /// Read while a batch is written and entered into the catalog, written while segments are rewritten: what is on
    /// the disk and not yet known must not be left out.
    gate: RwLock<()>,
    /// Held until the packer has closed its segment.
    lock: Lock,
}

#[derive(Debug, Default)]
struct State {
    catalogs: BTreeMap<u32, Catalog>,
    /// What is being saved: versions and what they are differences against.
    saving: BTreeMap<u64, Option<u64>>,
    /// What this process saved: its checksums were made of what was handed to the disk.
    saved: BTreeSet<u64>,
    /// What has the name of a rank's directory and is none.
    refused: BTreeMap<u32, Damage>,
}

/// A whole version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionInfo {
    /// Its number.
    pub version: u64,
    /// How many pieces it consists of.
    pub ranks: u32,
    /// The bytes of the regions of all its pieces.
    pub bytes: u64,
    /// Those bytes once they are decoded, if some are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
    /// When its first rank wrote it, in nanoseconds since 1970 by that one's clock.
    pub created: u64,
    /// The run of the application that wrote it.
    pub run: u64,
    /// The version that it is a difference against.
    pub base: Option<u64>,
}

/// One rank's piece of a version, as far as its head tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceInfo {
    /// The version.
    pub version: u64,
    /// How many pieces it consists of.
    pub ranks: u32,
    /// What it is, wherever it is copied.
    pub identity: Identity,
    /// The bytes of its regions.
    pub bytes: u64,
    /// Those bytes once they are decoded, if some are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
}

/// Finds where a piece lies; once more, with `true`, after looking again.
type Find<'a> = dyn Fn(&mut State, bool) -> Result<(Directory, Record)> + 'a;

/// What pieces of so many bytes, and so many once they are decoded, have once they are all decoded.
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole versions, oldest first.
    ///
    /// # Errors
    /// [`Error::Vanished`], [`Error::Refused`], [`Error::File`], and what [`save`](Self::save) says where a version
    /// turns out to have been completed by all its ranks and its manifest is still to be written.
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

    /// This rank's piece of a whole version (rank 0's where the repository was opened for reading).
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
                true => state.found(rank, version).ok_or_else(|| {
                    Error::Argument(format!("version {version} has no piece of rank {rank}"))
                }),
                false => Err(state.missing(version)),
            }
        };
        self.open_piece(version, &find)
    }

    /// Opens what `find` finds. Should it not be there any more, it may lie elsewhere by now: whoever writes here moves what
    /// stays when versions are given up.
    fn open_piece(&self, version: u64, find: &Find<'_>) -> Result<Piece> {
        const LOOKS: usize = 8;
        let mut state = self.state();
        let (mut directory, mut record) = find(&mut state, false)?;
        for _ in 1..LOOKS {
            let older = state.older(Some(version));
            drop(state);
            let opened = Piece::open(&directory, &record, self.options.threads, older);
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
            (directory, record) = found;
        }
        let older = state.older(Some(version));
        drop(state);
        Piece::open(&directory, &record, self.options.threads, older)
    }

    /// This rank's pieces, oldest version first, whether or not those of all others are there.
    ///
    /// # Errors
    /// [`Error::Vanished`], [`Error::Refused`], [`Error::File`].
    pub fn own_pieces(&self) -> Result<Vec<PieceInfo>> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        let pieces = own.into_iter().flat_map(|catalog| catalog.pieces.values());
        let info = |record: &Record| PieceInfo {
            version: record.version,
            ranks: record.ranks,
            identity: record.identity,
            bytes: record.bytes,
            decoded: record.decoded,
        };
        Ok(pieces.map(info).collect())
    }

    /// This rank's piece of a version that need not be whole.
    ///
    /// # Errors
    /// As [`piece`](Self::piece).
    pub fn own_piece(&self, version: u64) -> Result<Piece> {
        let rank = self.options.rank;
        let find = |state: &mut State, again: bool| {
            if again || state.piece(rank, version).is_none() {
                self.refresh_rank(state, rank)?;
            }
            let found = state.found(rank, version);
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

    /// Whether the run of this mark wrote here as this rank; of the oldest of very many runs, that is not known any more.
    ///
    /// # Errors
    /// As [`own_pieces`](Self::own_pieces).
    pub fn was_written_by(&self, mark: &Mark) -> Result<bool> {
        let mut state = self.state();
        self.refresh_rank(&mut state, self.options.rank)?;
        let own = state.catalogs.get(&self.options.rank);
        Ok(own.is_some_and(|catalog| catalog.marks.contains(mark)))
    }

    /// Whether it was opened for reading alone.
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
        Ok(state.catalogs.keys().copied().collect())
    }

    /// What is known to be damaged, without reading payloads; [`scrub`](Self::scrub) reads all.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let state = self.state();
        let seen = state.catalogs.values().flat_map(Catalog::damage);
        seen.chain(state.refused.values().cloned()).collect()
    }

    /// Looks at what changed in the directories of other ranks. Those of its own this process changes itself.
    fn refresh(&self, state: &mut State) -> Result<()> {
        for name in self.top.names()? {
            let rank = name
                .strip_prefix("rank-")
                .and_then(|rank| rank.parse().ok());
            let Some(rank) = rank.filter(|rank| rank_name(*rank) == name) else {
                continue;
            };
            match self.refresh_rank(state, rank) {
                // What somebody else put there keeps nobody from what lies beside it.
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
        if self.owned.contains_key(&rank) {
            // Nobody else writes there, but what could not be read may be readable now.
            if let Some(catalog) = state.catalogs.get_mut(&rank) {
                catalog.look_again()?;
            }
            return Ok(true);
        }
        if let Some(catalog) = state.catalogs.get_mut(&rank) {
            match catalog.refresh() {
                // It was removed and perhaps made again.
                Err(Error::Vanished { .. }) => state.catalogs.remove(&rank),
                refreshed => return refreshed.map(|()| true),
            };
        }
        let directory = match self.top.sub(&rank_name(rank), false) {
            Err(Error::File {
                source: rustix::io::Errno::NOENT,
                ..
            }) => return Ok(false),
            directory => directory?,
        };
        let mut catalog = Catalog::new(directory, rank);
        catalog.refresh()?;
        state.catalogs.insert(rank, catalog);
        Ok(true)
    }
}

impl State {
    fn piece(&self, rank: u32, version: u64) -> Option<&Record> {
        self.catalogs.get(&rank)?.pieces.get(&version)
    }

    /// The pieces of a version, if all its ranks have theirs, from the same run.
    fn pieces(&self, version: u64) -> Option<Vec<&Record>> {
        let mut pieces = self
            .catalogs
            .values()
            .filter_map(|c| c.pieces.get(&version));
        let (ranks, run) = pieces
            .next()
            .map(|piece| (piece.ranks, piece.identity.run))?;
        // No more can be there than there are directories.
        if ranks as usize > self.catalogs.len() {
            return None;
        }
        let pieces = (0..ranks).map(|rank| self.piece(rank, version));
        let same = |piece: &&Record| piece.ranks == ranks && piece.identity.run == run;
        pieces.map(|piece| piece.filter(same)).collect()
    }

    /// Whether all pieces are there and, of more than one, some rank has seen them all.
    fn has_all(&self, version: u64) -> Option<VersionInfo> {
        let pieces = self.pieces(version)?;
        if pieces.len() > 1 {
            let rows: Vec<ManifestRow> = pieces.iter().map(|piece| piece.row()).collect();
            let mut manifests = self
                .catalogs
                .values()
                .filter_map(|c| c.manifests.get(&version));
            if !manifests.any(|manifest| manifest.rows.as_ref() == Some(&rows)) {
                return None;
            }
        }
        let first = pieces.first()?;
        let bases = pieces.iter().map(|piece| piece.identity.base);
        Some(VersionInfo {
            version,
            ranks: first.ranks,
            bytes: pieces.iter().map(|piece| piece.bytes).sum(),
            decoded: decoded(pieces.iter().map(|piece| (piece.bytes, piece.decoded))),
            created: first.identity.created,
            run: first.identity.run,
            base: bases.max().flatten(),
        })
    }

    /// Whether a version and all that it is a difference against are there.
    fn is_whole(&self, version: u64) -> bool {
        let mut next = Some(version);
        while let Some(version) = next {
            let Some(info) = self.has_all(version) else {
                return false;
            };
            // Bases are older than what they are the bases of, so this ends.
            next = info.base;
        }
        true
    }

    /// The newest whole version below `before`.
    fn older(&self, before: Option<u64>) -> Option<u64> {
        let newest = |catalog: &Catalog| {
            let below = before.map_or(Bound::Unbounded, Bound::Excluded);
            let mut versions = catalog.pieces.range((Bound::Unbounded, below)).rev();
            versions
                .find(|(version, _)| self.is_whole(**version))
                .map(|(version, _)| *version)
        };
        // Every version has a rank 0.
        self.catalogs.get(&0).and_then(newest)
    }

    fn whole(&self) -> Vec<VersionInfo> {
        let mut whole: BTreeMap<u64, VersionInfo> = BTreeMap::new();
        let candidates = self.catalogs.get(&0).map(|catalog| catalog.pieces.keys());
        for version in candidates.into_iter().flatten() {
            let info = self.has_all(*version);
            let has_base =
                |info: &VersionInfo| info.base.is_none_or(|base| whole.contains_key(&base));
            if let Some(info) = info.filter(has_base) {
                whole.insert(*version, info);
            }
        }
        whole.into_values().collect()
    }

    /// Where a piece lies.
    fn found(&self, rank: u32, version: u64) -> Option<(Directory, Record)> {
        let catalog = self.catalogs.get(&rank)?;
        let record = catalog.pieces.get(&version)?;
        Some((catalog.directory.clone(), record.clone()))
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
