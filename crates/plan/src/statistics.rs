//! The plan's counts.

use crate::{TierId, Version};

/// Counts of one tier, since the plan began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStatistics {
    /// Bytes that the tier can hold.
    pub capacity: u64,
    /// Bytes of the capacity that may be used now.
    pub limit: u64,
    /// Bytes set aside now.
    pub used_bytes: u64,
    /// The most bytes that were ever set aside at a time.
    pub peak_bytes: u64,
    /// Replicas given up, each of one extent.
    pub evictions: u64,
    /// Replicas given up for a checkpoint that the application asked for.
    pub evicted_for_checkpoints: u64,
    /// Replicas given up for a write-back from a tier above.
    pub evicted_for_flushes: u64,
    /// Replicas given up for a prefetch.
    pub evicted_for_prefetches: u64,
    /// Replicas given up because of a lower limit.
    pub evicted_for_limits: u64,
    /// Replicas given up that were prefetched and not yet consumed.
    pub dropped_prefetches: u64,
    /// Checkpoints that the application wrote straight to this tier.
    pub checkpoints: u64,
    /// Restores of which this was the slowest tier that was read.
    pub restores: u64,
    /// Versions that could not be read from here, or differed from the bytes written.
    pub damaged: u64,
}

/// The reason for an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EvictionCause {
    /// A checkpoint of the application needed its room.
    Checkpoint,
    /// A replica that is written back from a tier above needed its room.
    Flush,
    /// A replica that is fetched for a restore needed its room.
    Prefetch,
    /// The tier's limit was lowered.
    Limit,
}

impl EvictionCause {
    /// The name of the cause on a timeline.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "evicted for a checkpoint",
            Self::Flush => "evicted for a flush",
            Self::Prefetch => "evicted for a prefetch",
            Self::Limit => "evicted beyond the limit",
        }
    }
}

/// A replica that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// The version of the replica.
    pub version: Version,
    /// The tier.
    pub tier: TierId,
    /// Bytes of the replica.
    pub bytes: u64,
    /// The reason.
    pub cause: EvictionCause,
}

/// The lead of prefetching: at each restore, the number of versions hinted or predicted to come after it that lie on the fastest
/// tier, up to the first that does not (HPDC'23 §5.4.4). Counted up to [`PrefetchDistance::MOST`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefetchDistance {
    /// Restores that were counted.
    pub restores: u64,
    /// Sum of their distances.
    pub sum: u64,
    /// Distance at the last restore.
    pub last: u64,
    /// The largest distance.
    pub largest: u64,
}

impl PrefetchDistance {
    /// The largest distance that is counted: versions farther ahead tell nothing about the next restores.
    pub const MOST: usize = 64;

    /// The mean over all restores; 0 before the first.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.restores.max(1) as f64
    }

    /// Counts one more restore.
    pub fn add(&mut self, distance: u64) {
        self.restores += 1;
        self.sum += distance;
        self.last = distance;
        self.largest = self.largest.max(distance);
    }
}

/// Counts of one hop between two tiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HopStatistics {
    /// The tier that was read; of several, the slowest.
    pub from: TierId,
    /// The tier that was written.
    pub to: TierId,
    /// Transfers that delivered.
    pub transfers: u64,
    /// Bytes that they carried.
    pub bytes: u64,
    /// ns for which the hop was busy with them.
    pub busy_ns: u64,
    /// Transfers given up because their version was consumed or dropped.
    pub cancelled: u64,
    /// Transfers that failed.
    pub failed: u64,
    /// Arrival of the last one, in ns of the driver's clock.
    pub(crate) arrived_ns: u64,
}

/// All counts of the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// By tier, fastest first.
    pub tiers: Vec<TierStatistics>,
    /// The hops that carried anything, in the order of their first use.
    pub hops: Vec<HopStatistics>,
    /// The lead of prefetching at restores.
    pub prefetch_distance: PrefetchDistance,
    /// Versions discarded by [`Event::Prune`](crate::Event::Prune).
    pub pruned: u64,
}

impl Statistics {
    /// Counts a replica that was given up. `unread`: it was prefetched and not consumed.
    pub(crate) fn evicted(&mut self, tier: TierId, cause: EvictionCause, unread: bool) {
        let tier = &mut self.tiers[tier.0];
        tier.evictions += 1;
        tier.dropped_prefetches += u64::from(unread);
        *match cause {
            EvictionCause::Checkpoint => &mut tier.evicted_for_checkpoints,
            EvictionCause::Flush => &mut tier.evicted_for_flushes,
            EvictionCause::Prefetch => &mut tier.evicted_for_prefetches,
            EvictionCause::Limit => &mut tier.evicted_for_limits,
        } += 1;
    }

    pub(crate) fn hop(&mut self, from: TierId, to: TierId) -> &mut HopStatistics {
        let hops = &mut self.hops;
        let known = hops.iter().position(|h| (h.from, h.to) == (from, to));
        let index = known.unwrap_or_else(|| {
            hops.push(HopStatistics {
                from,
                to,
                ..HopStatistics::default()
            });
            hops.len() - 1
        });
        &mut hops[index]
    }
}

impl HopStatistics {
    /// Counts an arriving transfer. The hop was busy with it since it began, or since the one before arrived.
    pub(crate) fn carried(&mut self, bytes: u64, begun_ns: u64, now_ns: u64) {
        self.transfers += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let since = begun_ns.max(self.arrived_ns);
        self.busy_ns = self.busy_ns.saturating_add(now_ns.saturating_sub(since));
        self.arrived_ns = now_ns;
    }
}
