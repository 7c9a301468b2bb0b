//! Errors, by the end that failed.

use std::error::Error as StdError;
use thiserror::Error as ThisError;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of one end of a copy.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A device or its driver failed, or refused a loan.
    #[error(transparent)]
    Device(#[from] tierflow_device::Error),
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] tierflow_store::Error),
    /// An arena has no such memory.
    #[error(transparent)]
    Arena(#[from] tierflow_tier_alloc::Error),
    /// An end that the caller brought failed.
    #[error(transparent)]
    Caller(Box<dyn StdError + Send + Sync>),
    /// A medium that lends no memory has no way of its own to be copied.
    #[error("the medium lends no memory: implement Medium::begin_read and Medium::begin_write")]
    NoMemory,
    /// A record is read and written as a whole.
    #[error("{bytes} bytes of a record at {at}: records are copied as a whole")]
    PartOfRecord {
        /// The first byte.
        at: u64,
        /// The number of bytes.
        bytes: u64,
    },
}

/// The end of a copy that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailedEnd {
    /// The bytes could not be had.
    Source,
    /// The bytes could not be put down.
    Target,
}

/// A copy that did not end well. Nothing uses the memory of either end any more.
#[derive(Debug, ThisError)]
pub enum TransferError {
    /// The copy was stopped.
    #[error("the copy was stopped")]
    Cancelled,
    /// An end of the copy failed.
    #[error("{}: {error}", match end { FailedEnd::Source => "reading", FailedEnd::Target => "writing" })]
    Failed {
        /// The end that failed.
        end: FailedEnd,
        /// The failure of that end.
        #[source]
        error: Error,
    },
}

impl TransferError {
    /// The failure of the source. Storage that was cancelled did not fail.
    #[must_use]
    pub fn source(error: Error) -> Self {
        Self::of(FailedEnd::Source, error)
    }

    /// The failure of the target. Storage that was cancelled did not fail.
    #[must_use]
    pub fn target(error: Error) -> Self {
        Self::of(FailedEnd::Target, error)
    }

    pub(crate) fn of(end: FailedEnd, error: Error) -> Self {
        match error {
            Error::Storage(tierflow_store::Error::Cancelled) => Self::Cancelled,
            error => Self::Failed { end, error },
        }
    }
}
