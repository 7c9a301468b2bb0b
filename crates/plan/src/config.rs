//! The plan's configuration.

use crate::TierId;
use crate::policy::{Policy, Residency};

/// What becomes of a version once the application has restored it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterRestore {
    /// It stays and can be restored again, until it is dropped.
    #[default]
    Keep,
    /// It goes, with all its replicas and its pending write-backs: adjoint codes read each version once.
    Discard,
}

/// One tier as the plan sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierConfig {
    /// Bytes that it can hold, counted in whole alignments.
    pub capacity: u64,
    /// Offsets and sizes are multiples of this many bytes.
    pub alignment: u64,
    /// How many transfers into it may be under way at a time, and how many out of it to faster tiers; at least 1 each.
    pub depth: usize,
    /// Beyond that depth, transfers are begun while all that are under way that way are of fewer bytes than this together: small
    /// ones can be carried several at a time.
    pub small: u64,
    /// Every version is written to it as soon as possible: it outlives the application, or is to take what does.
    pub eager: bool,
    /// It keeps versions under their names: they come and go as a whole, whatever they are cut into elsewhere.
    pub whole: bool,
    /// Both directions share its bandwidth, so nothing is written while a caller waits for what is read.
    pub shared: bool,
}

impl TierConfig {
    /// Memory of so many bytes, in units of 4 KiB.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            alignment: 4096,
            depth: 1,
            small: 0,
            eager: false,
            whole: false,
            shared: false,
        }
    }
}

/// How versions are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentSize {
    /// Bytes below which no extent is cut off another: each costs a copy of its own.
    pub least: u64,
    /// Bytes that one transfer takes at a time, so that those behind it need not wait long; at least twice `least`.
    pub most: u64,
}

impl Default for ExtentSize {
    /// 4 MiB and 16 MiB: where copies of these sizes reach the bandwidth of a disk and of the way to the host.
    fn default() -> Self {
        Self {
            least: 4 << 20,
            most: 16 << 20,
        }
    }
}

/// The most bytes by which what is made of a checkpoint is larger than it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overhead {
    /// Whatever the checkpoint's size.
    pub fixed: u64,
    /// For each MiB of it that is begun.
    pub each: u64,
}

impl Overhead {
    /// The same for all sizes.
    #[must_use]
    pub const fn fixed(bytes: u64) -> Self {
        Self {
            fixed: bytes,
            each: 0,
        }
    }

    /// The most bytes that are made of so many.
    #[must_use]
    pub const fn most(self, bytes: u64) -> u64 {
        let more = self.each.saturating_mul(bytes.div_ceil(1 << 20));
        bytes.saturating_add(self.fixed).saturating_add(more)
    }
}

/// That versions become differences on their way down, or are compressed there: differences to nothing, in chains of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differences {
    /// The lowest tier on which versions lie as they are: on those below, they lie as differences. Of the lowest tier of all,
    /// none does. [`TierId::FASTEST`] makes them where versions leave the first one.
    pub below: TierId,
    /// The most bytes by which a difference is larger than its checkpoint.
    pub overhead: Overhead,
    /// The most differences that a version is made of; at least 1. Where it is more, each builds upon the one that was asked for
    /// before it.
    pub longest: u32,
    /// Whether a version builds upon those of smaller numbers only, as tiers that outlive the engine want it.
    pub ascending: bool,
}

impl Differences {
    /// Whether versions lie as differences on `tier`.
    pub(crate) fn lie_on(&self, tier: TierId) -> bool {
        tier > self.below
    }
}

/// Everything that the plan needs to know at the start.
#[derive(Debug)]
pub struct PlanConfig {
    /// From the fastest to the slowest; at least one.
    pub tiers: Vec<TierConfig>,
    /// What becomes of restored versions.
    pub after_restore: AfterRestore,
    /// Which versions are used first.
    pub policy: Box<dyn Policy>,
    /// How versions are cut.
    pub extents: ExtentSize,
    /// Whether lower tiers hold versions as differences: these are then not cut, on any tier.
    pub differences: Option<Differences>,
}

impl PlanConfig {
    /// These tiers, with the engine's defaults.
    #[must_use]
    pub fn new(tiers: Vec<TierConfig>) -> Self {
        Self {
            tiers,
            after_restore: AfterRestore::default(),
            policy: Box::new(Residency),
            extents: ExtentSize::default(),
            differences: None,
        }
    }
}

/// A plan cannot be made of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no tier.
    #[error("a plan needs at least one tier")]
    NoTiers,
    /// A tier does not hold one unit of its alignment.
    #[error("tier {tier} has {capacity} bytes, less than its alignment of {alignment}")]
    TooSmall {
        /// The tier's position.
        tier: usize,
        /// Its bytes.
        capacity: u64,
        /// Its alignment.
        alignment: u64,
    },
    /// Differences are to be made below a tier that there is not.
    #[error("differences are to be made below tier {tier}, and there are {tiers}, counted from 0")]
    NoSuchTier {
        /// The tier's position.
        tier: usize,
        /// How many there are.
        tiers: usize,
    },
}
