//! Reports of an engine's state.

use crate::blocked::CallKind;
use crate::deadline::Deadline;
use crate::history::Damage;
use crate::metrics::{HopMetrics, Metrics, Reports, TierMetrics};
use crate::plan::{Statistics, TierId};
use crate::run::Medium;
use crate::{Engine, Result, Version};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tierflow_plan::timeline::{Timeline, What};
use tierflow_sync::model::Ordering;

impl Engine {
    /// Returns the newest version held; with `before`, the newest with a smaller number. A new engine on the directories of an
    /// earlier one continues from this version, as do all ranks of a group. Older versions may be missing, unless versions became
    /// [durable in order](crate::EngineBuilder::durable_in_order).
    ///
    /// If restoring the version fails with [`tierflow_store::Error::Damaged`], `latest(Some(version))` is the previous version, and
    /// [`Engine::discard`] frees the number of the damaged one.
    #[must_use]
    pub fn latest(&self, before: Option<Version>) -> Option<Version> {
        let core = self.shared.lock();
        let versions = core.plan().versions();
        versions
            .filter(|version| before.is_none_or(|before| *version < before))
            .max()
    }

    /// Returns the versions held, in ascending order.
    #[must_use]
    pub fn versions(&self) -> Vec<Version> {
        let mut versions: Vec<_> = self.shared.lock().plan().versions().collect();
        versions.sort_unstable();
        versions
    }

    /// Returns true if all of `version`, and of every version that it builds upon, is on the lowest tier. If that tier is on the
    /// node, other ranks must also keep [redundancy](crate::EngineBuilder::redundancy) of these versions, if redundancy was chosen.
    /// If the tier outlives the engine, the version is then there to stay.
    #[must_use]
    pub fn is_durable(&self, version: Version) -> bool {
        let is_settled = self.shared.lock().plan().is_settled(version);
        let chain = self.to_protect(Some(version));
        is_settled && chain.into_iter().all(|version| self.is_protected(version))
    }

    /// Returns the present time on the plan's clock, if the engine keeps a time line.
    pub(crate) fn moment(&self) -> Option<u64> {
        let recording = self.shared.recorder.is_recording();
        recording.then(|| self.shared.now_ns())
    }

    /// Records in the time line that the calling thread has copied since `begun`.
    pub(crate) fn copied(
        &self,
        name: &'static str,
        version: Version,
        bytes: u64,
        begun: Option<u64>,
    ) {
        if let Some(begun) = begun {
            let what = What {
                name,
                version: Some(version),
                bytes,
                flow: None,
            };
            let now = self.shared.now_ns();
            self.shared.recorder.called(what, begun, now);
        }
    }

    /// Writes the time line of [`EngineBuilder::timeline`](crate::EngineBuilder::timeline) to a file for
    /// [Perfetto](https://ui.perfetto.dev) and `chrome://tracing`. The file has a row for each calling thread, with its copies and
    /// waits, a row for each worker, with its flushes and prefetches, and a row for each tier's evictions. Arrows lead from a
    /// transfer to the waits that it ended. Without a time line there are no rows. The file always contains the counters of
    /// [`Metrics::open_metrics`], which `tierflow doctor` reads.
    ///
    /// # Errors
    /// An error of creating or writing the file.
    pub fn write_timeline(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        let timeline = self.shared.recorder.timeline();
        let mut timeline = timeline.unwrap_or_else(|| Timeline::new(0));
        timeline.note("metrics", self.metrics().open_metrics());
        let file = std::fs::File::create(path)?;
        timeline.write(std::io::BufWriter::new(file))
    }

    /// Reports the growth of the caches in memory, and the versions that were lost with nodes. Takes milliseconds, to count huge
    /// pages.
    #[must_use]
    pub fn reports(&self) -> Reports {
        let mut reports = Reports {
            losses: self.nodes.losses(),
            ..Reports::default()
        };
        for tier in &self.shared.tiers {
            match &tier.medium {
                Medium::Device(arena) => reports.device = Some(arena.report()),
                Medium::Host(arena) => reports.host = Some(arena.report()),
                _ => {}
            }
        }
        reports
    }

    /// Returns all measurements so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let core = self.shared.lock();
        let Statistics {
            tiers,
            hops,
            prefetch_distance,
            pruned,
        } = core.plan().statistics();
        let waits = core.waits();
        drop(core);
        let blocked = &self.shared.blocked;
        let name = |tier: TierId| self.shared.tiers[tier.0].kind.name();
        Metrics {
            checkpoint: blocked.calls(CallKind::Checkpoint),
            restore: blocked.calls(CallKind::Restore),
            produce: blocked.calls(CallKind::Produce),
            consume: blocked.calls(CallKind::Consume),
            wait: blocked.calls(CallKind::Wait),
            running: Duration::from_nanos(self.shared.now_ns()),
            causes: blocked.times(),
            waits,
            prefetch_distance,
            hinted: self.shared.hinted.load(Ordering::Relaxed),
            pruned,
            progress: self.moved(),
            policy_panic: self.policy_panic.get().cloned(),
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
                    unverified: tier
                        .medium
                        .storage()
                        .map_or(0, |storage| storage.unverified()),
                    evictions: counts.evictions,
                    dropped_prefetches: counts.dropped_prefetches,
                    evicted_for_checkpoints: counts.evicted_for_checkpoints,
                    evicted_for_flushes: counts.evicted_for_flushes,
                    evicted_for_prefetches: counts.evicted_for_prefetches,
                    evicted_for_limits: counts.evicted_for_limits,
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
                .find_map(|tier| Some(tier.medium.straight()?.statistics())),
        }
    }

    /// Returns the known damage of durable storage, without reading versions. Files that could not be read when the
    /// engine was built may be missing from [`versions`](Self::versions).
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let mut all = self.damage.clone();
        for tier in &self.shared.tiers {
            let Some(durable) = tier.medium.durable() else {
                continue;
            };
            all.extend(durable.vault().damage().into_iter().map(|damage| Damage {
                tier: tier.kind.name(),
                what: format!("at byte {}: {}", damage.offset, damage.what),
                path: damage.path,
                version: damage.version,
            }));
        }
        let mut durable = self.shared.tiers.iter().rev();
        let lowest = durable.find_map(|tier| tier.medium.durable());
        let unmarked = lowest.and_then(crate::run::DurableTier::unmarked);
        all.extend(unmarked.map(|error| Damage::unmarked("external", &error)));
        all.extend(self.nodes.weakness().map(|what| Damage {
            tier: "node-local",
            path: PathBuf::new(),
            version: None,
            what,
        }));
        all
    }

    /// Returns the damage that makes a version unreadable that the engine does not hold; `None` if there is none, or no time to
    /// look for it.
    pub(crate) fn damage_of(
        &self,
        version: Version,
        deadline: Deadline<'_>,
    ) -> Result<Option<tierflow_store::Error>> {
        match self.nodes.lost(version) {
            None if deadline.at().is_some_and(|at| at <= Instant::now()) => Ok(None),
            None => self.look_until(deadline, move |shared| Ok(shared.damage_of(version))),
            lost => Ok(lost),
        }
    }
}
