use std::time::Duration;

use crate::placement::{CalibrationError, PlacementError};

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. The variant says what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stores, the policy or the sizes do not go together: see there.
    #[error(transparent)]
    Backend(#[from] PlacementError),
    /// A store was measured to write nothing, or was not measured: see there.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A store refused, and there is nothing left to write to: see there.
    #[error(transparent)]
    Store(#[from] tierflow_store::Error),
    /// The chunk size is not a multiple of what a store asks for: choose one that is.
    #[error(
        "chunks of {chunk_size} bytes are not multiples of the {alignment} bytes that a store writes"
    )]
    ChunkSize {
        /// The chunk size in bytes.
        chunk_size: usize,
        /// The store's alignment in bytes.
        alignment: usize,
    },
    /// The stores hold nothing: give them room.
    #[error(
        "no store has room for a chunk of {chunk_size} bytes: free some space, or name other stores"
    )]
    NoRoom {
        /// The chunk size in bytes.
        chunk_size: usize,
    },
    /// It took longer than the caller would wait: wait again, or give up.
    #[error("{doing} was not done after {patience:?}: {why}")]
    TimedOut {
        /// What was waited for.
        doing: &'static str,
        /// How long that was.
        patience: Duration,
        /// The reason, as far as it is known.
        why: String,
    },
    /// The system gives no thread.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}
