//! Opens a repository, which only reads. Also repairs what a crash left, before anything is written.

use super::aligned::WriteBuffers;
use super::catalog::Catalog;
use super::directory::Directory;
use super::identity::Order;
use super::quota::{self, Quota};
use super::record::{Name, Record};
use super::segment::{self, Packer};
use super::spare::SpareFiles;
use super::{Owned, OwnedFiles, Repository, State, Top, rank_name};
use crate::injected::{self, Injected};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tierflow_sync::{Condvar, Mutex, RwLock};

/// The way in which a repository is used.
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) run: u64,
    pub(super) packed_below: u64,
    pub(super) threads: usize,
    pub(super) limit: Option<u64>,
    is_limited: bool,
    pub(super) order: Option<Order>,
    faults: Injected,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            rank: 0,
            ranks: 1,
            run: 0,
            packed_below: 1 << 20,
            threads: cores.min(4),
            limit: None,
            is_limited: false,
            order: None,
            faults: injected::current(),
        }
    }
}

impl Options {
    /// Writes as `rank`, counted from 0, of a group of `ranks`. By default, as rank 0 of 1.
    #[must_use]
    pub fn rank(self, rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            ..self
        }
    }

    /// Sets the number of this run of the application, such as a job's number: the same for all ranks of the run, and a new one
    /// after each restart. Pieces of different runs never form a version. A single rank needs no number.
    #[must_use]
    pub fn run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// Packs pieces of fewer than `bytes` bytes into segments, and writes each larger one into its own file. By default 1 MiB.
    #[must_use]
    pub fn packed_below(self, bytes: u64) -> Self {
        Self {
            packed_below: bytes,
            ..self
        }
    }

    /// Sets the number of threads (at least 1) that write or read a large piece. By default 4, or fewer if there are fewer cores.
    /// Pieces that are written at the same time share as many buffers of 4 MiB.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            ..self
        }
    }

    /// Limits the total bytes of this rank's files, at any time. By default there is no limit. A write beyond the limit fails with
    /// [`Error::Full`]; [`room`](Self::room) returns the part for pieces. Segments are closed at a 64th of the limit, and pieces of
    /// at least half of that get their own files. If the directory has more bytes when it is opened, they stay until they are
    /// removed.
    #[must_use]
    pub fn limit(self, limit: Option<u64>) -> Self {
        let half = |limit| quota::segment_bytes(limit) / 2;
        let packed_below = limit.map_or(u64::MAX, half).min(self.packed_below);
        Self {
            limit,
            packed_below,
            ..self
        }
    }

    /// Sets whether the caller limits the bytes of the directory itself, by the sizes of its pieces. By default false: up to two
    /// files of removed pieces are kept, to be written over. None is kept if this is true, or with a [limit](Self::limit).
    #[must_use]
    pub fn limited(self, is_limited: bool) -> Self {
        Self { is_limited, ..self }
    }

    /// Returns the bytes of the [limit](Self::limit) for pieces, with their heads and indexes. The rest is for a segment that is
    /// being rewritten, and for notes.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        let limit = self.limit?;
        Some(limit.saturating_sub(quota::upkeep(limit)))
    }

    /// Sets the order that numbers the records. Directories that this run writes as the same rank share one order, so that copies
    /// in them can be distinguished. By default the directory has its own order.
    #[must_use]
    pub fn order(self, order: &Order) -> Self {
        let order = Some(order.clone());
        Self { order, ..self }
    }

    pub(super) fn check(&self) -> Result<()> {
        let Self { rank, ranks, .. } = self;
        match rank < ranks {
            true => Ok(()),
            false => Err(Error::Argument(format!(
                "rank {rank} is none of {ranks}: they are counted from 0"
            ))),
        }
    }

    /// Lets these faults affect all I/O.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn faults(self, faults: Arc<crate::Faults>) -> Self {
        Self { faults, ..self }
    }
}

impl Repository {
    /// Opens `directory` to save and restore as one rank. Makes the directory if it is missing; its parent must exist. Every
    /// version that was reported as saved is there. Opening removes and overwrites nothing, and needs no disk space for existing
    /// versions: files that a crash left half-written are removed before the first piece is saved or given up.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process, or another `Repository` of this one, writes as this rank; [`Error::Refused`] if the
    /// directory belongs to another user; [`Error::Argument`] for a rank outside the group; [`Error::Open`] and [`Error::File`] if
    /// the file system refuses.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let top = Directory::open(directory.as_ref(), true, options.faults.clone())?;
        let ranks = [options.rank];
        Self::with(top, options, ranks)
    }

    /// Opens an existing `directory` for reading, without a lock and without a change; other processes may write meanwhile. A
    /// version that is removed later is reported as [`Error::NoVersion`]; an open piece stays readable.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::File`], and [`Error::Refused`].
    pub fn read_only(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let top = Directory::open(directory.as_ref(), false, options.faults.clone())?;
        Self::with(top, options, [])
    }

    /// Opens an existing `directory` as all of its ranks at once, to prune it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn maintain(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let seen = Self::read_only(&directory, options)?;
        let ranks: Vec<u32> = seen.state().catalogs.keys().copied().collect();
        let options = seen.options.clone();
        drop(seen);
        let top = Directory::open(directory.as_ref(), false, options.faults.clone())?;
        Self::with(top, options, ranks)
    }

    fn with(
        top: Directory,
        options: Options,
        ranks: impl IntoIterator<Item = u32>,
    ) -> Result<Self> {
        let places = BTreeMap::new();
        let mut repository = Self::assembled(
            Top::Directory(top.clone()),
            options,
            places,
            State::default(),
        );
        let mut state = State::default();
        let order = repository.options.order.clone().unwrap_or_default();
        for rank in ranks {
            let directory = top.sub(&rank_name(rank), true)?;
            let (owned, catalog) = own(directory, rank, &repository.options, &order)?;
            repository.owned.insert(rank, owned);
            state.catalogs.insert(rank, catalog);
        }
        // A rank of a group knows its own pieces, and looks for those of other ranks when it is asked for versions.
        if repository.owned.len() != 1 || repository.options.ranks == 1 {
            repository.refresh(&mut state)?;
        }
        repository.state = Mutex::new(state);
        Ok(repository)
    }

    pub(super) fn assembled(
        top: Top,
        options: Options,
        owned: BTreeMap<u32, Owned>,
        state: State,
    ) -> Self {
        Self {
            top,
            run: AtomicU64::new(options.run),
            options,
            owned,
            state: Mutex::new(state),
            removed: Condvar::new(),
            indexing: Mutex::default(),
            gate: RwLock::default(),
        }
    }
}

/// Takes over a rank's directory: from now on only this process writes there.
fn own(
    directory: Directory,
    rank: u32,
    options: &Options,
    order: &Order,
) -> Result<(Owned, Catalog)> {
    let lock = directory.lock()?;
    let quota = options.limit.map(Quota::new).map(Arc::new);
    let directory = directory.within(quota.clone());
    directory.count()?;
    let mut catalog = Catalog::new(directory.clone(), rank);
    catalog.refresh()?;
    let (epoch, sequence, newest) = catalog.highest();
    order.see(epoch, sequence);
    let files = OwnedFiles {
        spares: SpareFiles::new(
            directory.clone(),
            options.is_limited || options.limit.is_some(),
        ),
        buffers: WriteBuffers::new(options.threads),
        packer: Packer::new(directory, newest, options.is_limited, options.limit),
        quota,
        lock,
    };
    let owned = Owned {
        files: Some(files),
        ..Owned::of_blobs(order)
    };
    Ok((owned, catalog))
}

impl Repository {
    /// Removes files that a crash left half-written in a rank's directory. Does so once, before this process changes anything
    /// there.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(super) fn settle(&self, rank: u32, owned: &Owned) -> Result<()> {
        let mut is_settled = owned.is_settled.lock();
        if *is_settled || self.blobs().is_some() {
            return Ok(());
        }
        if let Some(catalog) = self.state().catalogs.get_mut(&rank) {
            settle(catalog)?;
            catalog.directory()?.count()?;
        }
        *is_settled = true;
        Ok(())
    }
}

/// Removes files that were not published yet, and closes segments that are still open.
fn settle(catalog: &mut Catalog) -> Result<()> {
    let directory = catalog.directory()?.clone();
    let leftover = |name: &&String| {
        let number = name.strip_suffix(".tmp").and_then(|name| name.get(1..));
        number.is_some_and(|n| n.len() == 20 && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    for name in directory.names()?.iter().filter(leftover) {
        // No reader looks for the name, so the file may stay if it cannot be removed now.
        let _tried_again_next_time = directory.remove(name);
    }
    apart(&directory, catalog)?;
    let open = catalog.files.iter().filter(|(_, seen)| !seen.published);
    let open: Vec<Name> = open.map(|(name, _)| *name).collect();
    if open.is_empty() {
        return Ok(());
    }
    let mut said = Vec::new();
    for name in open {
        // If the close fails, the segment is read as it is.
        let _read_as_it_is = close(&directory, catalog, name);
        said.extend(
            catalog
                .files
                .get(&name)
                .map(|seen| (name, seen.details().damage.clone())),
        );
    }
    catalog.refresh()?;
    for (name, damage) in said {
        catalog.say(name, damage);
    }
    Ok(())
}

/// Gives new numbers to twins, which are open segments whose numbers other, published segments have.
fn apart(directory: &Directory, catalog: &mut Catalog) -> Result<()> {
    let twins: Vec<Name> = catalog.twins().collect();
    if twins.is_empty() {
        return Ok(());
    }
    let segments = catalog.files.keys().filter_map(|name| name.segment());
    let highest = segments.max().unwrap_or(0);
    for (twin, number) in twins.into_iter().zip(highest + 1..) {
        // If the rename fails, the segment is listed under its present name.
        let _tried_again_next_time =
            directory.rename(&twin.unpublished(), &Name::Segment(number).unpublished());
    }
    directory.sync()?;
    catalog.refresh()
}

/// Closes an open segment in place: its sound records get an index, damaged bytes stay, and records that were never reported as
/// saved are removed. Removes the segment if nothing of it is left, or if all of its records also lie in other files.
fn close(directory: &Directory, catalog: &Catalog, name: Name) -> Result<()> {
    let Some(seen) = catalog.files.get(&name) else {
        return Ok(());
    };
    if seen.is_unreadable {
        return Ok(());
    }
    let others = catalog
        .files
        .iter()
        .filter(|(other, seen)| **other != name && seen.published);
    let others: Vec<&Record> = others.flat_map(|(_, seen)| &seen.records).collect();
    let is_elsewhere = |record: &Record| {
        let same = |other: &&Record| {
            (other.version, other.identity) == (record.version, record.identity)
                && other.manifest().is_some() == record.manifest().is_some()
        };
        others.iter().any(same)
    };
    if seen.details().damage.is_empty() && seen.records.iter().all(is_elsewhere) {
        return directory.remove(&name.unpublished());
    }
    segment::close_left(directory, name, seen)
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests {
    use super::*;
    use crate::{Faults, Region, Snapshot};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn save(repository: &Repository, version: u64) {
        let bytes = [version as u8; 9];
        let regions = [Region::new("state", &bytes)];
        let snapshot = Snapshot::new(version, &regions);
        repository.save(&snapshot).unwrap();
    }

    /// Checks two segments of one number, of which one is closed and the other open.
    #[test]
    fn a_segment_left_open_beside_a_closed_one_is_listed_by_a_start_and_renamed_by_the_first_change()
     {
        let directory = tempfile::tempdir().unwrap();
        let (here, other) = (directory.path().join("a"), directory.path().join("b"));
        let open = |path: &Path, faults: &Arc<Faults>| {
            let options = Options::default().faults(Arc::clone(faults));
            Repository::open(path, options).unwrap()
        };
        let faults = Arc::default();
        save(&open(&here, &faults), 0);
        let left = open(&other, &faults);
        save(&left, 7);
        let twin = Name::Segment(1).unpublished();
        let twins = [&here, &other].map(|path| path.join(rank_name(0)).join(&twin));
        assert!(std::fs::exists(twins[0].with_extension("tfs")).unwrap());
        std::fs::copy(&twins[1], &twins[0]).unwrap();
        let listed = |repository: &Repository| {
            let versions = repository.versions().unwrap();
            let read = |version: u64| repository.piece(version).unwrap().read("state").unwrap();
            for info in &versions {
                assert_eq!(read(info.version), [info.version as u8; 9]);
            }
            versions.iter().map(|info| info.version).collect::<Vec<_>>()
        };
        let faults = Arc::<Faults>::default();
        for _ in 0..2 {
            let repository = open(&here, &faults);
            assert_eq!(listed(&repository), [0, 7]);
            assert_eq!(faults.changes.load(Ordering::Relaxed), 0);
        }
        let repository = open(&here, &faults);
        save(&repository, 8);
        assert_eq!(listed(&repository), [0, 7, 8]);
        drop(repository);
        assert!(!std::fs::exists(&twins[0]).unwrap());
        assert_eq!(listed(&open(&here, &faults)), [0, 7, 8]);
        // A twin that cannot be renamed stays if the closed segment is removed.
        let third = directory.path().join("c");
        let faults = Arc::<Faults>::default();
        save(&open(&third, &faults), 0);
        let twin = third.join(rank_name(0)).join(&twin);
        std::fs::copy(&twins[1], &twin).unwrap();
        faults.renames_fail.store(true, Ordering::Relaxed);
        open(&third, &faults).remove(&[0].into()).unwrap();
        assert!(std::fs::exists(&twin).unwrap());
    }
}
