//! What the engine measured.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One kind of blocking call, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that succeeded.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// How long they blocked the application.
    pub blocked: Duration,
}

impl Calls {
    /// Bytes/s that the application saw; 0 before the first call.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        let seconds = self.blocked.as_secs_f64();
        if seconds > 0.0 {
            self.bytes as f64 / seconds
        } else {
            0.0
        }
    }
}

/// One tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierMetrics {
    /// "device", "host" or "file".
    pub name: &'static str,
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Of those, bytes that may be used now: less where several engines share a pool.
    pub limit: u64,
    /// Bytes set aside now.
    pub used: u64,
    /// The most bytes that were ever set aside at a time.
    pub peak: u64,
    /// Checkpoints written straight to it.
    pub checkpoints: u64,
    /// Restores served from it.
    pub restores: u64,
    /// Copies given up to make room.
    pub evictions: u64,
    /// Of those, copies prefetched and not yet consumed.
    pub dropped_prefetches: u64,
}

/// One hop between two tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopMetrics {
    /// The tier that was read.
    pub from: &'static str,
    /// The tier that was written.
    pub to: &'static str,
    /// Transfers that delivered.
    pub transfers: u64,
    /// Bytes that they carried.
    pub bytes: u64,
    /// Their times added up; several run at a time.
    pub busy: Duration,
    /// Transfers given up because their version was consumed or discarded.
    pub cancelled: u64,
    /// Transfers that failed.
    pub failed: u64,
}

/// A snapshot of everything counted since the engine was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Calls of `checkpoint`.
    pub checkpoint: Calls,
    /// Calls of `restore`.
    pub restore: Calls,
    /// Checkpoints produced in place: `produce` and `commit` together.
    pub produce: Calls,
    /// Calls of `consume`: versions lent in place.
    pub consume: Calls,
    /// Fastest tier first.
    pub tiers: Vec<TierMetrics>,
    /// In the order of their first use.
    pub hops: Vec<HopMetrics>,
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copied = [("checkpoint", self.checkpoint), ("restore", self.restore)];
        let in_place = [("produce", self.produce), ("consume", self.consume)];
        let in_place = in_place.into_iter().filter(|(_, calls)| calls.count > 0);
        for (name, calls) in copied.into_iter().chain(in_place) {
            let rate = calls.throughput() / 1e9;
            writeln!(
                f,
                "{name:<10} {:>6} calls, blocked {:>9.3?}, {rate:.2} GB/s",
                calls.count, calls.blocked
            )?;
        }
        for tier in &self.tiers {
            writeln!(
                f,
                "{:<10} {:>6} restores, {} evictions, peak {} of {} bytes",
                tier.name, tier.restores, tier.evictions, tier.peak, tier.capacity
            )?;
        }
        for hop in &self.hops {
            writeln!(
                f,
                "{} → {}: {} transfers, {} bytes",
                hop.from, hop.to, hop.transfers, hop.bytes
            )?;
        }
        Ok(())
    }
}

/// [`Calls`] that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct CallCounter {
    count: AtomicU64,
    bytes: AtomicU64,
    blocked_ns: AtomicU64,
}

impl CallCounter {
    pub(crate) fn add(&self, bytes: u64, blocked: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.blocked_ns.fetch_add(
            u64::try_from(blocked.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn read(&self) -> Calls {
        Calls {
            count: self.count.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            blocked: Duration::from_nanos(self.blocked_ns.load(Ordering::Relaxed)),
        }
    }
}
