use std::ops::Range;

use super::Calibration;

/// A store as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct StoreState<'a> {
    /// True if it has room for a chunk, and works.
    pub has_room: bool,
    /// True if it has failed and is not back.
    pub is_out_of_use: bool,
    /// Chunks that are on it, those being written and being flushed included (S_c).
    pub chunks: usize,
    /// How many producers write to it now (S_w).
    pub writers: u32,
    /// Bytes that those producers have announced beyond the chunks that they write. Not from the paper.
    pub announced: u64,
    /// The prediction of its throughput (MODEL).
    pub calibration: &'a Calibration,
    /// The throughput of its last writes over the predicted one; 1 before the first. Not from the paper.
    pub correction: f64,
    /// Bytes per second of the flushes of its own chunks together; `None` before the first. Not from the paper.
    pub flush_bandwidth: Option<f64>,
}

/// The writes that wait, as a policy sees them.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Bytes per second of all flushes together (AvgFlushBW); 0 as long as nothing is known.
    pub flush_bandwidth: f64,
    /// Bytes of a chunk.
    pub chunk_size: u64,
    /// Bytes that producers wait to write, or have announced, all together.
    pub to_write: u64,
    /// Of those, the ones of the producer that is asked for.
    pub own: u64,
}

/// The order in which chunks are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOrder {
    /// In the order in which they were written (IPDPS'19, Algorithm 3).
    AsWritten,
    /// As long as producers write or have announced more, those of the fastest store that has any; others are held
    /// back, unless their store is full. Not from the paper.
    ///
    /// Producers wait for room on the fast store. A flush from another one makes none, and takes its share of
    /// the external storage and of the store that others write to.
    FastestStore,
}

/// Decides which store a producer's chunk goes to.
///
/// A policy is pure: the same arguments give the same answer.
pub trait StorePolicy: std::fmt::Debug + Send {
    /// Returns the stores that the policy may use, of so many, the fastest first.
    fn usable(&self, stores: usize) -> Range<usize>;

    /// The store for one chunk more, or `None` to wait for a flush to finish.
    ///
    /// A store that has no room, or is not [usable](Self::usable), is no answer.
    fn choose(&self, stores: &[StoreState<'_>], backlog: Backlog) -> Option<usize>;

    /// Returns the order in which chunks are flushed.
    fn flush_order(&self) -> FlushOrder {
        FlushOrder::AsWritten
    }

    /// The name by which the policy is chosen and reported.
    fn name(&self) -> &'static str;
}

/// Has all stores at work until the last producer is done. Not from the paper.
///
/// The paper's `HybridOpt` compares a store with the flushes, and has all producers wait where the flushes are faster, even
/// where both together would be faster still; and it never starts to use a store that is slow for one
/// writer and fast for several. Here a producer writes to the store on which it is predicted to be done first, and waits
/// for room on a faster one that is full only if
///
/// - all that is still to be written would have gone there by then, so that it would be the last to end, or
/// - the others would run out of work for the faster store meanwhile, as producers that write to slow stores, and what
///   they have announced, cannot go there. Before a faster store of one chunk, a producer that is alone waits a little less: it
///   would write there and wait for the flush in turn.
///
/// Predictions are [corrected](StoreState::correction) by what writes see, as a store may be slower or faster than on
/// the day it was calibrated. Room on a store comes as fast as its own chunks are flushed, which are flushed
/// [first](FlushOrder::FastestStore).
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestWait;

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
        let Some((faster, full)) = soonest(false).filter(|(takes, _)| *takes < now) else {
            return Some(store);
        };
        let flushes = stores[full].flush_bandwidth;
        // Nothing is known of flushes at first; then no producer waits.
        let flushes = flushes.unwrap_or(backlog.flush_bandwidth);
        let chunk = backlog.chunk_size as f64;
        let all = backlog.to_write as f64 / flushes + chunk * faster;
        let others = stores.iter().enumerate().filter(|(at, _)| *at != full);
        let elsewhere: u64 = others.map(|(_, store)| store.announced).sum();
        let work = backlog.to_write.saturating_sub(backlog.own + elsewhere);
        let mut work = (work + stores[full].chunks as u64 * backlog.chunk_size) as f64 / flushes;
        let is_alone = backlog.to_write == backlog.own && stores.iter().all(|s| s.writers == 0);
        if is_alone && stores[full].chunks == 1 {
            // By waiting it would write and flush in turn: one chunk on each store may take it as long as two there.
            work += chunk * faster + chunk / flushes;
        }
        (chunk * now <= all.min(work)).then_some(store)
    }

    fn flush_order(&self) -> FlushOrder {
        FlushOrder::FastestStore
    }

    fn name(&self) -> &'static str {
        "shortest-wait"
    }
}
