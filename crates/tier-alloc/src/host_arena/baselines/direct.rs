//! Strategies in which one call of the driver obtains all memory.

use std::sync::Arc;

use tierflow_device::Pinned;

use crate::error::Result;
use crate::host_arena::backing::{Backing, InitialBacking, Wanted};
use crate::host_arena::growing::Growing;
use crate::host_arena::strategy::Strategy;
use crate::watermark::Watermark;
use crate::workers::Workers;

/// See [`Baseline::DirectPin`](super::Baseline::DirectPin).
#[derive(Debug)]
pub(in crate::host_arena) struct DirectPin;

impl Strategy for DirectPin {
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking> {
        let (memory, pinned) = wanted.device.alloc_pinned(wanted.capacity)?;
        let len = memory.len();
        let why_unpinned = match pinned {
            Pinned::Yes => None,
            Pinned::No(why) => Some(why),
        };
        let pinned = if why_unpinned.is_none() { len } else { 0 };
        Ok(InitialBacking {
            touched: Watermark::at(len),
            pinned: Watermark::at(pinned),
            why_unpinned,
            ..InitialBacking::usable(Backing::Whole(memory))
        })
    }

    fn grow(self: Box<Self>, growing: &Arc<Growing>, _workers: &mut Workers) -> Result<()> {
        growing.sample();
        Ok(())
    }
}

/// See [`Baseline::Managed`](super::Baseline::Managed).
#[derive(Debug)]
pub(in crate::host_arena) struct Managed;

impl Strategy for Managed {
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking> {
        let memory = wanted.device.alloc_managed(wanted.capacity)?;
        Ok(InitialBacking {
            touched: Watermark::at(0),
            pinned: Watermark::at(0),
            ..InitialBacking::usable(Backing::Whole(memory))
        })
    }

    fn grow(self: Box<Self>, growing: &Arc<Growing>, _workers: &mut Workers) -> Result<()> {
        growing.sample();
        Ok(())
    }
}
