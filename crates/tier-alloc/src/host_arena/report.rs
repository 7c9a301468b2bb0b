use std::time::Duration;

use tierflow_device::{Error, WhyUnpinned};

#[cfg(feature = "baselines")]
use super::baselines::Touching;

/// The requested and the obtained properties of a host arena.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// The strategy, by its name.
    pub strategy: &'static str,
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes there are: those asked for, rounded up to pages.
    pub capacity: usize,
    /// Bytes that can be lent.
    pub usable: usize,
    /// Bytes touched ahead of use; 0 where the driver sees to that itself (unified memory).
    pub touched: usize,
    /// Bytes pinned.
    pub pinned: usize,
    /// Bytes that lie in huge pages; `None` if the kernel does not say, or the driver provides them.
    pub huge_pages: Option<usize>,
    /// The node of main memory.
    pub node: NodeObtained,
    /// The last behaviour of touching, where the strategy has several.
    #[cfg(feature = "baselines")]
    pub touching: Option<Touching>,
    /// Why the rest is not pinned, if something stands in the way. Copies of it are right, but
    /// slower.
    pub why_unpinned: Option<WhyUnpinned>,
    /// Why it ended early, if it failed.
    pub failed: Option<Error>,
    /// True if the arena grows no more.
    pub finished: bool,
    /// How it grew, one sample for each piece touched or pinned.
    pub timeline: Vec<Sample>,
}

/// The node of main memory that an arena was to lie on, and the one that it lies on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeObtained {
    /// The node asked for; `None` if it does not matter.
    pub asked: Option<u32>,
    /// The node of the first page, once there is one and the kernel says.
    pub obtained: Option<u32>,
    /// Why the node could not be asked for, if so.
    pub why_not: Option<Error>,
}

/// How far an arena had grown at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time since the arena was started.
    pub at: Duration,
    /// Bytes touched.
    pub touched: usize,
    /// Bytes pinned.
    pub pinned: usize,
}
