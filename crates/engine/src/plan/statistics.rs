//! What the plan counts.

use super::Plan;
use super::event::TierId;

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
    /// Copies given up to make room.
    pub evictions: u64,
    /// Of those, copies that were prefetched and not yet consumed: a blocked caller needed their room.
    pub dropped_prefetches: u64,
    /// Checkpoints that the application wrote straight to this tier.
    pub checkpoints: u64,
    /// Restores that were served from this tier.
    pub restores: u64,
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
    /// The time that they took, added up, in ns; several run at a time.
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
        }
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
