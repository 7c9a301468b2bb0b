//! The simulator's workload, played on a history: the same calls, with real bytes and real pauses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tierflow_device::{Memory, Stream};
use tierflow_engine::{Cause, HopMetrics, Metrics, Version};
use tierflow_sim::{Hardware, Op, Workload};

use super::history::History;
use super::{Approach, Machine};

/// The times that the application saw.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// Time in checkpoints, restores and waits for flushes.
    pub(super) checkpoints: Duration,
    pub(super) restores: Duration,
    pub(super) waited: Duration,
    pub(super) each_restore: Vec<Restored>,
    /// The mean prefetch distance.
    pub(super) distance: f64,
    /// By tier: its name, and the number of restores that it served.
    pub(super) served: Vec<(&'static str, u64)>,
    /// The storage's rates, in bytes/s of the time in which transfers were under way.
    pub(super) storage: StorageRates,
    /// Bytes of all checkpoints.
    pub(super) bytes: u64,
    /// The rates at which managed memory moved, by name, in bytes/s of the time in which it moved.
    pub(super) migration: Vec<(&'static str, f64)>,
    /// The blocked time before the first restore and since then, by cause.
    pub(super) causes: Vec<Blocked>,
}

/// Time for which one cause blocked the calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocked {
    /// "checkpoints" before the first restore, "restores" since then.
    pub(super) calls: &'static str,
    pub(super) cause: &'static str,
    pub(super) time: Duration,
}

/// Bytes/s to storage and back; `None` for a direction without bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StorageRates {
    pub(super) down: Option<f64>,
    pub(super) up: Option<f64>,
}

/// A restore.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restored {
    pub(super) bytes: u64,
    pub(super) took: Duration,
    /// Number of the following hinted versions that were on the fastest tier when the restore began.
    pub(super) distance: u64,
}

impl StorageRates {
    fn of(metrics: &Metrics) -> Self {
        let lowest = "file";
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

    /// Returns the hardware with storage as fast as while the workload was played. A disk is faster in a calibration's burst than in the
    /// seconds after it.
    pub(super) fn of_hardware(self, hardware: &Hardware) -> Hardware {
        let mut hardware = hardware.clone();
        let links = hardware.hops.get_mut(FILE).map(|hop| &mut hop.links);
        for link in links.into_iter().flatten() {
            link.down = self.down.map_or(link.down, |rate| rate as u64);
            link.up = self.up.map_or(link.up, |rate| rate as u64);
        }
        hardware
    }
}

/// The index of the file's tier.
const FILE: usize = 2;

impl Played {
    pub(super) fn blocking(&self) -> Duration {
        self.checkpoints + self.restores
    }
}

/// Plays `workload` on a new history.
pub(super) fn play(machine: &Machine, way: Approach, workload: &Workload) -> Result<Played> {
    play_among(machine, way, workload, None)
}

/// A function that meets the other applications.
pub(super) type Meet = fn() -> Result<()>;

/// Plays `workload` among other applications. All applications meet once each has its memory, and at each barrier.
pub(super) fn play_among(
    machine: &Machine,
    way: Approach,
    workload: &Workload,
    others: Option<Meet>,
) -> Result<Played> {
    let history = History::new(machine, way, workload)?;
    let mut player = Player::new(machine, history, workload)?;
    others.map_or(Ok(()), |meet| meet())?;
    let at_first = player.history.metrics();
    let mut before_restores = None;
    for op in &workload.ops {
        if before_restores.is_none() && matches!(op, Op::Restore(_)) {
            before_restores = player.history.metrics();
        }
        match (op, others) {
            (Op::Barrier, Some(meet)) => meet()?,
            _ => player.play(op)?,
        }
    }
    let mut played = player.played;
    played.bytes = workload.bytes();
    played.migration = player.history.migration();
    let restores = played.each_restore.len().max(1);
    played.distance = player.history.distances().1 as f64 / restores as f64;
    if let Some(metrics) = player.history.metrics() {
        let served = metrics.tiers.iter().map(|tier| (tier.name, tier.restores));
        played.served = served.collect();
        played.storage = StorageRates::of(&metrics);
        if let (Some(first), Some(middle)) = (at_first, before_restores) {
            played.causes = causes("checkpoints", &first, &middle);
            played.causes.extend(causes("restores", &middle, &metrics));
        }
    }
    Ok(played)
}

/// Returns the blocked time between two snapshots by cause, without causes that took no time.
fn causes(calls: &'static str, before: &Metrics, after: &Metrics) -> Vec<Blocked> {
    let all = Cause::ALL.into_iter().map(|cause| Blocked {
        calls,
        cause: cause.name(),
        time: after.times(cause).total - before.times(cause).total,
    });
    all.filter(|blocked| !blocked.time.is_zero()).collect()
}

/// Returns the time of copies within the device that replace a workload's checkpoints and restores, with the workload's pauses.
pub(super) fn copies(machine: &Machine, workload: &Workload) -> Result<Duration> {
    let sizes: HashMap<_, _> = workload.ops.iter().filter_map(size_of).collect();
    let largest = *sizes.values().max().context("nothing is checkpointed")? as usize;
    let stream = machine.device.stream()?;
    let (from, to) = (
        machine.device.alloc(largest)?,
        machine.device.alloc(largest * sizes.len())?,
    );
    stream.fill(&mut to.lend_mut(0..largest * sizes.len())?, 0)?;
    stream.synchronize()?;
    let mut took = Duration::ZERO;
    let mut at = 0;
    for op in &workload.ops {
        match *op {
            Op::Compute(ns) => pause(Duration::from_nanos(ns)),
            Op::Checkpoint { version, .. } | Op::Restore(version) => {
                let bytes = sizes.get(&version).map_or(0, |&bytes| bytes as usize);
                let begun = Instant::now();
                stream.copy_now(&from.lend(0..bytes)?, &mut to.lend_mut(at..at + bytes)?)?;
                took += begun.elapsed();
                at = (at + largest) % (largest * sizes.len());
            }
            _ => {}
        }
    }
    Ok(took)
}

/// The application: two fields in device memory, and its stream.
struct Player {
    history: History,
    stream: Stream,
    out: Memory,
    back: Memory,
    sizes: HashMap<Version, u64>,
    played: Played,
}

impl Player {
    fn new(machine: &Machine, history: History, workload: &Workload) -> Result<Self> {
        let sizes: HashMap<_, _> = workload.ops.iter().filter_map(size_of).collect();
        let largest = *sizes.values().max().context("nothing is checkpointed")? as usize;
        let stream = machine.device.stream()?;
        let (out, back) = (
            machine.device.alloc(largest)?,
            machine.device.alloc(largest)?,
        );
        stream.fill(&mut out.lend_mut(0..largest)?, 0x5A)?;
        Ok(Self {
            history,
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
                for at in stamps(bytes) {
                    let mut stamp = self.out.lend_mut(at..at + 8)?;
                    self.stream.write(&version.to_le_bytes(), &mut stamp)?;
                }
                let begun = Instant::now();
                self.history.checkpoint(version, &self.out, bytes)?;
                self.played.checkpoints += begun.elapsed();
            }
            Op::Restore(version) => {
                let bytes = *self
                    .sizes
                    .get(&version)
                    .context("restored, never written")?;
                let begun = Instant::now();
                self.history.restore(version, &self.back, bytes)?;
                let took = begun.elapsed();
                self.played.restores += took;
                self.played.each_restore.push(Restored {
                    bytes,
                    took,
                    distance: self.history.distances().0,
                });
                self.check(version, bytes)?;
            }
            Op::Drop(version) => self.history.discard(version)?,
            Op::Hint(ref versions) => self.history.hint(versions),
            Op::PrefetchStart => self.history.prefetch_start(),
            Op::Wait => {
                let begun = Instant::now();
                self.history.wait()?;
                self.played.waited += begun.elapsed();
            }
            Op::Barrier => bail!("a barrier is for several applications, and this is one"),
            Op::HintNext(_) | Op::ForgetHints(_) => bail!("this application changes no hints"),
        }
        Ok(())
    }

    /// Checks that the restored stamps are those of the version.
    fn check(&self, version: Version, bytes: u64) -> Result<()> {
        for at in stamps(bytes) {
            let mut stamp = [0; 8];
            self.stream.read(&self.back.lend(at..at + 8)?, &mut stamp)?;
            let found = u64::from_le_bytes(stamp);
            ensure!(
                found == version,
                "version {version} came back as {found} at byte {at} of {bytes}"
            );
        }
        Ok(())
    }
}

/// Returns the places of a version's number: at its beginning, in its middle and at its end.
fn stamps(bytes: u64) -> impl Iterator<Item = usize> {
    let last = (bytes as usize).saturating_sub(8) / 8;
    let mut stamps = [0, last / 2, last].map(|at| at * 8).to_vec();
    stamps.dedup();
    stamps.into_iter()
}

fn size_of(op: &Op) -> Option<(Version, u64)> {
    match *op {
        Op::Checkpoint { version, bytes } => Some((version, bytes)),
        _ => None,
    }
}

/// Sleeps, then spins until the end. A sleep alone ends late by as much time as a small checkpoint takes.
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
