//! Policies order the use of versions; all else follows from that order.

use crate::Version;
use crate::reuse::Reuse;

/// The facts about a version that a policy may know. Times are the plan's own: one tick per event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The version.
    pub version: Version,
    /// Bytes of its checkpoint.
    pub bytes: u64,
    /// Sequence number of its next reading in the restore order, if it is hinted; the smallest is read next.
    pub hinted: Option<u64>,
    /// Tick at which it was taken in.
    pub written: u64,
    /// Tick at which it was read last.
    pub read: Option<u64>,
    /// Number of its readings.
    pub reads: u32,
    /// The order in which versions without hints were expected to be read when this one was last written or read.
    pub reuse: Reuse,
}

/// A version's standing in the order of use: the classes one after the other, in each by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// The time of its next use is known: the smallest number first.
    Known(u64),
    /// Used a short while ago and expected again: the largest number first.
    Recent(u64),
    /// Waits for its first use: the largest number first, as in a history that is read backwards, until the application
    /// reads from the other end; then the smallest first. Versions that a program passes by come last: numbers are compared with the tick at which the
    /// version that it read last was written ([`Usage::written`]).
    Waiting(u64),
    /// Used, and used again after all others: the smallest number first.
    Passed(u64),
}

/// Orders the use of versions. Versions used first belong on the fastest tier; those used last are given up first.
///
/// A policy is pure. The plan asks again whenever a version's [`Usage`] has changed. Numbers up to 2⁶² are
/// distinguished.
pub trait Policy: std::fmt::Debug + Send + Sync {
    /// Returns a version's standing: best one of its own. Versions with equal ones get places beside each other, which may
    /// lie among those of the standings next to theirs.
    fn standing(&self, usage: &Usage) -> Standing;

    /// Returns true if the order of use keeps room for hinted versions that are not written yet.
    fn follows_hints(&self) -> bool {
        true
    }

    /// Returns true if readings that the application does not hint may be predicted from those so far. Predicted
    /// versions have the places of hinted ones.
    fn predicts(&self) -> bool {
        false
    }

    /// Returns the policy that chooses the neighbours to evict, if every version is to lie in one run of each tier, as
    /// in the papers' caches (HPDC'23, §4.2). `None` by default: versions are cut into extents, and no neighbours are
    /// needed. With windows, every version is also written to every tier as soon as possible, as in the papers. Called
    /// once, when a plan is made.
    fn windows(&self) -> Option<Box<dyn tierflow_evict::Policy + Send>> {
        None
    }

    /// The name by which the policy is chosen and reported.
    fn name(&self) -> &'static str;
}

/// The default: hinted versions in the order of the hints, then predicted ones, then the others in the [order](Reuse) that cost least lately.
#[derive(Debug, Clone, Copy, Default)]
pub struct Residency;

impl Policy for Residency {
    fn standing(&self, usage: &Usage) -> Standing {
        match (usage.hinted, usage.reuse, usage.read) {
            (Some(sequence), _, _) => Standing::Known(sequence),
            (None, Reuse::Recency, read) => Standing::Recent(read.unwrap_or(usage.written)),
            (None, Reuse::Age, _) => Standing::Recent(usage.written),
            (None, Reuse::Scan, None) => Standing::Waiting(usage.written),
            (None, Reuse::Scan, Some(read)) => Standing::Passed(read),
        }
    }

    fn predicts(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "residency"
    }
}

/// HPDC'23's gap-aware window scorer on contiguous caches (§4.2): the baseline that residency is measured against.
///
/// Every version lies in one run of each tier. Room is made by evicting the window of neighbours that waits least until
/// it can be evicted and is read farthest ahead ([`tierflow_evict::Score`]). A copy can be evicted once it is flushed, or, if
/// it was fetched for a hint, once it is read; the waits are foreseen from the bytes that are flushed and read before
/// (`predict_evictable`). A window that was chosen is waited for. Only a caller that waits for room itself does not wait for
/// reads, as it cannot read meanwhile. Every version is written down as soon as possible. A version is fetched for a hint alone, into the
/// fastest tier as soon as a window is free there. A choice is O(N) in the copies of the tier, and a sort of those that are still to be flushed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score;

impl Policy for Score {
    fn standing(&self, usage: &Usage) -> Standing {
        Residency.standing(usage)
    }

    fn windows(&self) -> Option<Box<dyn tierflow_evict::Policy + Send>> {
        Some(Box::new(tierflow_evict::Score))
    }

    fn name(&self) -> &'static str {
        "score"
    }
}

/// Least recently used, written or read, goes first; hints do not count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lru;

impl Policy for Lru {
    fn standing(&self, usage: &Usage) -> Standing {
        Standing::Recent(usage.read.unwrap_or(usage.written))
    }

    fn follows_hints(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "lru"
    }
}

/// First in, first out; hints do not count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn standing(&self, usage: &Usage) -> Standing {
        Standing::Recent(usage.written)
    }

    fn follows_hints(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "fifo"
    }
}
