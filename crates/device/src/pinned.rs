//! Whether memory is pinned, and why not.

use crate::error::Error;

/// Whether [`HostReservation::pin`](crate::HostReservation::pin) pinned the range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "pinning may be refused, and then this says why"]
pub enum Pinned {
    /// The range is locked in place until the memory is dropped.
    Yes,
    /// It is not, and stays ordinary memory: copies are right, but slower.
    No(WhyUnpinned),
}

/// Why memory was not pinned.
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
        /// Bytes that this device has locked so far.
        used: u64,
    },
    /// The driver or the system refused.
    #[error("{0}")]
    Refused(Box<Error>),
}
