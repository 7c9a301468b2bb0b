//! Chunks of pinned memory that the driver makes.

use std::sync::Arc;

use crate::error::Result;
use crate::host_arena::backing::{Backing, InitialBacking, Wanted};
use crate::host_arena::growing::Growing;
use crate::host_arena::strategy::Strategy;
use crate::watermark::End;
use crate::workers::{Stop, Workers};

/// See [`Baseline::VmmHost`](super::Baseline::VmmHost).
#[derive(Debug)]
pub(in crate::host_arena) struct VmmHost {
    pub(in crate::host_arena) chunk: usize,
}

impl Strategy for VmmHost {
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking> {
        // The driver needs a node, and every machine has node 0.
        let node = wanted.node.unwrap_or(0);
        let reservation = wanted.device.reserve_pinned(wanted.capacity, node)?;
        Ok(InitialBacking::nothing_yet(Backing::Chunks(reservation)))
    }

    fn grow(self: Box<Self>, growing: &Arc<Growing>, workers: &mut Workers) -> Result<()> {
        let (theirs, stop) = (Arc::clone(growing), workers.stop());
        workers.spawn("tierflow-map-host", move || self.map_all(&theirs, &stop))
    }
}

impl VmmHost {
    fn map_all(&self, growing: &Growing, stop: &Stop) {
        let _ends = growing.levels().map(|level| level.raising());
        let Backing::Chunks(reservation) = &growing.backing else {
            return;
        };
        let (granularity, capacity) = (reservation.granularity(), growing.capacity());
        let chunk = self
            .chunk
            .checked_next_multiple_of(granularity)
            .unwrap_or(capacity);
        let mut start = 0;
        while start < capacity {
            let end = start.saturating_add(chunk).min(capacity);
            if stop.is_set() {
                return;
            }
            let mapped = reservation.map(start..end);
            for level in growing.levels() {
                match &mapped {
                    Ok(()) => level.raise(end),
                    Err(error) => level.finish(End::Failed(error.clone())),
                }
            }
            if mapped.is_err() {
                return;
            }
            growing.sample();
            start = end;
        }
        for level in growing.levels() {
            level.finish(End::Complete);
        }
    }
}
