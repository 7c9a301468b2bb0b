//! The paper's policies (IPDPS'19, §V-B), and one of ours that keeps to their form.

use std::ops::Range;

use tierflow_placement::stores::{Backlog, StorePolicy, StoreState};

/// The first store alone: the ideal, if it has room for everything (IPDPS'19, §V-B, "cache-only").
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheOnly;

/// The last store alone: the worst case (IPDPS'19, §V-B, "ssd-only").
#[derive(Clone, Copy, Debug, Default)]
pub struct SsdOnly;

/// The first store that has room (IPDPS'19, §V-B, "hybrid-naive").
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridNaive;

/// The store with room that is predicted to be the fastest with one writer more, if that is faster
/// than the flushes; else it waits for a flush (IPDPS'19, Algorithm 2, "hybrid-opt"), to the letter.
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridOpt;

/// [`HybridOpt`], but it waits only for room that it could use. Not from the paper.
///
/// The paper has one average for the flushes from all stores. Where a slow store's chunks are flushed no faster than
/// they are read, that average falls as soon as the store is used, and so it is used on and on. What counts here are
/// the flushes that make room on the stores that are full, as far as there were any; and where none is, there is nothing
/// to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridRoom;

impl StorePolicy for CacheOnly {
    fn usable(&self, stores: usize) -> Range<usize> {
        0..stores.min(1)
    }

    fn choose(&self, stores: &[StoreState<'_>], _: Backlog) -> Option<usize> {
        first_with_room(stores, self.usable(stores.len()))
    }

    fn name(&self) -> &'static str {
        "cache-only"
    }
}

impl StorePolicy for SsdOnly {
    fn usable(&self, stores: usize) -> Range<usize> {
        stores.saturating_sub(1)..stores
    }

    fn choose(&self, stores: &[StoreState<'_>], _: Backlog) -> Option<usize> {
        first_with_room(stores, self.usable(stores.len()))
    }

    fn name(&self) -> &'static str {
        "ssd-only"
    }
}

impl StorePolicy for HybridNaive {
    fn usable(&self, stores: usize) -> Range<usize> {
        0..stores
    }

    fn choose(&self, stores: &[StoreState<'_>], _: Backlog) -> Option<usize> {
        first_with_room(stores, self.usable(stores.len()))
    }

    fn name(&self) -> &'static str {
        "hybrid-naive"
    }
}

impl StorePolicy for HybridOpt {
    fn usable(&self, stores: usize) -> Range<usize> {
        0..stores
    }

    fn choose(&self, stores: &[StoreState<'_>], backlog: Backlog) -> Option<usize> {
        faster_than(backlog.flush_bandwidth, stores)
    }

    fn name(&self) -> &'static str {
        "hybrid-opt"
    }
}

impl StorePolicy for HybridRoom {
    fn usable(&self, stores: usize) -> Range<usize> {
        0..stores
    }

    fn choose(&self, stores: &[StoreState<'_>], backlog: Backlog) -> Option<usize> {
        let full = || stores.iter().filter(|store| !store.has_room);
        let flushes = full().filter_map(|store| store.flush_bandwidth);
        let flushes = match flushes.reduce(f64::max) {
            Some(flushes) => flushes,
            None if full().next().is_some() => backlog.flush_bandwidth,
            None => 0.0,
        };
        faster_than(flushes, stores)
    }

    fn name(&self) -> &'static str {
        "hybrid-room"
    }
}

/// The store with room that is predicted to be the fastest with one writer more, if it is faster than that.
fn faster_than(bandwidth: f64, stores: &[StoreState<'_>]) -> Option<usize> {
    let mut fastest = (bandwidth, None);
    let with_room = stores
        .iter()
        .enumerate()
        .filter(|(_, store)| store.has_room);
    for (at, store) in with_room {
        let writers = store.writers.saturating_add(1);
        let throughput = store.calibration.throughput(writers);
        if throughput > fastest.0 {
            fastest = (throughput, Some(at));
        }
    }
    fastest.1
}

fn first_with_room(stores: &[StoreState<'_>], mut usable: Range<usize>) -> Option<usize> {
    usable.find(|&at| stores[at].has_room)
}
