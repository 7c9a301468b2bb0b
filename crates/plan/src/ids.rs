//! Names of versions, calls, transfers and tiers.

use std::fmt;

/// The number of a checkpoint, chosen by the application.
pub type Version = u64;

/// The name of one call of the application until it is answered and its copy, if any, has ended. The plan's driver
/// makes tickets up and uses each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The name of one transfer between tiers, from its [`Command::Transfer`](crate::Command::Transfer) until its end is
/// reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// A tier by its position: 0 is the fastest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TierId(pub usize);

impl TierId {
    /// The tier to which checkpoints are written first, and which lends slots.
    pub const FASTEST: Self = Self(0);
}

impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
