//! Opening a repository, and setting right what a crash left.

use super::catalog::Catalog;
use super::directory::Directory;
use super::record::{Name, Record};
use super::segment::{Batch, Packer};
use super::spare::Spares;
use super::{Owned, Repository, State, rank_name};
use crate::container::{Found, Source, damaged_block, scan};
use crate::{Error, Faults, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How a repository is used.
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) run: u64,
    pub(super) packed_below: u64,
    pub(super) threads: usize,
    faults: Arc<Faults>,
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
            faults: Arc::default(),
        }
    }
}

impl Options {
    /// Writes as `rank`, counted from 0, of `ranks`. Without it, as the only one.
    #[must_use]
    pub fn rank(self, rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            ..self
        }
    }

    /// The number of this run of the application: the same for all its ranks and another one after each restart, such
    /// as a job's number. Pieces of different runs never make up a version. A single rank needs none.
    #[must_use]
    pub fn run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// Packs pieces of fewer `bytes` into segments, and writes others to a file each. At first 1 MiB.
    #[must_use]
    pub fn packed_below(self, bytes: u64) -> Self {
        Self {
            packed_below: bytes,
            ..self
        }
    }

    /// How many threads (at least 1) write or read a large piece. At first 4, or fewer where there are fewer cores.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            ..self
        }
    }

    /// Puts faults in front of all I/O, for tests.
    #[must_use]
    pub fn faults(self, faults: Arc<Faults>) -> Self {
        Self { faults, ..self }
    }
}

impl Repository {
    /// Opens `directory` (made if missing; its parent must exist) to save and restore as one rank. What a crash left
    /// half-written is taken away; everything that was reported as saved is there.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process, or another `Repository` of this one, writes as this rank; [`Error::Refused`]
    /// if it belongs to another user; [`Error::Argument`] for a rank outside the group; [`Error::Open`] and
    /// [`Error::File`] if the file system says no.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        if options.rank >= options.ranks {
            let (rank, ranks) = (options.rank, options.ranks);
            let why = format!("rank {rank} is none of {ranks}: they are counted from 0");
            return Err(Error::Argument(why));
        }
        let top = Directory::open(directory.as_ref(), true, Arc::clone(&options.faults))?;
        let ranks = [options.rank];
        Self::with(top, options, ranks)
    }

    /// Opens an existing `directory` for reading, whether or not it is written meanwhile.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::File`], and [`Error::Refused`].
    pub fn read_only(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let top = Directory::open(directory.as_ref(), false, Arc::clone(&options.faults))?;
        Self::with(top, options, [])
    }

    /// Opens an existing `directory` as all its ranks at once, to prune it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn maintain(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let seen = Self::read_only(&directory, options)?;
        let ranks: Vec<u32> = seen.state().catalogs.keys().copied().collect();
        let options = seen.options.clone();
        drop(seen);
        let top = Directory::open(directory.as_ref(), false, Arc::clone(&options.faults))?;
        Self::with(top, options, ranks)
    }

    fn with(
        top: Directory,
        options: Options,
        ranks: impl IntoIterator<Item = u32>,
    ) -> Result<Self> {
        let mut repository = Self {
            top,
            options,
            owned: BTreeMap::new(),
            state: std::sync::Mutex::default(),
        };
        let mut state = State::default();
        for rank in ranks {
            let (owned, catalog) = own(repository.top.sub(&rank_name(rank), true)?, rank)?;
            repository.owned.insert(rank, owned);
            state.catalogs.insert(rank, catalog);
        }
        repository.refresh(&mut state)?;
        repository.state = std::sync::Mutex::new(state);
        Ok(repository)
    }
}

/// Takes a rank's directory over: from now on only this process writes there.
fn own(directory: Directory, rank: u32) -> Result<(Owned, Catalog)> {
    let lock = directory.lock()?;
    let mut catalog = Catalog::new(directory.clone(), rank);
    let names = directory.names()?;
    let leftover = |name: &&String| {
        let number = name.strip_suffix(".tmp").and_then(|name| name.get(1..));
        number.is_some_and(|n| n.len() == 20 && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    for name in names.iter().filter(leftover) {
        directory.remove(name)?;
    }
    let open = names.iter().filter_map(|name| match Name::parse(name) {
        Some((Name::Segment(number), false)) => Some(number),
        _ => None,
    });
    // Segments that nobody closed: what is whole in them is published, the rest is nothing.
    let recovery = Packer::new(directory.clone(), 0);
    for number in open {
        let file = Name::Segment(number);
        if directory.stamp(&file.published())?.is_none() {
            let mut batch = whole_records(&directory, file)?;
            if !batch.records.is_empty() {
                recovery.replace(number, &mut batch)?;
            }
        }
        directory.remove(&file.unpublished())?;
    }
    catalog.refresh()?;
    let (sequence, newest) = catalog.highest();
    let owned = Owned {
        spares: Spares::new(directory.clone()),
        packer: Packer::new(directory, newest),
        sequence: AtomicU64::new(sequence),
        gate: std::sync::RwLock::default(),
        _lock: lock,
    };
    Ok((owned, catalog))
}

/// The records of a segment that was not closed, up to the first that is not whole.
fn whole_records(directory: &Directory, file: Name) -> Result<Batch> {
    let mut batch = Batch::default();
    let Some(handle) = directory.read(&file.unpublished())? else {
        return Ok(batch);
    };
    scan(&handle.plain, 0, |found| {
        let Found::Record(head) = found else {
            return Ok(false);
        };
        if damaged_block(&handle.plain, &head)?.is_some() {
            return Ok(false);
        }
        if head.kind != crate::container::Kind::Index {
            let mut bytes = vec![0; head.record_length() as usize];
            handle.plain.read(head.position, &mut bytes)?;
            let record = Record::new(file, head.position, &head);
            batch.push(&bytes, head.length as usize, record);
        }
        Ok(true)
    })?;
    Ok(batch)
}
