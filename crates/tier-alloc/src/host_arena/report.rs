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
    /// Bytes of the arena: the bytes asked for, rounded up to pages.
    pub capacity: usize,
    /// Bytes that can be lent.
    pub usable: usize,
    /// Bytes touched ahead of use; 0 if the driver provides pages itself (unified memory).
    pub touched: usize,
    /// Bytes pinned.
    pub pinned: usize,
    /// Bytes that lie in huge pages; `None` if the kernel does not say, or the driver provides them.
    pub huge_pages: Option<usize>,
    /// The node of main memory.
    pub node: NodeObtained,
    /// The last behaviour of touching, if the strategy has several.
    #[cfg(feature = "baselines")]
    pub touching: Option<Touching>,
    /// The reason why the other bytes are not pinned, if pinning was refused. Copies of these bytes are correct, but slower.
    pub why_unpinned: Option<WhyUnpinned>,
    /// The error that ended the growth, if one did.
    pub failed: Option<Error>,
    /// True if the arena grows no more.
    pub finished: bool,
    /// The growth over time: one sample for each piece touched or pinned.
    pub timeline: Vec<Sample>,
}

/// The node of main memory that was asked for, and the one on which the arena lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeObtained {
    /// The node asked for; `None` if it does not matter.
    pub asked: Option<u32>,
    /// The node of the first page; `None` until the page is touched, or if the kernel does not say.
    pub obtained: Option<u32>,
    /// The error with which the system refused the node, if it did.
    pub why_not: Option<Error>,
}

/// The levels of an arena at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time since the arena was started.
    pub at: Duration,
    /// Bytes touched.
    pub touched: usize,
    /// Bytes pinned.
    pub pinned: usize,
}
