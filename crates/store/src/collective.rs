//! Collective calls of the ranks of a group.

use crate::Result;
use std::fmt::Debug;
use std::time::Duration;

/// The way in which the ranks of a group exchange bytes: through a directory that they share ([`Repository`](crate::Repository)),
/// or by means of their application, such as `MPI_Allgatherv`.
///
/// The calls are collective: every rank makes the same calls in the same order, at about the same time, each in its own thread or
/// process.
pub trait Collective: Debug + Send + Sync {
    /// Sends `mine` to all ranks, and returns the bytes of each rank, in the order of the ranks.
    ///
    /// All ranks for which the call returns got the same bytes, and every rank had made the call before. So a rank never gets bytes
    /// that another one sent before it was killed and started again.
    ///
    /// # Errors
    /// [`Error::Absent`](crate::Error::Absent) if a rank does not make the call within `patience`, or made it and ended before all
    /// ranks had its bytes.
    fn all_gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>>;
}
