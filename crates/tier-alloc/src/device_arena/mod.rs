//! Device memory that becomes usable while it is being used.

mod chunks;
mod report;
mod resize;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierflow_device::{Device, Memory, ReadLoan, Reservation, WriteLoan};
use tierflow_sync::{Mutex, rank};

use crate::error::{Error, Result, wait_usable};
use crate::watermark::{End, Watermark};
use crate::workers::{Stop, Workers};

use chunks::Chunks;
pub use report::{DeviceReport, Mapped};

/// The way in which device memory is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceGrowth {
    /// A single call obtains all of the memory before [`DeviceArena::start`] returns (`cudaMalloc`): the baseline of
    /// HiPC'22 ("direct allocation").
    DirectAlloc,
    /// All addresses are reserved at once, and memory is put behind them chunk by chunk in the background (HiPC'22
    /// §IV-A). The first chunk is usable within a fraction of a millisecond.
    IncrementalVmm {
        /// Bytes mapped at once, rounded up to the device's granularity. `None` for [`DeviceGrowth::FIRST_CHUNK`] bytes at
        /// first, then twice as many each time while that makes mapping faster, up to [`DeviceGrowth::MOST_CHUNK`].
        chunk: Option<usize>,
    },
}

impl DeviceGrowth {
    /// Bytes of the first chunk of an arena that chooses chunk sizes itself.
    pub const FIRST_CHUNK: usize = 64 << 20;
    /// Bytes of the largest chunk of an arena that chooses chunk sizes itself: the chunks of the paper. Mapping costs
    /// much the same for a small chunk as for a large one: on an H100, 64 MiB chunks map at 1.5 TB/s, 256 MiB at 4.9 TB/s
    /// and 1 GiB at 9.1 TB/s, each within 0.12 ms.
    pub const MOST_CHUNK: usize = 1 << 30;

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DirectAlloc => "DirectAlloc",
            Self::IncrementalVmm { .. } => "IncrementalVmm",
        }
    }
}

impl Default for DeviceGrowth {
    fn default() -> Self {
        Self::IncrementalVmm { chunk: None }
    }
}

/// Options of a device arena.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// The way in which its memory is obtained.
    pub growth: DeviceGrowth,
    /// Devices that may read and write the memory too. Each makes mapping a little slower.
    pub peers: Vec<Device>,
}

impl From<DeviceGrowth> for DeviceOptions {
    fn from(growth: DeviceGrowth) -> Self {
        Self {
            growth,
            ..Self::default()
        }
    }
}

/// Device memory that becomes usable from its first byte on, while it is being used.
///
/// Dropping the arena stops the growth. Lent memory stays until it is given back.
///
/// ```
/// # fn main() -> tierflow_tier_alloc::Result<()> {
/// # use tierflow_device::{Choice, open};
/// use tierflow_tier_alloc::{DeviceArena, DeviceGrowth};
/// # let device = open(Choice::Host)?;
/// let arena = DeviceArena::start(&device, 64 << 20, DeviceGrowth::default())?;
/// // Waits for these bytes alone, not for the whole arena.
/// let slot = arena.lend_mut(0..1 << 20)?;
/// assert!(arena.usable() >= 1 << 20);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DeviceArena {
    // The first field, so that the threads end before the other fields are dropped.
    _workers: Workers,
    shared: Arc<DeviceArenaState>,
    asked: usize,
    growth: DeviceGrowth,
}

/// The memory of an arena and its growth so far. The arena's handle and its threads share this state.
#[derive(Debug)]
struct DeviceArenaState {
    backing: DeviceBacking,
    usable: Watermark,
    start: Instant,
    timeline: Mutex<Vec<Mapped>, { rank::ARENA_LEAF }>,
    /// Bytes to which the arena grows. The lock is held while chunks are mapped or unmapped.
    limit: Mutex<usize, { rank::ARENA }>,
}

#[derive(Debug)]
enum DeviceBacking {
    Whole(Memory),
    Chunks(Reservation),
}

impl DeviceBacking {
    fn memory(&self) -> &Memory {
        match self {
            Self::Whole(memory) => memory,
            Self::Chunks(reservation) => reservation.memory(),
        }
    }
}

impl DeviceArena {
    /// Reserves the addresses, and starts to put memory behind them in the background, unless the
    /// growth is [`DirectAlloc`](DeviceGrowth::DirectAlloc).
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device does not give the addresses, or a peer cannot reach the memory; [`Error::Zero`]
    /// for a chunk of 0 bytes; [`Error::Thread`] if the system refuses a thread. If the device has too little memory,
    /// [`wait_usable`](Self::wait_usable) fails later; for `DirectAlloc`, this call fails with [`Error::Device`].
    pub fn start(
        device: &Device,
        capacity: usize,
        options: impl Into<DeviceOptions>,
    ) -> Result<Self> {
        let DeviceOptions { growth, peers } = options.into();
        let start = Instant::now();
        let mut workers = Workers::default();
        let shared = match growth {
            DeviceGrowth::DirectAlloc => {
                let backing = direct(device, capacity, &peers)?;
                let shared = DeviceArenaState::new(backing, Watermark::default(), start);
                shared.note(shared.memory().len(), start.elapsed());
                shared.usable.raise(shared.memory().len());
                shared.usable.finish(End::Complete);
                Arc::new(shared)
            }
            DeviceGrowth::IncrementalVmm { chunk } => {
                if chunk == Some(0) {
                    return Err(Error::Zero {
                        setting: "the chunk",
                    });
                }
                let reservation = device.reserve_shared(capacity, &peers)?;
                let chunks = in_chunks(chunk, reservation.granularity());
                let backing = DeviceBacking::Chunks(reservation);
                let shared = Arc::new(DeviceArenaState::new(backing, Watermark::default(), start));
                let (theirs, stop) = (Arc::clone(&shared), workers.stop());
                workers.spawn("tierflow-map", move || theirs.map_all(chunks, &stop))?;
                shared
            }
        };
        Ok(Self {
            _workers: workers,
            shared,
            asked: capacity,
            growth,
        })
    }

    /// Returns the bytes of the whole arena: the bytes asked for, rounded up to the device's granularity.
    pub fn capacity(&self) -> usize {
        self.memory().len()
    }

    /// Returns the bytes that are usable now, from the first byte on. Only [`resize`](Self::resize) lowers the number.
    pub fn usable(&self) -> usize {
        self.shared.usable.level()
    }

    /// Waits until the first `end` bytes are usable, and no longer.
    ///
    /// # Errors
    ///
    /// [`Error::Growth`] if the device ran out of memory before; [`Error::BeyondCapacity`] if the arena has fewer bytes.
    pub fn wait_usable(&self, end: usize) -> Result<()> {
        wait_usable(&self.shared.usable, end, self.capacity())
    }

    /// Returns the memory, of which the first [`usable`](Self::usable) bytes can be lent.
    pub fn memory(&self) -> &Memory {
        self.shared.memory()
    }

    /// Lends bytes for reading, as soon as they are usable.
    ///
    /// # Errors
    ///
    /// The errors of [`wait_usable`](Self::wait_usable) and of [`Memory::lend`].
    pub fn lend(&self, range: Range<usize>) -> Result<ReadLoan> {
        self.wait_usable(range.end)?;
        Ok(self.memory().lend(range)?)
    }

    /// Lends bytes for writing, as soon as they are usable.
    ///
    /// # Errors
    ///
    /// The errors of [`wait_usable`](Self::wait_usable) and of [`Memory::lend_mut`].
    pub fn lend_mut(&self, range: Range<usize>) -> Result<WriteLoan> {
        self.wait_usable(range.end)?;
        Ok(self.memory().lend_mut(range)?)
    }

    /// Reports the requested and the obtained properties so far.
    pub fn report(&self) -> DeviceReport {
        let end = self.shared.usable.end();
        DeviceReport {
            strategy: self.growth.name(),
            asked: self.asked,
            capacity: self.capacity(),
            usable: self.usable(),
            failed: match &end {
                Some(End::Failed(error)) => Some(error.clone()),
                _ => None,
            },
            finished: end.is_some(),
            timeline: self.shared.timeline.lock().clone(),
        }
    }
}

/// Allocates the whole memory by one call. With peers, the memory is one chunk, as a plain allocation cannot be shared
/// with some peers and not with others.
fn direct(device: &Device, capacity: usize, peers: &[Device]) -> Result<DeviceBacking> {
    if peers.is_empty() {
        return Ok(DeviceBacking::Whole(device.alloc(capacity)?));
    }
    let reservation = device.reserve_shared(capacity, peers)?;
    reservation.map(0..reservation.memory().len())?;
    Ok(DeviceBacking::Chunks(reservation))
}

/// Rounds the bytes of a chunk up to the granularity, or down if rounding up would overflow.
fn rounded(chunk: usize, granularity: usize) -> usize {
    chunk
        .checked_next_multiple_of(granularity)
        .unwrap_or(chunk / granularity * granularity)
}

fn in_chunks(chunk: Option<usize>, granularity: usize) -> Chunks {
    let round = |bytes| rounded(bytes, granularity);
    match chunk {
        Some(chunk) => Chunks::fixed(round(chunk)),
        None => Chunks::measured(
            round(DeviceGrowth::FIRST_CHUNK),
            round(DeviceGrowth::MOST_CHUNK),
        ),
    }
}

impl DeviceArenaState {
    fn new(backing: DeviceBacking, usable: Watermark, start: Instant) -> Self {
        let limit = backing.memory().len();
        Self {
            backing,
            usable,
            start,
            timeline: Mutex::default(),
            limit: Mutex::new(limit),
        }
    }

    fn memory(&self) -> &Memory {
        self.backing.memory()
    }

    fn note(&self, bytes: usize, took: Duration) {
        self.timeline.lock().push(Mapped {
            at: self.start.elapsed(),
            bytes,
            took,
        });
    }

    fn map_all(&self, mut chunks: Chunks, stop: &Stop) {
        let raising = self.usable.raising();
        let DeviceBacking::Chunks(reservation) = &self.backing else {
            return;
        };
        while !stop.is_set() {
            let limit = self.limit.lock();
            let start = self.usable.level();
            let end = start.saturating_add(chunks.size()).min(*limit);
            if start >= end {
                // The lock is held, as a resize may reopen the level once it is free. A resize below the capacity ended the level.
                return raising.finish(End::Complete);
            }
            let begun = Instant::now();
            if let Err(error) = reservation.map(start..end) {
                return raising.finish(End::Failed(error));
            }
            let took = begun.elapsed();
            self.note(end - start, took);
            self.usable.raise(end);
            chunks.note(end - start, took);
        }
    }
}
