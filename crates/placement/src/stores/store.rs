use super::clock::{Average, Clock, Started};
use super::{Calibration, StoreState};

/// Writes that the correction of a prediction goes over.
const WINDOW: usize = 16;
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
    clock: Clock,
    /// What writes saw over what was predicted for them.
    corrections: Average,
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
            clock: Clock::default(),
            corrections: Average::new(WINDOW),
        }
    }

    /// A chunk begins to be written.
    pub(super) fn write_started(&mut self, now_ns: u64) -> Started {
        self.writers += 1;
        self.clock.advance(now_ns);
        self.clock.started()
    }

    /// It is written, or could not be.
    pub(super) fn write_ended(&mut self, now_ns: u64, started: Started, written: Option<u64>) {
        self.writers -= 1;
        self.clock.advance(now_ns);
        if let Some(seen) = self.clock.ended(started, written) {
            let predicted = self.calibration.throughput(seen.running.round() as u32);
            let correction = seen.bandwidth / predicted;
            let correction = correction.clamp(1.0 / MOST_WRONG, MOST_WRONG);
            self.corrections.push(correction);
        }
    }

    pub(super) fn state(&self) -> StoreState<'_> {
        StoreState {
            has_room: self.chunks < self.capacity && !self.is_out_of_use,
            is_out_of_use: self.is_out_of_use,
            writers: self.writers,
            calibration: &self.calibration,
            correction: self.corrections.get().unwrap_or(1.0),
        }
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
