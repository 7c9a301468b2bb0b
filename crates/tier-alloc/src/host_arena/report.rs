use std::time::Duration;

use tierflow_device::{Error, WhyUnpinned};

/// What was asked of a host arena, and what it obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes there are: those asked for, rounded up to pages.
    pub capacity: usize,
    /// Bytes touched ahead of use.
    pub touched: usize,
    /// Bytes pinned.
    pub pinned: usize,
    /// Bytes that lie in huge pages; `None` if the kernel does not say.
    pub huge_pages: Option<usize>,
    /// Why the rest is not pinned, if something stands in the way. Copies of it are right, but
    /// slower.
    pub why_unpinned: Option<WhyUnpinned>,
    /// Why touching or pinning ended early, if it failed.
    pub failed: Option<Error>,
    /// Whether touching and pinning are over.
    pub finished: bool,
    /// How it grew, one sample for each piece touched or pinned.
    pub timeline: Vec<Sample>,
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
