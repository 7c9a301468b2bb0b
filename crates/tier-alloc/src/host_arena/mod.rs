//! Host memory that becomes fast while it is being used.

mod growth;
mod report;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierflow_device::{Device, HostReservation, Memory, ReadLoan, WriteLoan};

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::workers::Workers;

use growth::Growing;
pub use report::{HostReport, Sample};

/// How host memory is made fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostGrowth {
    /// Piece by piece in the background: some threads touch pieces, and one pins those that were
    /// touched, with pauses that let the application's copies through.
    ///
    /// The HiPC'22 paper holds it impossible to pin a buffer in increments, as a copy must not
    /// cross from one pinned piece to the next. It must not, but it can be cut there, at no cost
    /// that could be measured; the streams of `tierflow-device` do.
    Pieces {
        /// Bytes touched, and pinned, at once; rounded up to
        /// [`HostReservation::GRANULARITY`]. The time to pin one is the longest that a copy has to
        /// wait: about 1 ms for 16 MiB.
        piece: usize,
        /// How long nothing is pinned between two pieces.
        pause: Duration,
        /// Threads that touch. One touches some 8 GB/s where there are huge pages, 2 GB/s where
        /// there are none; four about three times as much.
        touchers: usize,
    },
}

impl Default for HostGrowth {
    /// 16 MiB pieces and pauses of 20 µs, which pin 39 GB/s on an H100 machine while no copy waits
    /// more than 1.2 ms; a quarter of the machine's threads touch, at most 8.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::Pieces {
            piece: 16 << 20,
            pause: Duration::from_micros(20),
            touchers: (threads / 4).clamp(1, 8),
        }
    }
}

/// Host memory that is usable at once, and becomes fast piece by piece: touched, then pinned.
///
/// Dropping it stops the growth between two pieces; what is lent stays until it is given back.
///
/// ```
/// # fn main() -> tierflow_tier_alloc::Result<()> {
/// # use tierflow_device::{Choice, open};
/// use tierflow_tier_alloc::{HostArena, HostGrowth};
/// # let device = open(Choice::Host)?;
/// let arena = HostArena::start(&device, 8 << 20, HostGrowth::default())?;
/// let slot = arena.lend_mut(0..1 << 20)?; // at once, touched or not
/// arena.wait_grown();
/// let report = arena.report();
/// assert_eq!(report.touched, 8 << 20);
/// if let Some(why) = report.why_unpinned {
///     println!("{} of {} bytes pinned: {why}", report.pinned, report.capacity);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct HostArena {
    // First, so that the threads end before anything else goes.
    _workers: Workers,
    growing: Arc<Growing>,
    asked: usize,
}

impl HostArena {
    /// Reserves the addresses, and starts to touch and pin in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the addresses cannot be had; [`Error::Zero`] for a piece of 0 bytes or
    /// no toucher; [`Error::Thread`].
    pub fn start(device: &Device, capacity: usize, growth: HostGrowth) -> Result<Self> {
        let HostGrowth::Pieces {
            piece,
            pause,
            touchers,
        } = growth;
        for (value, setting) in [(piece, "the piece"), (touchers, "the number of touchers")] {
            if value == 0 {
                return Err(Error::Zero { setting });
            }
        }
        let granularity = HostReservation::GRANULARITY;
        let piece = piece
            .checked_next_multiple_of(granularity)
            .unwrap_or(piece / granularity * granularity);
        let reservation = device.reserve_host(capacity)?;
        let growing = Arc::new(Growing::new(reservation, piece, pause, Instant::now()));
        let mut workers = Workers::default();
        for _ in 0..touchers.min(growing.pieces()) {
            let (theirs, stop) = (Arc::clone(&growing), workers.stop());
            workers.spawn("tierflow-touch", move || theirs.touch(&stop))?;
        }
        let (theirs, stop) = (Arc::clone(&growing), workers.stop());
        workers.spawn("tierflow-pin", move || theirs.pin_all(&stop))?;
        Ok(Self {
            _workers: workers,
            growing,
            asked: capacity,
        })
    }

    /// Its length in bytes: what was asked for, rounded up to pages. All of it is usable.
    pub fn capacity(&self) -> usize {
        self.memory().len()
    }

    /// Bytes touched so far, from the first one on.
    pub fn touched(&self) -> usize {
        self.growing.touched.level()
    }

    /// Bytes pinned so far, from the first one on.
    pub fn pinned(&self) -> usize {
        self.growing.pinned.level()
    }

    /// Whether touching and pinning are over, however they ended.
    pub fn is_grown(&self) -> bool {
        self.growing.touched.end().is_some() && self.growing.pinned.end().is_some()
    }

    /// Waits until all pieces are touched and pinned, or why they are not is known.
    pub fn wait_grown(&self) {
        self.growing.touched.wait_end();
        self.growing.pinned.wait_end();
    }

    /// Waits until the first `end` bytes are pinned, or it is known that they will not be.
    ///
    /// A copy between a device and memory that is not pinned is not only slow: the driver makes every
    /// other copy wait for it. Background copies do better to wait here; pinning is soon ahead of them.
    pub fn wait_pinned(&self, end: usize) {
        // An end without that level is an answer, too.
        let _ = self.growing.pinned.wait(end.min(self.capacity()));
    }

    /// What copies that somebody waits for hold a pass of, so that pinning waits for them.
    pub fn gate(&self) -> &Gate {
        &self.growing.gate
    }

    /// The memory, all of it usable.
    pub fn memory(&self) -> &Memory {
        self.growing.reservation.memory()
    }

    /// Lends bytes for reading.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::lend`].
    pub fn lend(&self, range: Range<usize>) -> Result<ReadLoan> {
        Ok(self.memory().lend(range)?)
    }

    /// Lends bytes for writing.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::lend_mut`].
    pub fn lend_mut(&self, range: Range<usize>) -> Result<WriteLoan> {
        Ok(self.memory().lend_mut(range)?)
    }

    /// What was asked for and what was obtained so far. Counting huge pages costs milliseconds.
    pub fn report(&self) -> HostReport {
        self.growing.report(self.asked)
    }
}
