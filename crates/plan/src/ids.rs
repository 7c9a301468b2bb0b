//! Names.

use std::fmt;

/// The number of a checkpoint, chosen by the application.
pub type Version = u64;

/// Names one call of the application until it is answered and its copy, if there is one, has ended. The
/// plan's driver makes them up; each is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Names one transfer between tiers, from its [`Command::Transfer`](crate::Command::Transfer) until its end is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// A tier by its position: 0 is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TierId(pub usize);

impl TierId {
    /// Where checkpoints are written first, and slots are lent.
    pub const FASTEST: Self = Self(0);
}

impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
