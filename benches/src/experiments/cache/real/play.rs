//! A simulator's workload, played on the engine: the same calls, with real bytes and real pauses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tierflow_device::{Memory, Stream};
use tierflow_engine::{Engine, Flush, HopMetrics, Metrics, Region, RegionMut, Version};
use tierflow_evict::{Candidates, Conduct, Policy, Window};
use tierflow_sim::{Op, Workload};
use tierflow_tier_alloc::HostOptions;

use super::{Machine, Way, scratch};

/// What the application saw.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// Time in checkpoints, restores and waits for flushes.
    pub(super) checkpoints: Duration,
    pub(super) restores: Duration,
    pub(super) waited: Duration,
    pub(super) each_restore: Vec<Restored>,
    /// The mean prefetch distance.
    pub(super) distance: f64,
    /// By tier: its name, and restores that were served from it.
    pub(super) served: Vec<(&'static str, u64)>,
    /// What the storage carried, in bytes/s of the transfers' own time.
    pub(super) storage: StorageRates,
}

/// Bytes/s to storage and back; none where nothing was carried.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StorageRates {
    pub(super) down: Option<f64>,
    pub(super) up: Option<f64>,
}

/// One restore.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restored {
    pub(super) bytes: u64,
    pub(super) took: Duration,
    /// Of the next hinted versions, how many were on the fastest tier when it began.
    pub(super) distance: u64,
}

impl StorageRates {
    fn of(metrics: &Metrics) -> Self {
        let lowest = metrics.tiers.last().map_or("", |tier| tier.name);
        let rate = |hops: &dyn Fn(&HopMetrics) -> bool| {
            let hops = metrics.hops.iter().filter(|hop| hops(hop));
            let (bytes, busy) = hops.fold((0, Duration::ZERO), |(bytes, busy), hop| {
                (bytes + hop.bytes, busy + hop.busy)
            });
            (bytes > 0).then(|| bytes as f64 / busy.as_secs_f64().max(1e-9))
        };
        Self {
            down: rate(&|hop| hop.to == lowest),
            up: rate(&|hop| hop.from == lowest),
        }
    }
}

impl Played {
    pub(super) fn blocking(&self) -> Duration {
        self.checkpoints + self.restores
    }
}

/// Plays `workload` on a new engine.
pub(super) fn play(machine: &Machine, way: Way, workload: &Workload) -> Result<Played> {
    let engine = build(machine, way, workload)?;
    let mut player = Player::new(machine, &engine, workload)?;
    for op in &workload.ops {
        player.play(op)?;
    }
    let mut played = player.played;
    let metrics = engine.metrics();
    played.distance = metrics.prefetch_distance.mean();
    let served = metrics.tiers.iter().map(|tier| (tier.name, tier.restores));
    played.served = served.collect();
    played.storage = StorageRates::of(&metrics);
    Ok(played)
}

/// An engine whose memory is all there, as the paper's is.
fn build(machine: &Machine, way: Way, workload: &Workload) -> Result<Engine> {
    let device_cache = match way {
        Way::OnDemand => 0,
        _ => machine.scale.device as usize,
    };
    let engine = Engine::builder(&machine.device)
        .device_cache(device_cache)
        .host_cache(machine.scale.host as usize)
        .host_growth(HostOptions::default())
        .scratch(scratch())
        .after_restore(workload.after_restore)
        .flush(Flush::Eager)
        .policy(move || Chosen(way.policy()))
        .build()?;
    while engine
        .host_arena_report()
        .is_some_and(|report| !report.finished)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(engine)
}

/// A policy that was chosen while the program runs.
#[derive(Debug)]
struct Chosen(Box<dyn Policy + Send>);

impl Policy for Chosen {
    fn choose(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        self.0.choose(candidates, size)
    }

    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        self.0.choose_victims(candidates, size)
    }

    fn conduct(&self) -> Conduct {
        self.0.conduct()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}

/// The application: two fields in device memory, and a stream of its own.
struct Player<'a> {
    engine: &'a Engine,
    stream: Stream,
    out: Memory,
    back: Memory,
    sizes: HashMap<Version, u64>,
    played: Played,
}

impl<'a> Player<'a> {
    fn new(machine: &Machine, engine: &'a Engine, workload: &Workload) -> Result<Self> {
        let sizes: HashMap<_, _> = workload.ops.iter().filter_map(size_of).collect();
        let largest = *sizes.values().max().context("nothing is checkpointed")? as usize;
        let stream = machine.device.stream()?;
        let (out, back) = (
            machine.device.alloc(largest)?,
            machine.device.alloc(largest)?,
        );
        stream.fill(&mut out.lend_mut(0..largest)?, 0x5A)?;
        Ok(Self {
            engine,
            stream,
            out,
            back,
            sizes,
            played: Played::default(),
        })
    }

    fn play(&mut self, op: &Op) -> Result<()> {
        match *op {
            Op::Compute(ns) => pause(Duration::from_nanos(ns)),
            Op::Checkpoint { version, bytes } => {
                self.stream
                    .write(&version.to_le_bytes(), &mut self.out.lend_mut(0..8)?)?;
                let begun = Instant::now();
                let region = Region::Memory(&self.out, 0..bytes as usize);
                self.engine.checkpoint(version, &[region])?;
                self.played.checkpoints += begun.elapsed();
            }
            Op::Restore(version) => {
                let bytes = *self
                    .sizes
                    .get(&version)
                    .context("restored, never written")?;
                let begun = Instant::now();
                let region = RegionMut::Memory(&self.back, 0..bytes as usize);
                self.engine.restore(version, &mut [region])?;
                let took = begun.elapsed();
                self.played.restores += took;
                self.played.each_restore.push(Restored {
                    bytes,
                    took,
                    distance: self.engine.metrics().prefetch_distance.last,
                });
                self.check(version)?;
            }
            Op::Drop(version) => self.engine.discard(version)?,
            Op::Hint(ref versions) => self.engine.hint(versions.iter().copied()),
            Op::PrefetchStart => self.engine.prefetch_start(),
            Op::Wait => {
                let begun = Instant::now();
                self.engine.wait()?;
                self.played.waited += begun.elapsed();
            }
            Op::Barrier => bail!("one application has nobody to wait for"),
        }
        Ok(())
    }

    /// The stamp that came back is the version's.
    fn check(&self, version: Version) -> Result<()> {
        let mut stamp = [0; 8];
        self.stream.read(&self.back.lend(0..8)?, &mut stamp)?;
        let found = u64::from_le_bytes(stamp);
        ensure!(found == version, "version {version} came back as {found}");
        Ok(())
    }
}

fn size_of(op: &Op) -> Option<(Version, u64)> {
    match *op {
        Op::Checkpoint { version, bytes } => Some((version, bytes)),
        _ => None,
    }
}

/// Sleeps, and spins for the end: a sleep alone is late by as much as a small checkpoint takes.
fn pause(time: Duration) {
    const SPIN: Duration = Duration::from_micros(300);
    let begun = Instant::now();
    if let Some(sleep) = time.checked_sub(SPIN) {
        std::thread::sleep(sleep);
    }
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
