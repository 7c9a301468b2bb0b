//! The kinds of tiers, and the rules that follow from their order.

/// Workers per direction between memory and storage. More workers gain nothing with the devices in use.
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
    /// Returns the name of the kind in reports.
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

    /// Returns true if the tier's contents outlive the engine.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::NodeLocal | Self::External)
    }
}

/// Returns how many transfers run at a time into a tier from above, and as many from it upwards. Storage is faster with several
/// requests at a time. A DMA engine runs one transfer after the other, and should find the next one as soon as it has finished one.
pub(crate) fn depth(kind: Kind) -> usize {
    match kind {
        Kind::Storage | Kind::NodeLocal | Kind::External => STORAGE_WORKERS,
        Kind::Device | Kind::Peers | Kind::Host => MEMORY_WORKERS,
    }
}
