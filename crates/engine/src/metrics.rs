//! Measurements of the engine; the book's chapter *Seeing what the cache does* is the guide to them.

use crate::plan::PrefetchDistance;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sums over one kind of blocking call.
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
    /// Versions that could not be read from it, or were not what had been written; they were read from other tiers, if others
    /// had them.
    pub damaged: u64,
    /// Copies given up.
    pub evictions: u64,
    /// Of those, copies prefetched and not yet consumed: a blocked caller needed their room.
    pub dropped_prefetches: u64,
    /// Of those, by cause.
    pub evicted: Evictions,
}

/// Copies that one tier gave up, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evictions {
    /// To make room for a checkpoint of the application.
    pub for_checkpoints: u64,
    /// To make room for a flush from the tier above.
    pub for_flushes: u64,
    /// To make room for a prefetch, or for a version to be read in place.
    pub for_prefetches: u64,
    /// Because less of the tier may be used than before.
    pub for_limits: u64,
}

/// What callers waited for, other than for their own bytes to be copied. The time is part of the calls' `blocked`, but for
/// `flushes`, which [`Engine::wait`](crate::Engine::wait) is about. Of each: how many calls had to wait, the bytes that they were about where that is known
/// beforehand, and how long they waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Checkpoints, for room.
    pub room: Calls,
    /// Restores, for a copy on its way up.
    pub arrival: Calls,
    /// Waits, until everything lies on the lowest tier.
    pub flushes: Calls,
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
    /// How long it was busy with them: bytes over it are what the hop carries.
    pub busy: Duration,
    /// Transfers given up because their version was consumed or discarded.
    pub cancelled: u64,
    /// Transfers that failed.
    pub failed: u64,
}

/// What came of [`EngineBuilder::compress`](crate::EngineBuilder::compress). Where differences are compressed, those are counted
/// instead of checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressionMetrics {
    /// True while compression is on. It is off where it does not shorten the way to the tiers below.
    pub is_on: bool,
    /// Bytes of checkpoints that were compressed.
    pub compressed: u64,
    /// Bytes that they became.
    pub stored: u64,
    /// Bytes of checkpoints that went as they are.
    pub as_they_are: u64,
    /// Bytes/s that it takes in; 0 if it was not measured.
    pub stage_rate: u64,
    /// Bytes/s that the way down moves; 0 if it was not measured.
    pub link_rate: u64,
    /// How often it was turned on or off.
    pub switches: u64,
}

/// Which way copies took between device memory and the scratch file: what came of
/// [`EngineBuilder::direct_io`](crate::EngineBuilder::direct_io).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectMetrics {
    /// How the direct way goes, of an engine that may take it: "nvidia-fs", "P2PDMA" or "compatibility mode".
    pub mode: Option<&'static str>,
    /// Why all go through pinned buffers, where they do: there is no direct way, or it failed.
    pub why_staged: Option<String>,
    /// To the file.
    pub down: WayBytes,
    /// From the file.
    pub up: WayBytes,
    /// Direct copies that failed. Their bytes went through pinned buffers.
    pub failed: u64,
}

/// Bytes by the way that they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WayBytes {
    /// Through pinned buffers.
    pub staged: u64,
    /// Straight.
    pub direct: u64,
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
    /// Reasons for which calls waited.
    pub stalls: Stalls,
    /// How far ahead of the restores prefetching was, in versions.
    pub prefetch_distance: PrefetchDistance,
    /// Versions discarded because the [retention](crate::EngineBuilder::retention) does not keep them.
    pub pruned: u64,
    /// Fastest tier first.
    pub tiers: Vec<TierMetrics>,
    /// In the order of their first use.
    pub hops: Vec<HopMetrics>,
    /// Of an engine that compresses.
    pub compression: Option<CompressionMetrics>,
    /// Of an engine that looks for a way straight between device memory and the scratch file.
    pub direct: Option<DirectMetrics>,
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
        let stalls = [
            ("for room", self.stalls.room),
            ("for a copy on its way up", self.stalls.arrival),
            ("for flushes", self.stalls.flushes),
        ];
        for (what, calls) in stalls.into_iter().filter(|(_, calls)| calls.count > 0) {
            writeln!(
                f,
                "waited     {:>6} times {what}, {:>9.3?}",
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
            let way = match (&direct.why_staged, direct.mode) {
                (Some(why), _) => why,
                (None, mode) => mode.unwrap_or_default(),
            };
            writeln!(
                f,
                "straight between device and file: {} bytes down, {} up; through pinned buffers: {} down, {} up ({way})",
                direct.down.direct, direct.up.direct, direct.down.staged, direct.up.staged
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
