//! The kinds of tiers, and the rules that follow from their order.

/// Workers per direction between memory and storage: with more the devices in use gain nothing.
const STORAGE_WORKERS: usize = 4;

/// Workers per direction between memories.
const MEMORY_WORKERS: usize = 2;

/// The memory or storage that a tier is made of.
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
    /// The name of the kind in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Peers => "peers",
            Self::Host => "host",
            Self::Storage => "file",
            Self::NodeLocal => "node-local",
            Self::External => "external",
        }
    }

    /// Whether what lies there outlives the engine.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::NodeLocal | Self::External)
    }
}

/// Transfers at a time into a tier from above, and out of it upwards. Storage profits from several requests at a time; a
/// DMA engine does one after the other, and is to find the next when it is done with one.
pub(crate) fn depth(kind: Kind) -> usize {
    match kind {
        Kind::Storage | Kind::NodeLocal | Kind::External => STORAGE_WORKERS,
        Kind::Device | Kind::Peers | Kind::Host => MEMORY_WORKERS,
    }
}
