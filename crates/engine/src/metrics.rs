//! Measurements of an engine. The book's chapter *Seeing what the cache does* explains them.

use crate::Version;
use crate::blocked::{Calls, Cause, Times};
use crate::builder::UNLIMITED;
use crate::plan::PrefetchDistance;
use std::fmt;
use std::time::Duration;
use tierflow_store::LostVersion;
use tierflow_tier_alloc::{DeviceReport, HostReport};
use tierflow_transfer::StraightStatistics;

/// Metrics of a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierMetrics {
    /// The kind of the tier: "device", "peers", "host", "file", "node-local" or "external".
    pub name: &'static str,
    /// Bytes that the tier can hold; 2^60 if only the file system, or the storage's owner, limits it.
    pub capacity: u64,
    /// Bytes of the capacity that may be used now: fewer if several engines share a pool.
    pub limit: u64,
    /// Bytes set aside now.
    pub used: u64,
    /// Largest number of bytes that were set aside at a time.
    pub peak: u64,
    /// Checkpoints written directly to this tier.
    pub checkpoints: u64,
    /// Restores served from this tier.
    pub restores: u64,
    /// Versions that could not be read from this tier, or were damaged there. If other tiers had a copy, restores read that copy.
    pub damaged: u64,
    /// Bytes that were read from scratch storage and have no checksum, as a device wrote them directly to storage. 0 on tiers that
    /// outlive the engine, and without [checksums](crate::Tier::checksums).
    pub unverified: u64,
    /// Copies given up.
    pub evictions: u64,
    /// Evicted copies that were prefetched and not yet consumed: a blocked caller needed their memory.
    pub dropped_prefetches: u64,
    /// Copies evicted for a checkpoint of the application.
    pub evicted_for_checkpoints: u64,
    /// Copies evicted for a flush from the tier above.
    pub evicted_for_flushes: u64,
    /// Copies evicted for a prefetch, or for a version to be read in place.
    pub evicted_for_prefetches: u64,
    /// Copies evicted because the tier's limit fell.
    pub evicted_for_limits: u64,
}

/// Waits of callers with the same cause that transfers between the same two tiers ended, or that other calls ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// [`Cause::Room`], [`Cause::Arrival`] or [`Cause::Flushes`].
    pub cause: Cause,
    /// The tier that the transfers read; empty if other calls ended the waits, such as one that discarded a version.
    pub from: &'static str,
    /// The tier that the transfers wrote; empty if other calls ended the waits.
    pub to: &'static str,
    /// Number of these waits.
    pub count: u64,
    /// Number of waits whose transfers the plan asked for before the calls. For arrivals, these transfers are prefetches.
    pub ahead: u64,
    /// Sum of the waits' times. If transfers ended the waits, this is the sum of `before`, `queued` and `moving`.
    pub total: Duration,
    /// Time before the plan asked for the transfers.
    pub before: Duration,
    /// Time for which the transfers then waited for a worker, behind other transfers.
    pub queued: Duration,
    /// Time for which the transfers then moved bytes.
    pub moving: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// The version of the call with the longest wait; `None` if the call waited for all versions.
    pub waiting: Option<Version>,
    /// The version whose transfer ended the longest wait; `None` if another call ended it.
    pub transferred: Option<Version>,
}

/// Transfers between two tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopMetrics {
    /// The tier that was read.
    pub from: &'static str,
    /// The tier that was written.
    pub to: &'static str,
    /// Transfers that succeeded.
    pub transfers: u64,
    /// Bytes of these transfers.
    pub bytes: u64,
    /// Time in which the hop was busy with these transfers. Bytes divided by this time are the hop's throughput.
    pub busy: Duration,
    /// Transfers given up because their version was consumed or discarded.
    pub cancelled: u64,
    /// Transfers that failed.
    pub failed: u64,
}

/// Results of [`EngineBuilder::compress`](crate::EngineBuilder::compress). If differences are compressed, the metrics count
/// differences instead of checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressionMetrics {
    /// True if compression is on. The engine turns it off if it does not raise the throughput to the tiers below.
    pub is_on: bool,
    /// Bytes of checkpoints that were compressed.
    pub compressed: u64,
    /// Bytes of their compressed forms.
    pub stored: u64,
    /// Bytes of checkpoints that were stored uncompressed.
    pub as_they_are: u64,
    /// Bytes per second that compression reads; 0 before the first measurement.
    pub stage_rate: u64,
    /// Bytes per second that the links to the tiers below carry; 0 before the first measurement.
    pub link_rate: u64,
    /// Number of times that compression was turned on or off.
    pub switches: u64,
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
    /// Waits until versions are durable: calls of `wait`, `wait_version`, `protect` and `settle`, and waits for a suspension.
    pub wait: Calls,
    /// Time since the engine was built.
    pub running: Duration,
    /// The blocked time of all calls by [`Cause`], in the order of [`Cause::ALL`]: see [`Metrics::times`].
    pub causes: [Times; Cause::ALL.len()],
    /// Waits by the transfers that ended them, in the order of their first end.
    pub waits: Vec<Waits>,
    /// Number of versions by which prefetching was ahead of the restores.
    pub prefetch_distance: PrefetchDistance,
    /// Versions that hints named, counted once per hint.
    pub hinted: u64,
    /// Versions discarded because the [retention](crate::EngineBuilder::retention) does not keep them.
    pub pruned: u64,
    /// A number that grows with the bytes that reach tiers that outlive the engine, and with the bytes that other ranks
    /// [protect](crate::EngineBuilder::redundancy). While the number grows, nothing hangs.
    pub progress: u64,
    /// The message of the [`policy`](crate::EngineBuilder::policy)'s panic, if it panicked. The engine then stopped
    /// asking it and went on with [`Residency`](crate::plan::Residency).
    pub policy_panic: Option<String>,
    /// Tiers, fastest first.
    pub tiers: Vec<TierMetrics>,
    /// Hops, in the order of their first use.
    pub hops: Vec<HopMetrics>,
    /// Results of compression; `None` if the engine does not compress.
    pub compression: Option<CompressionMetrics>,
    /// Statistics of direct copies between device memory and the scratch file; `None` if the engine does not look for a direct
    /// path.
    pub direct: Option<StraightStatistics>,
}

/// Growth of the caches in memory, and losses with nodes: see [`Engine::reports`](crate::Engine::reports).
#[derive(Debug, Clone, Default)]
pub struct Reports {
    /// The device cache, if there is one.
    pub device: Option<DeviceReport>,
    /// The host cache, if there is one: the bytes touched and pinned, and the reason why not more.
    pub host: Option<HostReport>,
    /// The versions that were [protected](crate::EngineBuilder::redundancy) but are lost, as more nodes were lost than the
    /// redundancy tolerates, and the ranks whose bytes are lost. [`Engine::damage`](crate::Engine::damage) reports them, too.
    pub losses: Vec<LostVersion>,
}

impl Metrics {
    /// Returns the times for which `cause` blocked calls.
    #[must_use]
    pub fn times(&self, cause: Cause) -> Times {
        self.causes[cause as usize]
    }

    /// Returns the time for which all calls blocked the application. Times of several threads add up.
    #[must_use]
    pub fn blocked(&self) -> Duration {
        let calls = [
            self.checkpoint,
            self.restore,
            self.produce,
            self.consume,
            self.wait,
        ];
        calls.iter().map(|calls| calls.blocked).sum()
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copied = [("checkpoint", self.checkpoint), ("restore", self.restore)];
        let in_place = [
            ("produce", self.produce),
            ("consume", self.consume),
            ("wait", self.wait),
        ];
        let in_place = in_place.into_iter().filter(|(_, calls)| calls.count > 0);
        for (name, calls) in copied.into_iter().chain(in_place) {
            let rate = calls.throughput() / 1e9;
            writeln!(
                f,
                "{name:<10} {:>6} calls, blocked {:>9.3?}, {rate:.2} GB/s",
                calls.count, calls.blocked
            )?;
        }
        for cause in Cause::ALL {
            let times = self.times(cause);
            if times.count > 0 && cause.is_wait() {
                let (name, total) = (cause.name(), times.total);
                writeln!(
                    f,
                    "{name:<19} {:>6} times, {total:>9.3?}, at most {:.3?}",
                    times.count, times.worst
                )?;
            }
        }
        for tier in &self.tiers {
            write!(
                f,
                "{:<10} {:>6} restores, {} evictions, peak {} ",
                tier.name, tier.restores, tier.evictions, tier.peak
            )?;
            match tier.capacity < UNLIMITED {
                true => writeln!(f, "of {} bytes", tier.capacity)?,
                false => writeln!(f, "bytes, no limit")?,
            }
        }
        for hop in &self.hops {
            writeln!(
                f,
                "{} → {}: {} transfers, {} bytes",
                hop.from, hop.to, hop.transfers, hop.bytes
            )?;
        }
        if self.pruned > 0 {
            writeln!(f, "pruned     {:>6} versions", self.pruned)?;
        }
        if let Some(compression) = &self.compression {
            let CompressionMetrics {
                compressed, stored, ..
            } = *compression;
            writeln!(
                f,
                "compression is {}: {:.2} times smaller, {} bytes; {} bytes as they are",
                if compression.is_on { "on" } else { "off" },
                compressed as f64 / stored.max(1) as f64,
                compressed,
                compression.as_they_are
            )?;
        }
        if let Some(direct) = &self.direct {
            let way = match (&direct.closed, direct.mode) {
                (Some(why), _) => why,
                (None, mode) => mode.unwrap_or_default(),
            };
            writeln!(
                f,
                "straight between device and file: {} bytes down, {} up; through pinned buffers: {} down, {} up ({way})",
                direct.down.direct, direct.up.direct, direct.down.buffered, direct.up.buffered
            )?;
        }
        Ok(())
    }
}
