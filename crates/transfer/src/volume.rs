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

/// Why a volume cannot be made. The variant says what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// A store was measured to write nothing, or was not measured: see there.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A store refused: see there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The chunk size is not a multiple of the alignment of a store: choose one that is.
    #[error(
        "chunks of {chunk_size} bytes are not multiples of the {alignment} bytes that a store writes"
    )]
    ChunkSize {
        /// The chunk size in bytes.
        chunk_size: usize,
        /// The store's alignment in bytes.
        alignment: usize,
    },
    /// The stores hold nothing: give them room.
    #[error(
        "no store has room for a chunk of {chunk_size} bytes: free some space, or name other stores"
    )]
    NoRoom {
        /// The chunk size in bytes.
        chunk_size: usize,
    },
}

/// A store of a volume, or of several stores.
#[derive(Clone, Debug)]
pub struct LocalStore {
    /// The storage that chunks are written to, from its start on. The storage is used for this alone.
    pub storage: Arc<dyn Storage>,
    /// The throughput that was measured, by number of writers.
    pub calibration: Calibration,
    /// The number of chunks that it holds.
    pub chunks: usize,
}

/// Bytes of a chunk of volumes over directories. Writes of whole chunks are placed by what is predicted then; smaller ones stay where
/// their chunk lies.
const CHUNK: usize = 1 << 20;

/// The time for which volumes over directories leave a store alone that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The effort of calibrating stores before they are used: few bytes, as predictions are corrected by what writes see.
const BRIEF: Effort = Effort {
    points: Points::Doubling { samples: 3 },
    trials: 1,
    at_least: Duration::from_millis(10),
};

/// A flat range of bytes over several local stores, as large as they are together: each chunk lies on the store on which a
/// [policy](tierflow_placement::stores::StorePolicy) had it written, [`ShortestWait`] for one (IPDPS'19, §IV; without flushes, as nothing leaves a storage).
///
/// A store that fails is not written to for a while, and what was on its way there goes to another one; what lies there already cannot be
/// read, or written in part, as long as it fails.
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
    /// Makes a volume over these stores, the fastest first, in chunks of `chunk_size` bytes. A store that failed is left alone for
    /// `pause`.
    ///
    /// # Errors
    /// [`VolumeError::ChunkSize`]; [`VolumeError::NoRoom`] if no store holds a chunk.
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

    /// A volume over scratch files without names in these directories, on file systems of their own: each has the room that is free
    /// there now. They are calibrated first, which writes some 100 MiB to each. What is placed on a file system that is full by
    /// then goes to another one.
    ///
    /// # Errors
    /// [`VolumeError::Store`] if a file cannot be made or written, [`VolumeError::NoRoom`].
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

    /// How many there are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Chunks that lie on each store.
    #[must_use]
    pub fn chunks(&self) -> Vec<usize> {
        self.map.lock().chunks()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The range of so many bytes, if stores take it from there.
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

/// Chunks for which there is room where a directory lies.
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
