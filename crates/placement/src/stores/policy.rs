use std::ops::Range;

use super::Calibration;

/// What a policy knows of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreState<'a> {
    /// Whether it has room for a chunk, and works.
    pub has_room: bool,
    /// Whether it has failed and is not back.
    pub is_out_of_use: bool,
    /// How many producers write to it now (S_w).
    pub writers: u32,
    /// What it is predicted to do (MODEL).
    pub calibration: &'a Calibration,
    /// What its last writes saw over what was predicted for them; 1 before the first. Not from the paper.
    pub correction: f64,
}

/// What a policy knows beside the stores.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Bytes per second of all flushes together (AvgFlushBW); 0 as long as nothing is known.
    pub flush_bandwidth: f64,
    /// How many producers wait, the one that is asked for included.
    pub waiting: usize,
}

/// Decides which store a producer's chunk goes to.
///
/// A policy is pure: the same arguments give the same answer.
pub trait StorePolicy: std::fmt::Debug + Send {
    /// Which of so many stores, the fastest first, it may use at all.
    fn usable(&self, stores: usize) -> Range<usize>;

    /// The store for one chunk more, or `None` to wait for a flush to finish.
    ///
    /// A store that has no room, or is not [usable](Self::usable), is no answer.
    fn choose(&self, stores: &[StoreState<'_>], backlog: Backlog) -> Option<usize>;

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

/// The store on which the producer is predicted to be done first, unless it is done earlier by waiting for
/// room on one that is full. Not from the paper.
///
/// [`HybridOpt`] compares a store with the flushes, and has everybody wait where the flushes are faster, even
/// where the queue is long and both together would be faster still; and it never starts to use a store
/// that is slow for one writer and fast for several. Here the wait is what counts: with q producers in the
/// queue, the last of them gets room after q flushes. Predictions are
/// [corrected](StoreState::correction) by what writes see, as a store may be slower or faster than on the day it
/// was calibrated.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestWait;

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
        let mut fastest = (backlog.flush_bandwidth, None);
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

impl StorePolicy for ShortestWait {
    fn usable(&self, stores: usize) -> Range<usize> {
        0..stores
    }

    fn choose(&self, stores: &[StoreState<'_>], backlog: Backlog) -> Option<usize> {
        // Seconds per byte, for one writer more among those that share the store.
        let takes = |store: &StoreState<'_>| {
            let writers = store.writers.saturating_add(1);
            f64::from(writers) / (store.calibration.throughput(writers) * store.correction)
        };
        let soonest = |has_room: bool| {
            let stores = stores.iter().enumerate();
            stores
                .filter(move |(_, store)| store.has_room == has_room && !store.is_out_of_use)
                .map(|(at, store)| (takes(store), at))
                .min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let (now, store) = soonest(true)?;
        let after_waiting = soonest(false).map(|(takes, _)| {
            // Nothing is known of flushes at first; then nobody waits.
            backlog.waiting as f64 / backlog.flush_bandwidth + takes
        });
        after_waiting
            .is_none_or(|later| now <= later)
            .then_some(store)
    }

    fn name(&self) -> &'static str {
        "shortest-wait"
    }
}

fn first_with_room(stores: &[StoreState<'_>], mut usable: Range<usize>) -> Option<usize> {
    usable.find(|&at| stores[at].has_room)
}
