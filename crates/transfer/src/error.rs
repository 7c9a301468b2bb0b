//! Errors, with the end of the copy that failed.

use std::error::Error as StdError;
use thiserror::Error as ThisError;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of one end of a copy.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A device or its driver failed, or refused to lend memory.
    #[error(transparent)]
    Device(#[from] tierflow_device::Error),
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] tierflow_store::Error),
    /// An arena has no memory at this place.
    #[error(transparent)]
    Arena(#[from] tierflow_tier_alloc::Error),
    /// An end that the caller implements failed.
    #[error(transparent)]
    Caller(Box<dyn StdError + Send + Sync>),
    /// A medium neither lends memory nor implements the copy.
    #[error("the medium lends no memory: implement Medium::begin_read and Medium::begin_write")]
    NoMemory,
    /// A copy would read or write a part of a record.
    #[error("{bytes} bytes of a record at {at}: records are copied as a whole")]
    PartOfRecord {
        /// Offset of the first byte.
        at: u64,
        /// The number of bytes.
        bytes: u64,
    },
}

/// The end of a copy that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailedEnd {
    /// The end that the bytes come from.
    Source,
    /// The end that the bytes go to.
    Target,
}

/// The error of a copy. Nothing uses the memory of either end any more.
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
    /// Returns the error of a copy whose source failed. A cancelled storage counts as [`Self::Cancelled`].
    #[must_use]
    pub fn source(error: Error) -> Self {
        Self::of(FailedEnd::Source, error)
    }

    /// Returns the error of a copy whose target failed. A cancelled storage counts as [`Self::Cancelled`].
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
