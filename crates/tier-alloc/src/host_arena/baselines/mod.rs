//! The strategies that [`Pieces`](HostGrowth::Pieces) is measured against: those of HiPC'22, and those of the driver.

mod direct;
mod measured;
mod model;
mod touch_then_pin;
mod vmm_host;

use super::at_least_one;
use super::growth::{HostGrowth, HostOptions};
use super::strategy::Strategy;
use crate::error::Result;
use direct::{DirectPin, Managed};
pub(super) use measured::{Concurrency, Flush};
pub use model::{Figures, Touching};
use touch_then_pin::{Memset, TouchThenPin};
use vmm_host::VmmHost;

/// A strategy that [`HostGrowth::Pieces`] is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Baseline {
    /// A single call allocates and pins all of the memory before [`HostArena::start`](crate::HostArena::start) returns
    /// (`cuMemHostAlloc`): the baseline of HiPC'22 ("direct pin"). The call takes seconds: 2 to 3 GB/s.
    DirectPin,
    /// A thread sets small pages (4 KiB) to 0 one after the other, and pins all at the end (HiPC'22 §V-B, "incremental
    /// memset"). Bytes are usable once they are set.
    IncrementalMemset,
    /// The strategy that the paper proposes (HiPC'22 §IV): a thread touches huge pages with one write each, and pins all
    /// at the end. Pinning makes every copy of the process wait.
    TouchThenPin {
        /// The behaviour of touching while copies run.
        touching: Touching,
    },
    /// The driver makes pinned memory chunk by chunk on the node next to the device, in the background (`cuMemCreate` for
    /// `HOST_NUMA`). Bytes are usable once their chunk is there. CUDA only.
    VmmHost {
        /// Bytes made at once, rounded up to the driver's granularity.
        chunk: usize,
    },
    /// The memory is unified (`cuMemAllocManaged`): the driver moves it to the side that touches it (HiPC'22 §V-B, "UVM").
    /// CUDA only, and no more bytes than the device has free.
    Managed,
}

impl Baseline {
    /// [`VmmHost`](Self::VmmHost) in chunks of 64 MiB, 11 ms each.
    pub const VMM_HOST: Self = Self::VmmHost { chunk: 64 << 20 };

    /// Every baseline with its usual settings.
    pub const ALL: [Self; 7] = [
        Self::DirectPin,
        Self::IncrementalMemset,
        Self::TouchThenPin {
            touching: Touching::Sequential,
        },
        Self::TouchThenPin {
            touching: Touching::Concurrent,
        },
        Self::TouchThenPin {
            touching: Touching::Auto,
        },
        Self::VMM_HOST,
        Self::Managed,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DirectPin => "DirectPin",
            Self::IncrementalMemset => "IncrementalMemset",
            Self::TouchThenPin { touching } => match touching {
                Touching::Sequential => "TouchThenPin-Sequential",
                Touching::Concurrent => "TouchThenPin-Concurrent",
                Touching::Auto => "TouchThenPin-Auto",
            },
            Self::VmmHost { .. } => "VmmHost",
            Self::Managed => "Managed",
        }
    }

    pub(super) fn needs_cuda(self) -> bool {
        matches!(self, Self::VmmHost { .. } | Self::Managed)
    }

    /// Returns the strategy, with its settings checked.
    pub(super) fn strategy(self) -> Result<Box<dyn Strategy>> {
        Ok(match self {
            Self::DirectPin => Box::new(DirectPin),
            Self::IncrementalMemset => Box::new(Memset),
            Self::TouchThenPin { touching } => Box::new(TouchThenPin { touching }),
            Self::VmmHost { chunk } => Box::new(VmmHost {
                chunk: at_least_one(chunk, "the chunk")?,
            }),
            Self::Managed => Box::new(Managed),
        })
    }
}

impl HostGrowth {
    /// Returns every strategy with its usual settings.
    pub fn all() -> Vec<Self> {
        let baselines = Baseline::ALL.into_iter().map(Self::Baseline);
        baselines.chain([Self::default()]).collect()
    }
}

impl From<Baseline> for HostGrowth {
    fn from(baseline: Baseline) -> Self {
        Self::Baseline(baseline)
    }
}

impl From<Baseline> for HostOptions {
    fn from(baseline: Baseline) -> Self {
        HostGrowth::from(baseline).into()
    }
}
