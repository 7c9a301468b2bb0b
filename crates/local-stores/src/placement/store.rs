use super::clock::{Ratio, Shares};
use super::{Calibration, FlushBandwidth, StoreState};

/// Writes over which the correction of predictions is averaged.
const WRITES: usize = 64;
/// Writes that went as predicted and count beside them: a single slow one is no reason to leave a store alone for
/// ever, without which nothing more would be learnt of it.
const AS_PREDICTED: f64 = 4.0;
/// Flushes of one store over which their bandwidth is averaged.
const FLUSHES: usize = 32;
/// No store is believed to be more than so many times faster or slower than predicted.
const MOST_WRONG: f64 = 16.0;

/// One local store.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) calibration: Calibration,
    pub(super) capacity: usize,
    /// Chunks written, being written and being flushed (S_c).
    pub(super) chunks: usize,
    /// Chunks being written (S_w).
    pub(super) writers: u32,
    pub(super) is_out_of_use: bool,
    /// Bytes that its current writers have announced beyond the chunks that they write.
    pub(super) announced: u64,
    /// How fast its own chunks are flushed.
    pub(super) flushes: FlushBandwidth,
    /// Bytes that each write was predicted to have written.
    shares: Shares,
    /// Chunks written over what was predicted in their time.
    correction: Ratio,
}

impl Store {
    /// A store for `capacity` chunks (S_max).
    pub fn new(calibration: Calibration, capacity: usize) -> Self {
        Self {
            calibration,
            capacity,
            chunks: 0,
            writers: 0,
            is_out_of_use: false,
            announced: 0,
            flushes: FlushBandwidth::new(FLUSHES),
            shares: Shares::default(),
            correction: Ratio::over(WRITES),
        }
    }

    /// A chunk begins to be written, by a producer that has announced `announced` bytes more. The result is an argument of
    /// [`write_ended`](Self::write_ended).
    pub(super) fn write_started(&mut self, now_ns: u64, announced: u64) -> f64 {
        self.advance(now_ns);
        self.writers += 1;
        self.announced += announced;
        self.shares.started()
    }

    /// It is written, or could not be.
    pub(super) fn write_ended(
        &mut self,
        now_ns: u64,
        (started, announced): (f64, u64),
        written: Option<u64>,
    ) {
        self.advance(now_ns);
        self.writers -= 1;
        self.announced = self.announced.saturating_sub(announced);
        let predicted = self.shares.ended(started);
        if let Some(bytes) = written {
            self.correction.push(1.0, predicted / bytes as f64);
        }
    }

    fn advance(&mut self, now_ns: u64) {
        let predicted = |writers| self.calibration.throughput(writers);
        self.shares.advance(now_ns, predicted);
    }

    pub(super) fn state(&self) -> StoreState<'_> {
        let correction = self.correction.with(AS_PREDICTED, AS_PREDICTED);
        let correction = correction.unwrap_or(1.0);
        StoreState {
            has_room: self.has_room(),
            is_out_of_use: self.is_out_of_use,
            chunks: self.chunks,
            writers: self.writers,
            announced: self.announced,
            calibration: &self.calibration,
            correction: correction.clamp(1.0 / MOST_WRONG, MOST_WRONG),
            flush_bandwidth: self.flushes.get(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.chunks < self.capacity && !self.is_out_of_use
    }

    /// Chunks on it, those being written included.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Chunks that are being written to it.
    pub fn writers(&self) -> u32 {
        self.writers
    }

    /// Chunks that it holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// What happened so far. Bytes that were asked for are withdrawn, bypassed, flushed, on a store, or
/// still waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes asked for.
    pub asked_bytes: u64,
    /// Bytes asked for and withdrawn.
    pub withdrawn_bytes: u64,
    /// Bytes sent past the local stores.
    pub bypassed_bytes: u64,
    /// Bytes written to each local store.
    pub written_bytes: Vec<u64>,
    /// Bytes that reached the external storage by a flush.
    pub flushed_bytes: u64,
    /// Nanoseconds that producers waited for a store, added up.
    pub waited_ns: u128,
    /// Chunks that were given a store that the policy would have waited for, as nothing was there to
    /// wait for.
    pub forced: u64,
}
