//! What an engine tells of itself.

use crate::lasting::Damage;
use crate::metrics::{Evictions, HopMetrics, Metrics, Stalls, TierMetrics};
use crate::plan::{Statistics, TierId};
use crate::run::{Medium, direct_metrics};
use crate::{Engine, Version};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tierflow_tier_alloc::{DeviceReport, HostReport};
use tierflow_timeline::Timeline;

impl Engine {
    /// The newest version held; with `before`, the newest of a smaller number than that. In a new engine on the
    /// directories of an earlier one: where to go on, as all ranks of a group do. Older ones may be missing unless versions
    /// became [durable in order](crate::EngineBuilder::durable_in_order).
    ///
    /// Should its restore fail with [`tierflow_store::Error::Damaged`], the one before it is
    /// `latest(Some(version))`; [`Engine::discard`] then frees the number of the damaged one.
    #[must_use]
    pub fn latest(&self, before: Option<Version>) -> Option<Version> {
        let core = self.shared.lock();
        let versions = core.plan().versions();
        versions
            .filter(|version| before.is_none_or(|before| *version < before))
            .max()
    }

    /// The versions held, in ascending order.
    #[must_use]
    pub fn versions(&self) -> Vec<Version> {
        let mut versions: Vec<_> = self.shared.lock().plan().versions().collect();
        versions.sort_unstable();
        versions
    }

    /// Now, if there is a time line to put it on.
    pub(crate) fn moment(&self) -> Option<Instant> {
        let recording = self.shared.recorder.is_recording();
        recording.then(Instant::now)
    }

    /// The calling thread copied since `begun`.
    pub(crate) fn copied(
        &self,
        name: &'static str,
        version: Version,
        bytes: u64,
        begun: Option<Instant>,
    ) {
        if let Some(begun) = begun {
            let recorder = &self.shared.recorder;
            recorder.called(name, Some(version), bytes, begun);
        }
    }

    /// Writes what happened, as far as [`EngineBuilder::timeline`](crate::EngineBuilder::timeline) keeps it, to a file that
    /// [Perfetto](https://ui.perfetto.dev) and `chrome://tracing` open: a row for each calling thread, with its copies and
    /// waits; one for each worker, with its flushes and prefetches; one for each tier's evictions. Without a time line the file
    /// holds no rows.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write_timeline(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        let timeline = self.shared.recorder.timeline();
        let timeline = timeline.unwrap_or_else(|| Timeline::new(0));
        let file = std::fs::File::create(path)?;
        timeline.write(std::io::BufWriter::new(file))
    }

    /// How the device cache came to be, if there is one.
    #[must_use]
    pub fn device_arena_report(&self) -> Option<DeviceReport> {
        self.shared
            .tiers
            .iter()
            .find_map(|tier| match &tier.medium {
                Medium::Device(arena) => Some(arena.report()),
                _ => None,
            })
    }

    /// How the host cache came to be, if there is one: what is touched and pinned, and why not more. Counting huge pages
    /// costs milliseconds.
    #[must_use]
    pub fn host_arena_report(&self) -> Option<HostReport> {
        self.shared
            .tiers
            .iter()
            .find_map(|tier| match &tier.medium {
                Medium::Host(arena) => Some(arena.report()),
                _ => None,
            })
    }

    /// What was measured so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let Statistics {
            tiers,
            hops,
            prefetch_distance,
            pruned,
        } = self.shared.lock().plan().statistics();
        let name = |tier: TierId| self.shared.tiers[tier.0].kind.name();
        Metrics {
            checkpoint: self.shared.checkpoints.read(),
            restore: self.shared.restores.read(),
            produce: self.shared.produced.read(),
            consume: self.shared.consumed.read(),
            stalls: Stalls {
                room: self.shared.recorder.room.read(),
                arrival: self.shared.recorder.arrival.read(),
                flushes: self.shared.recorder.flushes.read(),
            },
            prefetch_distance,
            pruned,
            tiers: std::iter::zip(&self.shared.tiers, tiers)
                .map(|(tier, counts)| TierMetrics {
                    name: tier.kind.name(),
                    capacity: counts.capacity,
                    limit: counts.limit,
                    used: counts.used_bytes,
                    peak: counts.peak_bytes,
                    checkpoints: counts.checkpoints,
                    restores: counts.restores,
                    damaged: counts.damaged,
                    evictions: counts.evictions,
                    dropped_prefetches: counts.dropped_prefetches,
                    evicted: Evictions {
                        for_checkpoints: counts.evicted_for_checkpoints,
                        for_flushes: counts.evicted_for_flushes,
                        for_prefetches: counts.evicted_for_prefetches,
                        for_limits: counts.evicted_for_limits,
                    },
                })
                .collect(),
            hops: hops
                .iter()
                .map(|hop| HopMetrics {
                    from: name(hop.from),
                    to: name(hop.to),
                    transfers: hop.transfers,
                    bytes: hop.bytes,
                    busy: Duration::from_nanos(hop.busy_ns),
                    cancelled: hop.cancelled,
                    failed: hop.failed,
                })
                .collect(),
            compression: self.shared.stage.as_ref().and_then(|stage| stage.metrics()),
            direct: self
                .shared
                .tiers
                .iter()
                .find_map(|tier| Some(direct_metrics(tier.medium.straight()?))),
        }
    }

    /// What the [`policy`](crate::EngineBuilder::policy) panicked with, if it did: it was asked no more from then on, and the
    /// engine has gone on with [`Residency`](crate::plan::Residency).
    #[must_use]
    pub fn policy_panic(&self) -> Option<&str> {
        self.policy_panic.get().map(String::as_str)
    }

    /// What is known to be damaged, unreadable or unusable of the storage that outlives the engine, without reading what it
    /// holds: what could not be read when the engine was built may be missing from [`versions`](Self::versions).
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let mut all = self.damage.clone();
        for tier in &self.shared.tiers {
            let Some(kept) = tier.medium.kept() else {
                continue;
            };
            all.extend(kept.vault().damage().into_iter().map(|damage| Damage {
                tier: tier.kind.name(),
                what: format!("at byte {}: {}", damage.offset, damage.what),
                path: damage.path,
                version: damage.version,
            }));
        }
        let mut kept = self.shared.tiers.iter().rev();
        let lowest = kept.find_map(|tier| tier.medium.kept());
        let unmarked = lowest.and_then(crate::run::Kept::unmarked);
        all.extend(unmarked.map(|error| Damage::unmarked("external", &error)));
        all.extend(self.nodes.weakness().map(|what| Damage {
            tier: "node-local",
            path: PathBuf::new(),
            version: None,
            what,
        }));
        all
    }

    /// What makes a version that the engine does not hold unreadable, if it was there.
    pub(crate) fn damage_of(&self, version: Version) -> Option<tierflow_store::Error> {
        let lost = self.nodes.lost(version);
        lost.or_else(|| self.shared.damage_of(version))
    }
}
