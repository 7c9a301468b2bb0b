//! Policies order the use of versions; all else follows from that order.

mod fifo;
mod lru;
mod residency;
mod score;

pub use fifo::Fifo;
pub use lru::Lru;
pub use residency::Residency;
pub use score::Score;

use crate::Version;

/// What a policy may know of a version. Times are the plan's own: one tick an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Its number.
    pub version: Version,
    /// Bytes.
    pub bytes: u64,
    /// Where its next reading stands in the restore order, if it is hinted: sequence numbers, the smallest is the next.
    pub hinted: Option<u64>,
    /// When it was taken in.
    pub written: u64,
    /// When it was read last.
    pub read: Option<u64>,
    /// How often it was read.
    pub reads: u32,
    /// Whether versions were lately read again so soon that the fastest tier can have kept them.
    pub returns_soon: bool,
}

/// Where a version stands in the order of use: the classes one after the other, in each by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// It is known when it will be used: the smallest number first.
    Known(u64),
    /// It was used a short while ago and is expected again: the largest number first.
    Recent(u64),
    /// It waits for its first use: the largest number first, as in a history that is read backwards, until the application
    /// is seen to read from the other end; then the smallest first.
    Waiting(u64),
    /// It was used, and is used again after all others: the smallest number first.
    Passed(u64),
}

/// Orders the use of versions. What is used first belongs on the fastest tier, and what is used last is given up first.
///
/// A policy is pure. It is asked again whenever a version's [`Usage`] has changed; numbers up to 2⁶² are
/// distinguished.
pub trait Policy: std::fmt::Debug + Send {
    /// Where a version stands.
    fn standing(&self, usage: &Usage) -> Standing;

    /// Whether room is kept for hinted versions that are not written yet, where the order of use has them.
    fn follows_hints(&self) -> bool {
        true
    }

    /// What chooses the neighbours that give way, where every version is to lie in one run of each tier, as in the papers'
    /// caches (HPDC'23, §4.2). `None`, unless a policy says otherwise: versions are cut into extents, and no neighbours are
    /// needed. With windows, every version is also written to every tier as soon as can be, as there. Asked for once, when
    /// a plan is made.
    fn windows(&self) -> Option<Box<dyn tierflow_evict::Policy + Send>> {
        None
    }

    /// The name by which the policy is chosen and reported.
    fn name(&self) -> &'static str;
}
