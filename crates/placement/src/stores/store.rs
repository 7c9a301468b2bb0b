use super::{Calibration, StoreState};

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
        }
    }

    pub(super) fn state(&self) -> StoreState<'_> {
        StoreState {
            has_room: self.chunks < self.capacity && !self.is_out_of_use,
            is_out_of_use: self.is_out_of_use,
            writers: self.writers,
            calibration: &self.calibration,
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
