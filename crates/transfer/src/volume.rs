//! Several local stores as one storage.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierflow_placement::stores::{
    Calibration, CalibrationError, ChunkMap, ShortestWait, Store, StorePolicy,
};
use tierflow_store::{Error as StoreError, Scratch, Storage};
use tierflow_sync::Mutex;

use buffer::is_aligned;

pub(crate) mod buffer;
mod measure;

pub use measure::{Effort, Points, calibrate, measure};

/// The result of this module's functions.
pub type Result<T, E = VolumeError> = std::result::Result<T, E>;

/// The reason why a volume cannot be made. The variant tells what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The throughput of a store was measured as 0, or was not measured: see the inner error.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A store failed: see the inner error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The chunk size is not a multiple of a store's alignment: choose another one.
    #[error(
        "chunks of {chunk_size} bytes are not multiples of the {alignment} bytes that a store writes"
    )]
    ChunkSize {
        /// The chunk size in bytes.
        chunk_size: usize,
        /// The store's alignment in bytes.
        alignment: usize,
    },
    /// No store has room for a chunk: free some space, or name other stores.
    #[error(
        "no store has room for a chunk of {chunk_size} bytes: free some space, or name other stores"
    )]
    NoRoom {
        /// The chunk size in bytes.
        chunk_size: usize,
    },
}

/// A store of a volume.
#[derive(Clone, Debug)]
pub struct LocalStore {
    /// The storage for the chunks, from its start on. Nothing else may use it.
    pub storage: Arc<dyn Storage>,
    /// The measured throughput, by number of writers.
    pub calibration: Calibration,
    /// Number of chunks for which the store has room.
    pub chunks: usize,
}

/// Bytes of a chunk in volumes over directories. A write of a whole chunk goes to the store with the best prediction at that
/// moment; a smaller write goes to the store that has the chunk.
const CHUNK: usize = 1 << 20;

/// The time for which volumes over directories do not write new chunks to a store that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The effort of calibrating stores before their use: few bytes, as later writes correct the predictions.
const BRIEF: Effort = Effort {
    points: Points::Doubling { samples: 3 },
    trials: 1,
    at_least: Duration::from_millis(10),
};

/// A flat range of bytes over several local stores, as large as all of them together. Each chunk lies on the store that a
/// [policy](tierflow_placement::stores::StorePolicy) chose for it, such as [`ShortestWait`] (IPDPS'19, §IV; without flushes, as
/// nothing leaves a storage).
///
/// If a store fails, no chunks are placed there for a while, and the failed write goes to another store. As long as the store
/// fails, chunks that lie there can be neither read nor partly overwritten.
///
/// ```
/// use tierflow_transfer::volume::Volume;
/// use tierflow_store::Storage;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let home = tempfile::tempdir()?;
/// # let (nvme0, nvme1) = (home.path(), home.path());
/// let volume = Volume::of_directories([nvme0, nvme1])?;
/// // A tier of an engine: `Tier::storage(Arc::new(volume)).limit(bytes)`, or at once `Tier::scratch_over([nvme0, nvme1])`.
/// assert!(volume.bytes() > 0 && volume.alignment() <= 4096);
/// # Ok(()) }
/// ```
pub struct Volume {
    stores: Vec<Arc<dyn Storage>>,
    alignment: usize,
    bytes: u64,
    began: Instant,
    map: Mutex<ChunkMap>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("stores", &self.stores)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Makes a volume over these stores, the fastest first, in chunks of `chunk_size` bytes. After a failure of a store, no chunks
    /// are placed there for `pause`.
    ///
    /// # Errors
    /// [`VolumeError::ChunkSize`] if the size is 0 or no multiple of an alignment; [`VolumeError::NoRoom`] if no store has room for
    /// a chunk.
    pub fn new(
        stores: Vec<LocalStore>,
        policy: Box<dyn StorePolicy>,
        chunk_size: usize,
        pause: Duration,
    ) -> Result<Self> {
        let alignments = stores.iter().map(|store| store.storage.alignment());
        let alignment = alignments.max().unwrap_or(1);
        if chunk_size == 0 || !chunk_size.is_multiple_of(alignment) {
            return Err(VolumeError::ChunkSize {
                chunk_size,
                alignment,
            });
        }
        let described = stores.iter();
        let described = described.map(|store| Store::new(store.calibration.clone(), store.chunks));
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let map = ChunkMap::new(chunk_size as u64, described.collect(), policy, pause);
        let bytes = map.bytes();
        if bytes == 0 {
            return Err(VolumeError::NoRoom { chunk_size });
        }
        Ok(Self {
            stores: stores.into_iter().map(|store| store.storage).collect(),
            alignment,
            bytes,
            began: Instant::now(),
            map: Mutex::new(map),
        })
    }

    /// Makes a volume over nameless scratch files in these directories, which should be on different file systems. The room of each
    /// store is the space that is free there now. The stores are calibrated first, which writes some 100 MiB to each. If a file
    /// system is full later, its chunks go to another one.
    ///
    /// # Errors
    /// [`VolumeError::Store`] if a file cannot be made or written, [`VolumeError::NoRoom`] if no directory has room for a chunk.
    pub fn of_directories<P: AsRef<Path>>(
        directories: impl IntoIterator<Item = P>,
    ) -> Result<Self> {
        let open = |directory: P| -> Result<LocalStore> {
            let directory = directory.as_ref();
            let storage = Scratch::open(directory)?;
            let calibration = calibrate(&storage, CHUNK, BRIEF)?;
            Ok(LocalStore {
                storage: Arc::new(storage),
                calibration,
                chunks: free_chunks(directory)?,
            })
        };
        let stores = directories.into_iter().map(open).collect::<Result<_>>()?;
        Self::new(stores, Box::new(ShortestWait), CHUNK, PAUSE)
    }

    /// Returns the size of the volume in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of chunks on each store.
    #[must_use]
    pub fn chunks(&self) -> Vec<usize> {
        self.map.lock().chunks()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the range of a request, if it is aligned.
    fn range(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<Range<u64>> {
        let alignment = self.alignment;
        let end = offset.checked_add(bytes.len() as u64);
        match end
            .filter(|_| offset.is_multiple_of(alignment as u64) && is_aligned(bytes, alignment))
        {
            Some(end) => Ok(offset..end),
            None => Err(StoreError::Unaligned {
                offset,
                bytes: bytes.len(),
                alignment,
            }),
        }
    }
}

/// Returns the number of chunks for which the file system of a directory has room.
fn free_chunks(directory: &Path) -> Result<usize> {
    let system = rustix::fs::statvfs(directory).map_err(|source| StoreError::Open {
        directory: directory.to_path_buf(),
        source,
    })?;
    let bytes = system.f_bavail.saturating_mul(system.f_frsize);
    Ok(usize::try_from(bytes / CHUNK as u64).unwrap_or(usize::MAX))
}

impl Storage for Volume {
    fn alignment(&self) -> usize {
        self.alignment
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        let mut range = self.range(offset, bytes)?;
        let (mut rest, mut refused, mut failure) = (bytes, Vec::new(), None);
        while !rest.is_empty() {
            let now = self.now_ns();
            let placed = self.map.lock().place(now, range.clone(), &refused);
            let full = || StoreError::Full {
                place: None,
                offset: range.start,
                bytes: rest.len(),
            };
            let Some(placed) = placed else {
                return Err(failure.unwrap_or_else(full));
            };
            let extent = placed.extent;
            let (now_written, later) = usize::try_from(extent.bytes)
                .ok()
                .and_then(|length| rest.split_at_checked(length))
                .ok_or_else(full)?;
            let store = self.stores.get(extent.store.0).ok_or_else(full)?;
            match store.write_at(extent.offset, now_written) {
                Ok(()) => {
                    self.map.lock().written(self.now_ns(), &placed);
                    rest = later;
                    range.start += extent.bytes;
                    (refused, failure) = (Vec::new(), None);
                }
                Err(error) => {
                    self.map.lock().failed(self.now_ns(), &placed);
                    if !ChunkMap::is_placed(&placed) {
                        return Err(error);
                    }
                    refused.push(extent.store);
                    failure = Some(error);
                }
            }
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        let mut range = self.range(offset, bytes)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let found = self.map.lock().find(&range);
            let length = match found {
                Ok(extent) => extent.bytes,
                Err(unwritten) => unwritten,
            };
            let taken = std::mem::take(&mut rest);
            let most = taken.len();
            let (now, later) =
                taken.split_at_mut(usize::try_from(length).unwrap_or(most).min(most));
            match found {
                Ok(extent) => {
                    let full = StoreError::Full {
                        place: None,
                        offset: range.start,
                        bytes: now.len(),
                    };
                    let store = self.stores.get(extent.store.0).ok_or(full)?;
                    store.read_at(extent.offset, now)?;
                }
                Err(_) => now.fill(0),
            }
            range.start += length;
            rest = later;
        }
        Ok(())
    }
}
