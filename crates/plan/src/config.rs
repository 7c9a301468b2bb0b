//! The plan's configuration.

use crate::TierId;
use crate::policy::{Policy, Residency};

/// The fate of a version after the application has restored it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterRestore {
    /// The version stays and can be restored again, until it is dropped.
    #[default]
    Keep,
    /// The version goes, with all its replicas and its pending write-backs: adjoint codes read each version once.
    Discard,
}

/// The plan's description of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierConfig {
    /// Bytes that the tier can hold, rounded down to whole alignments.
    pub capacity: u64,
    /// Offsets and sizes are multiples of this many bytes.
    pub alignment: u64,
    /// Transfers into the tier that may be under way at a time, and transfers out of it to faster tiers; at least 1
    /// each.
    pub depth: usize,
    /// Transfers beyond `depth` begin while those under way in that direction have fewer bytes than this together: a
    /// link can carry several small ones at a time.
    pub small: u64,
    /// Bytes of one transfer between the tier and a faster one, where these are more than [`ExtentSize::most`]: a fast link
    /// has moved 16 MiB before the end of the transfer before is known, and reported.
    pub part: u64,
    /// Every version is written to this tier as soon as a link is free for it: the tier outlives the application, or feeds one that
    /// does. Bytes on the fastest tier wait for the tier between while that takes some.
    pub eager: bool,
    /// The tier keeps versions under their names: they come and go as a whole, whatever they are cut into elsewhere.
    pub whole: bool,
    /// The tier takes only what lies on the tier above, as external storage does to which an agent brings what lies on the node.
    /// Versions that are larger than the tier above are tried all the same.
    pub from_above: bool,
    /// Both directions share the link into the tier, so write-backs into it wait for bytes that come up over the link and are needed before them, unless a
    /// checkpoint waits or room is short. Nothing is written to the lowest tier while a caller reads from it.
    pub shared: bool,
}

impl TierConfig {
    /// Memory of `capacity` bytes, aligned to 4 KiB.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            alignment: 4096,
            depth: 1,
            small: 0,
            part: 0,
            eager: false,
            whole: false,
            from_above: false,
            shared: false,
        }
    }

    /// Returns true for memory: the tier keeps no names, and shares no link.
    pub(crate) fn is_memory(&self) -> bool {
        !self.whole && !self.shared
    }
}

/// The sizes of extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentSize {
    /// Bytes of the smallest extent that is cut off: each extent costs a copy of its own.
    pub least: u64,
    /// Bytes of one transfer, so that those behind it need not wait long; at least twice `least`.
    pub most: u64,
}

/// The least number of extents of the least size that a tier holds: with fewer, arriving bytes would often wait for leaving ones.
const EXTENTS_IN_TIER: u64 = 32;

impl ExtentSize {
    /// Returns the default sizes, or as much smaller ones as it takes for each tier above the lowest to hold 32 extents of the least size, as multiples of the
    /// largest alignment. Tiers that are [`whole`](TierConfig::whole) do not count, as no version is cut there; nor do limits that are set later.
    #[must_use]
    pub fn for_tiers(tiers: &[TierConfig]) -> Self {
        let Self { least, most } = Self::default();
        let above = tiers.iter().rev().skip(1).filter(|tier| !tier.whole);
        let shares = above.map(|tier| tier.capacity / EXTENTS_IN_TIER);
        let unit = tiers.iter().map(|tier| tier.alignment).max();
        let own = shares.fold(least, u64::min).max(1);
        let own = own.next_multiple_of(unit.unwrap_or(1).clamp(1, least));
        Self {
            least: own,
            most: own * (most / least),
        }
    }
}

impl Default for ExtentSize {
    /// 4 MiB and 16 MiB: copies of these sizes reach the bandwidth of a disk and of the link to the host.
    fn default() -> Self {
        Self {
            least: 4 << 20,
            most: 16 << 20,
        }
    }
}

/// The most bytes by which an encoded checkpoint is larger than the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes added to every checkpoint.
    pub fixed: u64,
    /// Bytes added for each begun MiB of the checkpoint.
    pub each: u64,
}

impl Overhead {
    /// The same overhead for all sizes.
    #[must_use]
    pub const fn fixed(bytes: u64) -> Self {
        Self {
            fixed: bytes,
            each: 0,
        }
    }

    /// The most bytes that a checkpoint of `bytes` bytes can have encoded.
    #[must_use]
    pub const fn most(self, bytes: u64) -> u64 {
        let more = self.each.saturating_mul(bytes.div_ceil(1 << 20));
        bytes.saturating_add(self.fixed).saturating_add(more)
    }
}

/// The encoding of versions on lower tiers: as differences, or compressed. A compressed version is a difference to
/// nothing, in a chain of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differences {
    /// The lowest tier on which versions are not encoded: the tiers below hold differences. If it is the lowest tier of
    /// all, no tier does; [`TierId::FASTEST`] encodes versions where they leave the first tier.
    pub below: TierId,
    /// The most bytes by which a difference is larger than its checkpoint.
    pub overhead: Overhead,
    /// The most differences in a version's chain; at least 1. If it is larger than 1, each difference builds upon the
    /// one that was asked for before it.
    pub longest: u32,
    /// True if a version builds upon those of smaller numbers only, as tiers that outlive the engine need it.
    pub ascending: bool,
}

impl Differences {
    /// Returns true if `tier` holds versions as differences.
    pub(crate) fn lie_on(&self, tier: TierId) -> bool {
        tier > self.below
    }
}

/// The plan's configuration.
#[derive(Debug)]
pub struct PlanConfig {
    /// The tiers from the fastest to the slowest; at least one.
    pub tiers: Vec<TierConfig>,
    /// The fate of restored versions.
    pub after_restore: AfterRestore,
    /// Orders the use of versions.
    pub policy: Box<dyn Policy>,
    /// The sizes of extents.
    pub extents: ExtentSize,
    /// The encoding of versions on lower tiers, if there is one. Encoded versions are not cut, on any tier.
    pub differences: Option<Differences>,
}

impl PlanConfig {
    /// Takes these tiers, with the engine's defaults and the extents that [fit](ExtentSize::for_tiers) the tiers.
    #[must_use]
    pub fn new(tiers: Vec<TierConfig>) -> Self {
        Self {
            extents: ExtentSize::for_tiers(&tiers),
            tiers,
            after_restore: AfterRestore::default(),
            policy: Box::new(Residency),
            differences: None,
        }
    }
}

/// Why a configuration makes no plan.
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
        /// The tier's bytes.
        capacity: u64,
        /// The tier's alignment in bytes.
        alignment: u64,
    },
    /// `Differences::below` names a tier that does not exist.
    #[error("differences are to be made below tier {tier}, and there are {tiers}, counted from 0")]
    NoSuchTier {
        /// The tier's position.
        tier: usize,
        /// Number of tiers.
        tiers: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(tiers: &[TierConfig]) -> [u64; 2] {
        let ExtentSize { least, most } = ExtentSize::for_tiers(tiers);
        [least, most]
    }

    #[test]
    fn small_tiers_above_the_lowest_have_small_extents() {
        const MIB: u64 = 1 << 20;
        let tier = TierConfig::new;
        let default = [4 * MIB, 16 * MIB];
        assert_eq!(sizes(&[]), default);
        assert_eq!(sizes(&[tier(MIB)]), default);
        assert_eq!(sizes(&[tier(128 * MIB), tier(MIB)]), default);
        let half = [2 * MIB, 8 * MIB];
        assert_eq!(sizes(&[tier(64 * MIB), tier(u64::MAX)]), half);
        let uneven = sizes(&[tier(u64::MAX), tier(64 * MIB - 1), tier(MIB)]);
        assert_eq!(uneven, half, "multiples of the alignment");
        let whole = TierConfig {
            whole: true,
            ..tier(MIB)
        };
        assert_eq!(sizes(&[tier(64 * MIB), whole, tier(u64::MAX)]), half);
        assert_eq!(sizes(&[tier(0), tier(MIB)]), [4096, 4 * 4096]);
    }
}
