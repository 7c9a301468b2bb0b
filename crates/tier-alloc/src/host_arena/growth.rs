//! The strategies, by name, and what may be set about each.

use std::fmt;
use std::time::Duration;

use tierflow_device::HostReservation;

use super::turns::PinTurns;
use crate::error::{Error, Result};

#[cfg(feature = "baselines")]
use super::baselines::Baseline;

/// How host memory is made fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostGrowth {
    /// Piece by piece in the background: some threads touch pieces, and one pins those that were
    /// touched, with pauses that let the application's copies through. Until a piece is pinned,
    /// copies of it go through a [`Ring`](crate::Ring).
    ///
    /// The HiPC'22 paper holds it impossible to pin a buffer in increments, as a copy must not
    /// cross from one pinned piece to the next. It must not, but it can be cut there, at no cost
    /// that could be measured; the streams of `tierflow-device` do.
    Pieces {
        /// Bytes touched, and pinned, at once; rounded up to
        /// [`HostReservation::GRANULARITY`](tierflow_device::HostReservation::GRANULARITY). The
        /// time to pin one is the longest that a copy has to wait: about 1 ms for 32 MiB.
        piece: usize,
        /// How long nothing is pinned between two pieces.
        pause: Duration,
        /// Threads that touch. One touches some 8 GB/s where there are huge pages, 2 GB/s where
        /// there are none; four about three times as much, eight five times.
        touchers: usize,
    },
    /// A strategy to measure the others against.
    #[cfg(feature = "baselines")]
    Baseline(Baseline),
}

impl HostGrowth {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pieces { .. } => "Pieces",
            #[cfg(feature = "baselines")]
            Self::Baseline(baseline) => baseline.name(),
        }
    }

    /// Bytes that are touched, and pinned, at once, if memory can be given back in such parts.
    pub(super) fn piece(self) -> Option<usize> {
        match self {
            Self::Pieces { piece, .. } => Some(piece),
            #[cfg(feature = "baselines")]
            Self::Baseline(_) => None,
        }
    }

    /// The same with other parts, if it has any.
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
    /// 32 MiB pieces, smaller ones just before the application is expected to copy, and pauses of
    /// 20 µs for its kernels: it pins some 27 GB/s on an H100 machine beside a checkpoint every
    /// 5 ms, of which few wait for more than a millisecond. Half of the machine's threads touch, at most 8.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::Pieces {
            piece: 32 << 20,
            pause: Duration::from_micros(20),
            touchers: (threads / 2).clamp(1, 8),
        }
    }
}

/// On which node of main memory an arena is to lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numa {
    /// The one next to the device, where the machine has several and says which.
    #[default]
    NextToDevice,
    /// Wherever the system puts it.
    Any,
    /// The node of this number, while it has pages.
    Node(u32),
}

/// How a host arena is to be made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HostOptions {
    /// How its memory is made fast.
    pub growth: HostGrowth,
    /// The node that its pages are to lie on.
    pub numa: Numa,
    /// How far it grows by itself.
    pub pace: Pace,
    /// How many of its bytes it begins with, where it is to be [resized](super::HostArena::resize); `None` for all.
    pub begin: Option<usize>,
    /// The turns in which processes pin, one at a time; `None` for none.
    pub pin_turns: Option<PinTurns>,
}

/// How far an arena of [`Pieces`](HostGrowth::Pieces) grows by itself. The other strategies know one pace only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pace {
    /// To its end, without a break.
    #[default]
    Full,
    /// Pinned this many bytes ahead of the farthest copy or loan so far, and touched four times as far. Memory that is never needed
    /// is never touched, and pinning, which every copy within the device feels, is spread over the time in which
    /// copies come this way at all.
    AsNeeded {
        /// Bytes that are pinned ahead.
        lead: usize,
    },
    /// Touched as far again as copies have come, at most this many bytes ahead of them, and not pinned. For devices without a driver,
    /// whose copies pinning makes no faster.
    Doubling {
        /// Bytes ahead at most.
        most: usize,
    },
}

impl Pace {
    /// How far it may be pinned while copies have come as far as `needed`.
    pub(super) fn pin_to(self, needed: usize) -> usize {
        match self {
            Self::Full => usize::MAX,
            Self::AsNeeded { lead } => needed.saturating_add(lead),
            Self::Doubling { .. } => 0,
        }
    }

    /// How far it may be touched then.
    pub(super) fn touch_to(self, needed: usize) -> usize {
        match self {
            Self::Full => usize::MAX,
            Self::AsNeeded { lead } => needed.saturating_add(lead.saturating_mul(4)),
            Self::Doubling { most } => needed.saturating_add(needed.min(most)),
        }
    }
}

impl HostOptions {
    /// Returns the options with another place for the pages.
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

    /// Returns the options for an arena that is [resized](super::HostArena::resize) by multiples of `slab` bytes: nothing is
    /// pinned across their borders, where they are multiples of
    /// [`HostReservation::GRANULARITY`](tierflow_device::HostReservation::GRANULARITY).
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
