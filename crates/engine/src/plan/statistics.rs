//! What the plan counts.

use super::Plan;
use super::event::TierId;
use crate::Version;

/// Counts of one tier, since the plan began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStatistics {
    /// Bytes that the tier can hold.
    pub capacity: u64,
    /// Of those, bytes that may be used now.
    pub limit: u64,
    /// Bytes set aside now.
    pub used_bytes: u64,
    /// The most bytes that were ever set aside at a time.
    pub peak_bytes: u64,
    /// Copies given up.
    pub evictions: u64,
    /// Of those, for a checkpoint that the application asked for.
    pub evicted_for_checkpoints: u64,
    /// For a flush from the tier above.
    pub evicted_for_flushes: u64,
    /// For a prefetch.
    pub evicted_for_prefetches: u64,
    /// Because less of the tier may be used than before.
    pub evicted_for_limits: u64,
    /// Of those, copies that were prefetched and not yet consumed: a blocked caller needed their room.
    pub dropped_prefetches: u64,
    /// Checkpoints that the application wrote straight to this tier.
    pub checkpoints: u64,
    /// Restores that were served from this tier.
    pub restores: u64,
}

/// Why a copy was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A checkpoint of the application needed its room.
    Checkpoint,
    /// A copy that is flushed from the tier above did.
    Flush,
    /// A copy that is fetched for a restore did.
    Prefetch,
    /// Less of the tier may be used than before.
    Limit,
}

impl Cause {
    /// What it is called on a time line.
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

/// One copy that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// Whose copy.
    pub version: Version,
    /// From where.
    pub tier: TierId,
    /// Bytes of the version.
    pub bytes: u64,
    /// Why.
    pub cause: Cause,
}

impl TierStatistics {
    pub(super) fn evicted(&mut self, cause: Cause) {
        self.evictions += 1;
        *match cause {
            Cause::Checkpoint => &mut self.evicted_for_checkpoints,
            Cause::Flush => &mut self.evicted_for_flushes,
            Cause::Prefetch => &mut self.evicted_for_prefetches,
            Cause::Limit => &mut self.evicted_for_limits,
        } += 1;
    }
}

/// How well prefetching keeps ahead: at each restore, how many of the versions that are hinted to come after it lie on
/// the fastest tier, up to the first that does not (HPDC'23 §5.4.4). Counted up to [`PrefetchDistance::MOST`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefetchDistance {
    /// Restores that were looked at.
    pub restores: u64,
    /// Their distances added up.
    pub sum: u64,
    /// At the last restore.
    pub last: u64,
    /// The largest.
    pub largest: u64,
}

impl PrefetchDistance {
    /// Where counting ends: what lies farther ahead tells nothing about the next restores.
    pub const MOST: usize = 64;

    /// The mean over all restores; 0 before the first.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.restores.max(1) as f64
    }

    fn add(&mut self, distance: u64) {
        self.restores += 1;
        self.sum += distance;
        self.last = distance;
        self.largest = self.largest.max(distance);
    }
}

/// Counts of one hop between two tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopStatistics {
    /// The tier that was read.
    pub from: TierId,
    /// The tier that was written.
    pub to: TierId,
    /// Transfers that delivered.
    pub transfers: u64,
    /// Bytes that they carried.
    pub bytes: u64,
    /// How long it was busy with them, in ns.
    pub busy_ns: u64,
    /// Transfers given up because their version was consumed or dropped.
    pub cancelled: u64,
    /// Transfers that failed.
    pub failed: u64,
}

impl HopStatistics {
    pub(super) fn carried(&mut self, bytes: u64, elapsed_ns: u64) {
        self.transfers += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.busy_ns = self.busy_ns.saturating_add(elapsed_ns);
    }
}

/// Everything that the plan counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// By tier, fastest first.
    pub tiers: Vec<TierStatistics>,
    /// The hops that carried anything, in the order of their first use.
    pub hops: Vec<HopStatistics>,
    /// How far ahead of the restores prefetching was.
    pub prefetch_distance: PrefetchDistance,
}

impl Plan {
    /// A snapshot of the counts.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let tiers = self.tiers.iter().map(|tier| TierStatistics {
            capacity: tier.table.capacity(),
            limit: tier.table.limit(),
            used_bytes: tier.table.used(),
            ..tier.statistics
        });
        Statistics {
            tiers: tiers.collect(),
            hops: self.hops.clone(),
            prefetch_distance: self.prefetch_distance,
        }
    }

    /// Looks how far prefetching is ahead of the restore of `version` that begins.
    pub(super) fn measure_distance(&mut self, version: Version) {
        let next = self.order.next(version);
        let from = next.map_or(self.order.head(), |at| at + 1);
        let following = (from..self.order.end()).filter_map(|at| self.order.at(at));
        let near = following
            .take(PrefetchDistance::MOST)
            .take_while(|&version| self.fastest_copy(version) == Some(TierId(0)));
        let distance = near.count() as u64;
        self.prefetch_distance.add(distance);
    }

    /// Keeps evictions from now on, for [`Plan::take_evictions`].
    pub fn keep_evictions(&mut self) {
        self.evictions.get_or_insert_default();
    }

    /// The evictions since the last time, if they are kept.
    pub fn take_evictions(&mut self) -> Vec<Eviction> {
        self.evictions
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(super) fn hop(&mut self, from: TierId, to: TierId) -> &mut HopStatistics {
        let index = self
            .hops
            .iter()
            .position(|h| (h.from, h.to) == (from, to))
            .unwrap_or_else(|| {
                self.hops.push(HopStatistics {
                    from,
                    to,
                    transfers: 0,
                    bytes: 0,
                    busy_ns: 0,
                    cancelled: 0,
                    failed: 0,
                });
                self.hops.len() - 1
            });
        &mut self.hops[index]
    }
}
