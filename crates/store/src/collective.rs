//! Collective calls of the ranks of a group.

use crate::Result;
use std::fmt::Debug;
use std::time::Duration;

/// How the ranks of a group tell each other what they have: over a directory that they share
/// ([`Repository`](crate::Repository)), or as their application does it, such as by `MPI_Allgatherv`.
///
/// The calls are collective: every rank makes the same ones in the same order, at about the same time, each in a thread or
/// process of its own.
pub trait Collective: Debug + Send + Sync {
    /// Gives `mine` to all ranks, and returns what each of them gave, in the order of the ranks.
    ///
    /// All that return got the same, and only after every rank had made this call: nothing that a rank gave in an earlier
    /// life, from which it was killed, is taken for what it gives now.
    ///
    /// # Errors
    /// [`Error::Absent`](crate::Error::Absent) if some rank does not make the call within `patience`, or did so and ended
    /// before all had what it gave.
    fn all_gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>>;
}
