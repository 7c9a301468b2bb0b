//! Device memory that becomes usable while it is being used.

use std::ops::Range;
use std::sync::Arc;

use tierflow_device::{Device, Memory, ReadLoan, Reservation, WriteLoan};

use crate::error::{Error, Result};
use crate::watermark::{End, Watermark};
use crate::workers::{Stop, Workers};

/// How device memory is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceGrowth {
    /// All addresses at once, and memory behind them chunk by chunk in the background. The first
    /// chunk is usable within a fraction of a millisecond.
    Incremental {
        /// Bytes mapped at once, rounded up to the device's granularity.
        /// `None`: [`DeviceGrowth::CHUNK`].
        chunk: Option<usize>,
    },
}

impl DeviceGrowth {
    /// The chunk that [`Incremental`](Self::Incremental) maps where none is named, in bytes.
    /// Mapping costs much the same for a small chunk as for a large one, so it is large: on an
    /// H100, 64 MiB chunks map at 1.5 TB/s, 256 MiB at 4.9 TB/s, and one takes 0.05 ms.
    pub const CHUNK: usize = 256 << 20;
}

impl Default for DeviceGrowth {
    fn default() -> Self {
        Self::Incremental { chunk: None }
    }
}

/// Device memory that becomes usable from its first byte on, while it is being used.
///
/// Dropping it stops the growth; what is lent stays until it is given back.
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
    // First, so that the threads end before anything else goes.
    _workers: Workers,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reservation: Reservation,
    usable: Watermark,
}

impl DeviceArena {
    /// Reserves the addresses, and starts to put memory behind them in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the addresses cannot be had; [`Error::Zero`] for a chunk of 0 bytes;
    /// [`Error::Thread`]. Too little memory shows later, in [`wait_usable`](Self::wait_usable).
    pub fn start(device: &Device, capacity: usize, growth: DeviceGrowth) -> Result<Self> {
        let DeviceGrowth::Incremental { chunk } = growth;
        let chunk = chunk.unwrap_or(DeviceGrowth::CHUNK);
        if chunk == 0 {
            return Err(Error::Zero {
                setting: "the chunk",
            });
        }
        let reservation = device.reserve(capacity)?;
        let granularity = reservation.granularity();
        // Rounded down at the very top, where there is nothing to round up to.
        let chunk = chunk
            .checked_next_multiple_of(granularity)
            .unwrap_or(chunk / granularity * granularity);
        let shared = Arc::new(Shared {
            reservation,
            usable: Watermark::default(),
        });
        let mut workers = Workers::default();
        let (theirs, stop) = (Arc::clone(&shared), workers.stop());
        workers.spawn("tierflow-map", move || theirs.map_all(chunk, &stop))?;
        Ok(Self {
            _workers: workers,
            shared,
        })
    }

    /// Bytes that there are to be: what was asked for, rounded up to the device's granularity.
    pub fn capacity(&self) -> usize {
        self.memory().len()
    }

    /// Bytes that are usable now, from the first one on. It only rises.
    pub fn usable(&self) -> usize {
        self.shared.usable.level()
    }

    /// Waits until the first `end` bytes are usable, and no longer.
    ///
    /// # Errors
    ///
    /// [`Error::Growth`] if the device ran out of memory before; [`Error::BeyondCapacity`].
    pub fn wait_usable(&self, end: usize) -> Result<()> {
        let capacity = self.capacity();
        if end > capacity {
            return Err(Error::BeyondCapacity { end, capacity });
        }
        self.shared.usable.wait(end).map_err(|why| {
            let reached = self.usable();
            match why {
                End::Failed(source) => Error::Growth {
                    reached,
                    capacity,
                    source,
                },
                End::Complete | End::Stopped => Error::Abandoned { reached, capacity },
            }
        })
    }

    /// The memory, of which the first [`usable`](Self::usable) bytes can be lent.
    pub fn memory(&self) -> &Memory {
        self.shared.reservation.memory()
    }

    /// Lends bytes for reading, as soon as they are usable.
    ///
    /// # Errors
    ///
    /// Those of [`wait_usable`](Self::wait_usable) and of [`Memory::lend`].
    pub fn lend(&self, range: Range<usize>) -> Result<ReadLoan> {
        self.wait_usable(range.end)?;
        Ok(self.memory().lend(range)?)
    }

    /// Lends bytes for writing, as soon as they are usable.
    ///
    /// # Errors
    ///
    /// Those of [`wait_usable`](Self::wait_usable) and of [`Memory::lend_mut`].
    pub fn lend_mut(&self, range: Range<usize>) -> Result<WriteLoan> {
        self.wait_usable(range.end)?;
        Ok(self.memory().lend_mut(range)?)
    }
}

impl Shared {
    fn map_all(&self, chunk: usize, stop: &Stop) {
        let _raising = self.usable.raising();
        let capacity = self.reservation.memory().len();
        let mut start = 0;
        while start < capacity && !stop.is_set() {
            let end = start.saturating_add(chunk).min(capacity);
            if let Err(error) = self.reservation.map(start..end) {
                return self.usable.finish(End::Failed(error));
            }
            self.usable.raise(end);
            start = end;
        }
        if start == capacity {
            self.usable.finish(End::Complete);
        }
    }
}
