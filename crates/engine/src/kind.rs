//! What kinds of tiers there are, and what follows from their order.

use crate::{Error, Result};

/// Workers per direction between memory and storage: with more the devices in use gain nothing.
const STORAGE_WORKERS: usize = 4;

/// What a tier is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    Peers,
    Host,
    Storage,
    NodeLocal,
    External,
}

impl Kind {
    /// Whether what lies there outlives the engine.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::NodeLocal | Self::External)
    }

    /// A first guess in bytes/s of how fast its copies are flushed, until the first flush is measured.
    pub(crate) fn flush_bandwidth(self) -> u64 {
        match self {
            Self::Device | Self::Peers => 20_000_000_000,
            Self::Host | Self::Storage | Self::NodeLocal | Self::External => 1_000_000_000,
        }
    }
}

/// Transfers at a time between this tier and those below. What lies between memory and storage profits from several
/// requests at a time; one DMA engine does not.
pub(crate) fn depth(kinds: &[Kind], tier: usize) -> usize {
    match kinds.get(tier + 1) {
        Some(Kind::Storage | Kind::NodeLocal | Kind::External) => STORAGE_WORKERS,
        _ => 1,
    }
}

/// Whether there is a fastest tier to make differences of, and tiers that can store them.
pub(crate) fn may_differ(kinds: &[Kind]) -> Result<()> {
    let why = match kinds {
        [Kind::Device | Kind::Host] | [] => "give the engine a tier below the fastest",
        [_, below @ ..] if below.contains(&Kind::Peers) => "peers' memory holds checkpoints whole",
        [Kind::Device | Kind::Host, ..] => return Ok(()),
        _ => "give the engine a device cache or a host cache",
    };
    Err(Error::NoDifferences { why })
}
