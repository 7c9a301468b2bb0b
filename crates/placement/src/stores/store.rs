use std::fmt;

use super::clock::{Ratio, Shares};
use super::{Calibration, FlushBandwidth, StoreState};

/// The number of a local store, counted from 0, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub usize);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {}", self.0)
    }
}

/// A write that was begun, for [`Store::end_write`].
#[derive(Clone, Copy, Debug)]
pub struct StoreWrite {
    /// Bytes of each write that were predicted until this write began.
    started: f64,
    /// Bytes that the producer has announced in addition to this write.
    announced: u64,
}

/// Writes over which the correction of predictions is averaged.
const WRITES: usize = 64;
/// Imagined writes, as fast as predicted, that count in addition. A single slow write therefore does not keep a policy off a
/// store for ever; without writes, the correction would never change again.
const AS_PREDICTED: f64 = 4.0;
/// Flushes of one store over which their bandwidth is averaged.
const FLUSHES: usize = 32;
/// Largest factor by which a store counts as faster or slower than predicted.
const MOST_WRONG: f64 = 16.0;

/// A local store, as the policy knows it.
#[derive(Clone, Debug)]
pub struct Store {
    calibration: Calibration,
    capacity: usize,
    /// Chunks written, being written and being flushed (S_c).
    chunks: usize,
    /// Chunks being written (S_w).
    writers: u32,
    /// Bytes that its current writers have announced in addition to the chunks that they write.
    announced: u64,
    /// The bandwidth of the flushes of its own chunks.
    flushes: FlushBandwidth,
    /// Predicted bytes of each write.
    shares: Shares,
    /// Written chunks over the chunks that were predicted in the same time.
    correction: Ratio,
}

impl Store {
    /// Makes a store for `capacity` chunks (S_max).
    pub fn new(calibration: Calibration, capacity: usize) -> Self {
        Self {
            calibration,
            capacity,
            chunks: 0,
            writers: 0,
            announced: 0,
            flushes: FlushBandwidth::new(FLUSHES),
            shares: Shares::default(),
            correction: Ratio::over(WRITES),
        }
    }

    /// Begins a write of a chunk, whose producer has announced `announced` more bytes.
    pub fn begin_write(&mut self, now_ns: u64, announced: u64) -> StoreWrite {
        self.advance(now_ns);
        self.writers += 1;
        self.announced += announced;
        let started = self.shares.started();
        StoreWrite { started, announced }
    }

    /// Ends a write of `written` bytes; `None` if the write failed. A write of no bytes tells nothing of the store's speed.
    pub fn end_write(&mut self, now_ns: u64, write: StoreWrite, written: Option<u64>) {
        self.advance(now_ns);
        self.writers = self.writers.saturating_sub(1);
        self.announced = self.announced.saturating_sub(write.announced);
        let predicted = self.shares.ended(write.started);
        if let Some(bytes) = written.filter(|bytes| *bytes > 0) {
            self.correction.push(1.0, predicted / bytes as f64);
        }
    }

    fn advance(&mut self, now_ns: u64) {
        let predicted = |writers| self.calibration.throughput(writers);
        self.shares.advance(now_ns, predicted);
    }

    /// Returns the store as a policy sees it.
    pub fn state(&self) -> StoreState<'_> {
        let correction = self.correction.with(AS_PREDICTED, AS_PREDICTED);
        let correction = correction.unwrap_or(1.0);
        StoreState {
            has_room: self.has_room(),
            is_out_of_use: false,
            chunks: self.chunks,
            writers: self.writers,
            announced: self.announced,
            calibration: &self.calibration,
            correction: correction.clamp(1.0 / MOST_WRONG, MOST_WRONG),
            flush_bandwidth: self.flushes.get(),
        }
    }

    /// Returns true if the store has room for a chunk.
    pub fn has_room(&self) -> bool {
        self.chunks < self.capacity
    }

    /// Returns the number of chunks on the store, with those that are being written.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Returns the number of chunks that are being written to the store.
    pub fn writers(&self) -> u32 {
        self.writers
    }

    /// Returns the most chunks that the store holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Counts chunks that were placed on the store.
    pub fn add_chunks(&mut self, count: usize) {
        self.chunks = self.chunks.saturating_add(count);
    }

    /// Counts a chunk that left the store.
    pub fn remove_chunk(&mut self) {
        self.chunks = self.chunks.saturating_sub(1);
    }

    /// Returns the bandwidth of the flushes of the store's chunks.
    pub fn flushes_mut(&mut self) -> &mut FlushBandwidth {
        &mut self.flushes
    }
}
