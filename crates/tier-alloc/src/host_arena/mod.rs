//! Host memory that becomes fast while it is being used.

mod backing;
#[cfg(feature = "baselines")]
mod baselines;
mod copies;
mod growing;
mod growth;
mod pieces;
mod report;
mod resize;
mod strategy;
mod turns;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tierflow_device::{Device, Kind, Memory, ReadLoan, WriteLoan};
use tierflow_sync::{Mutex, rank};

use crate::error::{Error, Result, wait_usable};
use crate::gate::Gate;
use crate::ring::Ring;
use crate::workers::Workers;

use backing::Wanted;
#[cfg(feature = "baselines")]
pub use baselines::{Baseline, Figures, Touching};
pub use copies::Transferring;
use growing::Growing;
pub use growth::{HostGrowth, HostOptions, Numa, Pace};
use pieces::Pieces;
pub use report::{HostReport, NodeObtained, Sample};
use strategy::Strategy;
pub use turns::PinTurns;

/// Host memory that is usable at once or soon, and becomes fast by touching and pinning.
///
/// Dropping the arena stops the growth between two pieces. Lent memory stays until it is given back.
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
    // The first field, so that the threads end before the other fields are dropped. Locked while the arena is resized.
    workers: Mutex<Workers, { rank::ARENA }>,
    growing: Arc<Growing>,
    ring: Option<Ring>,
    growth: HostGrowth,
    asked: usize,
}

impl HostArena {
    /// Obtains addresses, and starts to make them fast in the background.
    ///
    /// # Errors
    ///
    /// [`Error::NotCuda`] for a strategy that needs a CUDA device, if `device` is none; [`Error::Fixed`] for a strategy that
    /// cannot begin with a part; [`Error::Device`] if the addresses or the memory are not given; [`Error::Zero`] for a piece
    /// of 0 bytes or no toucher; [`Error::Thread`] if the system refuses a thread.
    pub fn start(
        device: &Device,
        capacity: usize,
        options: impl Into<HostOptions>,
    ) -> Result<Self> {
        let options = options.into();
        let growth = options.growth;
        if growth.needs_cuda() && device.info().kind != Kind::Cuda {
            let strategy = growth.name();
            return Err(Error::NotCuda { strategy });
        }
        if options.begin.is_some() && growth.piece().is_none() {
            let strategy = growth.name();
            return Err(Error::Fixed { strategy });
        }
        let strategy = strategy_of(growth)?;
        let start = Instant::now();
        let node = match options.numa {
            Numa::NextToDevice => device.numa_node(),
            Numa::Any => None,
            Numa::Node(node) => Some(node),
        };
        let initial = strategy.obtain(&Wanted {
            device,
            capacity,
            node,
        })?;
        // The ring starts before the growth, which keeps the driver busy.
        let ring = (growth.piece().is_some() && device.info().kind == Kind::Cuda)
            .then(|| Ring::start(device, Ring::copiers()))
            .transpose()?;
        let growing = Arc::new(Growing::new(initial, node, &options, start));
        growing.begin_with(options.begin);
        let mut workers = Workers::default();
        strategy.grow(&growing, &mut workers)?;
        Ok(Self {
            workers: Mutex::new(workers),
            growing,
            ring,
            growth,
            asked: capacity,
        })
    }

    /// Returns the length in bytes: as asked for, rounded up to pages.
    pub fn capacity(&self) -> usize {
        self.memory().len()
    }

    /// Returns the bytes that can be lent now, from the first one on. From the start these are all bytes, except for
    /// strategies that provide bytes one after the other.
    pub fn usable(&self) -> usize {
        self.growing.usable.level()
    }

    /// Returns the bytes touched so far, from the first one on.
    pub fn touched(&self) -> usize {
        self.growing.touched.level()
    }

    /// Returns the bytes pinned so far, from the first one on.
    pub fn pinned(&self) -> usize {
        self.growing.pinned.level()
    }

    /// Waits until the first `end` bytes can be lent, and no longer.
    ///
    /// # Errors
    ///
    /// [`Error::Growth`] if the machine ran out of memory before; [`Error::BeyondCapacity`] if the arena has fewer bytes.
    pub fn wait_usable(&self, end: usize) -> Result<()> {
        wait_usable(&self.growing.usable, end, self.capacity())
    }

    /// Returns true if the arena grows no more, for whatever reason.
    pub fn is_grown(&self) -> bool {
        self.growing
            .levels()
            .iter()
            .all(|level| level.end().is_some())
    }

    /// Waits until all bytes are touched and pinned, or the arena grows no more for another reason.
    pub fn wait_grown(&self) {
        for level in self.growing.levels() {
            level.wait_end();
        }
    }

    /// Returns the arena's gate. A copy that a caller waits for holds a pass of it, so that pinning waits for the copy.
    pub fn gate(&self) -> &Gate {
        &self.growing.gate
    }

    /// Returns the memory, of which the first [`usable`](Self::usable) bytes can be lent.
    pub fn memory(&self) -> &Memory {
        self.growing.backing.memory()
    }

    /// Lends bytes for reading, as soon as they are usable.
    ///
    /// # Errors
    ///
    /// The errors of [`wait_usable`](Self::wait_usable) and of [`Memory::lend`].
    pub fn lend(&self, range: Range<usize>) -> Result<ReadLoan> {
        self.growing.need(range.end);
        self.wait_usable(range.end)?;
        Ok(self.memory().lend(range)?)
    }

    /// Lends bytes for writing, as soon as they are usable.
    ///
    /// # Errors
    ///
    /// The errors of [`wait_usable`](Self::wait_usable) and of [`Memory::lend_mut`].
    pub fn lend_mut(&self, range: Range<usize>) -> Result<WriteLoan> {
        self.growing.need(range.end);
        self.wait_usable(range.end)?;
        Ok(self.memory().lend_mut(range)?)
    }

    /// Reports the requested and the obtained properties so far. Counting huge pages costs milliseconds.
    pub fn report(&self) -> HostReport {
        self.growing.report(self.growth, self.asked)
    }
}

/// Returns the strategy of this name, with its settings checked.
fn strategy_of(growth: HostGrowth) -> Result<Box<dyn Strategy>> {
    match growth {
        HostGrowth::Pieces {
            piece,
            pause,
            touchers,
        } => Ok(Box::new(Pieces::new(
            at_least_one(piece, "the piece")?,
            pause,
            at_least_one(touchers, "the number of touchers")?,
        ))),
        #[cfg(feature = "baselines")]
        HostGrowth::Baseline(baseline) => baseline.strategy(),
    }
}

fn at_least_one(value: usize, setting: &'static str) -> Result<usize> {
    if value == 0 {
        return Err(Error::Zero { setting });
    }
    Ok(value)
}
