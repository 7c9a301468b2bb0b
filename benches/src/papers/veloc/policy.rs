//! The paper's policies (IPDPS'19, §V-B), and a policy of ours in the same form.

use std::ops::Range;

use tierflow_placement::stores::{Backlog, StorePolicy, StoreState};

/// The policy that uses the first store alone: the ideal, if it has room for everything (IPDPS'19, §V-B, "cache-only").
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheOnly;

/// The policy that uses the last store alone: the worst case (IPDPS'19, §V-B, "ssd-only").
#[derive(Clone, Copy, Debug, Default)]
pub struct SsdOnly;

/// The policy that uses the first store with room (IPDPS'19, §V-B, "hybrid-naive").
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridNaive;

/// The policy of IPDPS'19, Algorithm 2 ("hybrid-opt"), to the letter: uses the store with room that is predicted to be the fastest
/// with one more writer, if that store is faster than the flushes. Otherwise the policy waits for a flush.
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridOpt;

/// [`HybridOpt`], but the policy waits only for room that it could use. Not from the paper.
///
/// The paper has one average for the flushes from all stores. If chunks of a slow store are flushed no faster than they are read, the
/// average falls as soon as the store is used, so the policy goes on to use it. `HybridRoom` counts only the flushes that make room on full
/// stores, if there were any. If no store is full, the policy does not wait.
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

/// Returns the store with room that is predicted to be the fastest with one more writer, if it is faster than `bandwidth`.
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
