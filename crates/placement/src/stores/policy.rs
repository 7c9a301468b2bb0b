use std::ops::Range;

use super::Calibration;

/// A store as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct StoreState<'a> {
    /// True if the store works and has room for a chunk.
    pub has_room: bool,
    /// True if the store has failed and does not work again.
    pub is_out_of_use: bool,
    /// Chunks on the store, with those that are being written or flushed (S_c).
    pub chunks: usize,
    /// Number of producers that write to the store now (S_w).
    pub writers: u32,
    /// Bytes that these producers have announced in addition to the chunks that they write. Not from the paper.
    pub announced: u64,
    /// The prediction of the store's throughput (MODEL).
    pub calibration: &'a Calibration,
    /// Throughput of the last writes, divided by the predicted throughput; 1 before the first. Not from the paper.
    pub correction: f64,
    /// Bytes per second of all flushes of the store's chunks together; `None` before the first. Not from the paper.
    pub flush_bandwidth: Option<f64>,
}

/// The writes that wait, as a policy sees them.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Bytes per second of all flushes together (AvgFlushBW); 0 before the first flush.
    pub flush_bandwidth: f64,
    /// Bytes of a chunk.
    pub chunk_size: u64,
    /// Bytes that all producers together wait to write or have announced.
    pub to_write: u64,
    /// Part of `to_write` of the producer for which the policy is asked.
    pub own: u64,
}

/// The order in which chunks are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOrder {
    /// In the order in which they were written (IPDPS'19, Algorithm 3).
    AsWritten,
    /// The chunks of the fastest store that has any. Chunks of other stores wait while producers write or have announced
    /// more, unless their store is full. Not from the paper.
    ///
    /// Producers wait for room on the fast store. A flush from another store makes no room there, and takes its share of the
    /// bandwidth of the external storage and of the store that producers write to.
    FastestStore,
}

/// A rule that decides which store a producer's chunk goes to.
///
/// A policy is pure: the same arguments give the same answer.
pub trait StorePolicy: std::fmt::Debug + Send {
    /// Returns the stores that the policy may use, out of `0..stores`, which are numbered from the fastest.
    fn usable(&self, stores: usize) -> Range<usize>;

    /// Returns the store for one more chunk, or `None` to wait until a flush ends.
    ///
    /// The store must have room and be [usable](Self::usable).
    fn choose(&self, stores: &[StoreState<'_>], backlog: Backlog) -> Option<usize>;

    /// Returns the order in which chunks are flushed.
    fn flush_order(&self) -> FlushOrder {
        FlushOrder::AsWritten
    }

    /// Returns the name by which the policy is chosen and reported.
    fn name(&self) -> &'static str;
}

/// The policy that keeps all stores at work until the last producer is done. Not from the paper.
///
/// The paper's `HybridOpt` compares a store with the flushes. All producers wait if the flushes are faster, even if both
/// together would be faster still. `HybridOpt` never starts to use a store that is slow for one writer and fast for several.
/// Under this policy, a producer writes to the store on which it is predicted to be done first. A producer waits for room on a
/// faster, full store only if
///
/// - all bytes that are still to be written would have gone to the faster store by then, so that this write would end
///   last, or
/// - the other producers would run out of work for the faster store meanwhile. Bytes that producers of slow stores write or
///   have announced are no work for it. A producer that is alone before a faster store of one chunk waits a little less, as it
///   would write there and wait for the flush in turn.
///
/// Predictions are [corrected](StoreState::correction) by the throughput of writes, as a store may be slower or faster than
/// on the day it was calibrated. Room on a store comes as fast as the store's chunks are flushed, and the chunks of the
/// fastest store are flushed [first](FlushOrder::FastestStore).
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestWait;

impl StorePolicy for ShortestWait {
    fn usable(&self, stores: usize) -> Range<usize> {
        0..stores
    }

    fn choose(&self, stores: &[StoreState<'_>], backlog: Backlog) -> Option<usize> {
        // Seconds per byte of one more writer, which shares the store with the others.
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
        // Before the first flush, the bandwidth is 0 and no producer waits.
        let flushes = flushes.unwrap_or(backlog.flush_bandwidth);
        let chunk = backlog.chunk_size as f64;
        let all = backlog.to_write as f64 / flushes + chunk * faster;
        let others = stores.iter().enumerate().filter(|(at, _)| *at != full);
        let elsewhere: u64 = others.map(|(_, store)| store.announced).sum();
        let work = backlog.to_write.saturating_sub(backlog.own + elsewhere);
        let mut work = (work + stores[full].chunks as u64 * backlog.chunk_size) as f64 / flushes;
        let is_alone = backlog.to_write == backlog.own && stores.iter().all(|s| s.writers == 0);
        if is_alone && stores[full].chunks == 1 {
            // A producer that waits would write and flush in turn: one chunk on each store may take as long as two chunks there.
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
