use std::ops::Range;

use super::Calibration;

/// What a policy knows of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreState<'a> {
    /// Whether it has room for a chunk and works.
    pub has_room: bool,
    /// How many producers write to it now (S_w).
    pub writers: u32,
    /// What it is predicted to do (MODEL).
    pub calibration: &'a Calibration,
}

/// Decides which store a producer's chunk goes to.
///
/// A policy is pure: the same arguments give the same answer.
pub trait StorePolicy: std::fmt::Debug + Send {
    /// Which of so many stores, the fastest first, it may use at all.
    fn usable(&self, stores: usize) -> Range<usize>;

    /// The store for one chunk more, or `None` to wait for a flush to finish. `flush_bandwidth` is that
    /// of all flushes together, in bytes per second, 0 before the first has finished.
    ///
    /// A store that has no room, or is not [usable](Self::usable), is no answer.
    fn choose(&self, stores: &[StoreState<'_>], flush_bandwidth: f64) -> Option<usize>;

    /// The name by which the policy is chosen and reported.
    fn name(&self) -> &'static str;
}

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
/// than the flushes; else it waits for a flush (IPDPS'19, Algorithm 2, "hybrid-opt").
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridOpt;

impl StorePolicy for CacheOnly {
    fn usable(&self, stores: usize) -> Range<usize> {
        0..stores.min(1)
    }

    fn choose(&self, stores: &[StoreState<'_>], _: f64) -> Option<usize> {
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

    fn choose(&self, stores: &[StoreState<'_>], _: f64) -> Option<usize> {
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

    fn choose(&self, stores: &[StoreState<'_>], _: f64) -> Option<usize> {
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

    fn choose(&self, stores: &[StoreState<'_>], flush_bandwidth: f64) -> Option<usize> {
        let mut fastest = (flush_bandwidth, None);
        for (at, store) in stores
            .iter()
            .enumerate()
            .filter(|(_, store)| store.has_room)
        {
            let throughput = store
                .calibration
                .throughput(store.writers.saturating_add(1));
            if throughput > fastest.0 {
                fastest = (throughput, Some(at));
            }
        }
        fastest.1
    }

    fn name(&self) -> &'static str {
        "hybrid-opt"
    }
}

fn first_with_room(stores: &[StoreState<'_>], mut usable: Range<usize>) -> Option<usize> {
    usable.find(|&at| stores[at].has_room)
}
