//! The strategies by name, with their settings.

use std::fmt;
use std::time::Duration;

use tierflow_device::HostReservation;

use super::turns::PinTurns;
use crate::error::{Error, Result};

#[cfg(feature = "baselines")]
use super::baselines::Baseline;

/// The way in which host memory is made fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostGrowth {
    /// Memory grows piece by piece in the background: some threads touch pieces, and one thread pins touched pieces, with
    /// pauses that let the application's copies through. Until a piece is pinned, copies from and to it go through a
    /// [`Ring`](crate::Ring).
    ///
    /// The HiPC'22 paper holds it impossible to pin a buffer in increments, as a copy must not cross from one pinned piece
    /// to the next. But a copy can be cut at the border, at no measurable cost, and the streams of `tierflow-device` do so.
    Pieces {
        /// Bytes of a piece, which is touched and pinned at once; rounded up to
        /// [`HostReservation::GRANULARITY`](tierflow_device::HostReservation::GRANULARITY). A copy waits at most for the
        /// time to pin one piece: about 1 ms for 32 MiB.
        piece: usize,
        /// Time without pinning between two pieces.
        pause: Duration,
        /// Threads that touch. A single thread touches about 8 GB/s where there are huge pages, and 2 GB/s where there are
        /// none; four threads touch about three times as much, eight about five times.
        touchers: usize,
    },
    /// A strategy to measure the others against.
    #[cfg(feature = "baselines")]
    Baseline(Baseline),
}

impl HostGrowth {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pieces { .. } => "Pieces",
            #[cfg(feature = "baselines")]
            Self::Baseline(baseline) => baseline.name(),
        }
    }

    /// Returns the bytes of a piece, if the strategy has pieces. Only such a strategy gives memory back in parts.
    pub(super) fn piece(self) -> Option<usize> {
        match self {
            Self::Pieces { piece, .. } => Some(piece),
            #[cfg(feature = "baselines")]
            Self::Baseline(_) => None,
        }
    }

    /// Returns the strategy with pieces of `bytes` bytes, if it has pieces.
    fn in_pieces_of(mut self, bytes: usize) -> Self {
        match &mut self {
            Self::Pieces { piece, .. } => *piece = bytes,
            #[cfg(feature = "baselines")]
            Self::Baseline(_) => {}
        }
        self
    }

    /// Returns true if the strategy runs on CUDA devices alone.
    pub fn needs_cuda(self) -> bool {
        match self {
            Self::Pieces { .. } => false,
            #[cfg(feature = "baselines")]
            Self::Baseline(baseline) => baseline.needs_cuda(),
        }
    }
}

impl Default for HostGrowth {
    /// Returns pieces of 32 MiB, smaller ones just before the application is expected to copy, with pauses of 20 µs for its
    /// kernels. Half of the machine's threads touch, at most 8. On an H100 machine this pins about 27 GB/s while the
    /// application makes a checkpoint every 5 ms; few checkpoints wait for more than a millisecond.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::Pieces {
            piece: 32 << 20,
            pause: Duration::from_micros(20),
            touchers: (threads / 2).clamp(1, 8),
        }
    }
}

/// The node of main memory on which an arena is to lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numa {
    /// The node next to the device, if the machine has several nodes and says which one that is.
    #[default]
    NextToDevice,
    /// Any node: the system chooses.
    Any,
    /// The node of this number, while it has pages.
    Node(u32),
}

/// Options of a host arena.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HostOptions {
    /// The way in which its memory is made fast.
    pub growth: HostGrowth,
    /// The node on which its pages are to lie.
    pub numa: Numa,
    /// The limit of its growth ahead of copies.
    pub pace: Pace,
    /// Bytes to which an arena grows at first that is [resized](super::HostArena::resize) later; `None` for all.
    pub begin: Option<usize>,
    /// The turns in which processes pin, one at a time; `None` if this process pins at any time.
    pub pin_turns: Option<PinTurns>,
}

/// The limit of growth ahead of copies, for an arena of [`Pieces`](HostGrowth::Pieces). All other strategies grow to the
/// end without a break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pace {
    /// The arena grows to its end, without a break.
    #[default]
    Full,
    /// The arena is pinned up to `lead` bytes beyond the largest end of a copy or loan so far, and touched four times as far beyond it. So
    /// memory that is never needed is never touched. Pinning slows every copy within the device; with this pace it happens only while
    /// copies reach the arena.
    AsNeeded {
        /// Bytes that are pinned ahead.
        lead: usize,
    },
    /// The arena is touched up to twice the largest end of a copy or loan so far, at most `most` bytes beyond that end, and is not pinned.
    /// The pace is for devices without a driver, whose copies pinning makes no faster.
    Doubling {
        /// Largest number of bytes that are touched ahead.
        most: usize,
    },
}

impl Pace {
    /// Returns the bytes, from the first one on, that may be pinned if copies and loans have reached `needed`.
    pub(super) fn pin_to(self, needed: usize) -> usize {
        match self {
            Self::Full => usize::MAX,
            Self::AsNeeded { lead } => needed.saturating_add(lead),
            Self::Doubling { .. } => 0,
        }
    }

    /// Returns the bytes, from the first one on, that may be touched if copies and loans have reached `needed`.
    pub(super) fn touch_to(self, needed: usize) -> usize {
        match self {
            Self::Full => usize::MAX,
            Self::AsNeeded { lead } => needed.saturating_add(lead.saturating_mul(4)),
            Self::Doubling { most } => needed.saturating_add(needed.min(most)),
        }
    }
}

impl HostOptions {
    /// Returns the options with another node for the pages.
    #[must_use]
    pub fn numa(mut self, numa: Numa) -> Self {
        self.numa = numa;
        self
    }

    /// Returns the options with another number of bytes to begin with.
    #[must_use]
    pub fn begin_with(mut self, bytes: usize) -> Self {
        self.begin = Some(bytes);
        self
    }

    /// Returns the options for an arena that is [resized](super::HostArena::resize) by multiples of `slab` bytes. If `slab` is a
    /// multiple of [`HostReservation::GRANULARITY`](tierflow_device::HostReservation::GRANULARITY), no piece is pinned across the
    /// border of two slabs.
    ///
    /// # Errors
    ///
    /// [`Error::Fixed`] for strategies that cannot give memory back in parts.
    pub fn in_slabs(mut self, slab: usize) -> Result<Self> {
        let (strategy, piece) = (self.growth.name(), self.growth.piece());
        let piece = piece.ok_or(Error::Fixed { strategy })?;
        if !slab.is_multiple_of(piece) {
            self.growth = self
                .growth
                .in_pieces_of(slab.min(HostReservation::GRANULARITY));
        }
        Ok(self)
    }

    /// Returns the options for an arena that is pinned in turn with those of other processes.
    #[must_use]
    pub fn pin_in_turn(mut self, turns: PinTurns) -> Self {
        self.pin_turns = Some(turns);
        self
    }

    /// Returns the options with another pace.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }
}

impl From<HostGrowth> for HostOptions {
    fn from(growth: HostGrowth) -> Self {
        Self {
            growth,
            ..Self::default()
        }
    }
}

impl fmt::Display for HostGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
