//! The answer to a request to pin memory.

use crate::error::Error;

/// The answer of [`HostReservation::pin`](crate::HostReservation::pin).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "pinning may be refused, and then this says why"]
pub enum Pinned {
    /// The range is locked in place until the memory is dropped.
    Yes,
    /// The range stays ordinary memory: copies are correct, but slower.
    No(WhyUnpinned),
}

/// Reasons why memory was not pinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhyUnpinned {
    /// The process may not lock that much memory.
    #[error(
        "the memory lock limit is {limit} bytes, of which {used} are used: raise it (ulimit -l)"
    )]
    LockLimit {
        /// The soft `RLIMIT_MEMLOCK`, in bytes.
        limit: u64,
        /// Bytes locked by this device so far.
        used: u64,
    },
    /// The driver or the system refused.
    #[error("{0}")]
    Refused(Box<Error>),
}
