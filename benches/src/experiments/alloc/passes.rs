//! The application of the paper's evaluation: a forward pass that checkpoints and a backward pass that restores in
//! reverse order, with a sleep for each computation (HiPC'22 §V-C).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tierflow_device::{Device, Memory, Stream};
use tierflow_engine::{AfterRestore, Engine, Flush, Region, RegionMut, Tier};
use tierflow_tier_alloc::{DeviceGrowth, HostGrowth, HostOptions};

use crate::experiments::wait_grown;
use crate::random::unit;

/// The name under which unified memory takes the place of both caches.
pub(super) const UVM: &str = "UVM";

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    /// Bytes of each checkpoint.
    pub(super) sizes: Vec<usize>,
    pub(super) interval: Duration,
    pub(super) device_bytes: usize,
    /// Bytes of the host cache; 0 for none.
    pub(super) host_bytes: usize,
    /// The names of the strategies.
    pub(super) device: String,
    pub(super) host: String,
    /// True if everything is mapped, touched and pinned before the first checkpoint; that time is not counted.
    pub(super) warm: bool,
}

/// The times for which the application was blocked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Passes {
    /// Time of making the caches.
    pub(super) start: Duration,
    pub(super) checkpoint: Duration,
    pub(super) restore: Duration,
    pub(super) worst_checkpoint: Duration,
    pub(super) worst_restore: Duration,
    /// Time from the start until all of the host cache was pinned; `None` if it was not by the end of the passes.
    pub(super) pinned_after: Option<Duration>,
    /// Bytes that were pinned at the end of the forward pass.
    pub(super) pinned: usize,
    /// Numbers and times of the calls that blocked longer than two milliseconds, to find the causes.
    pub(super) slow: Vec<(usize, Duration)>,
    /// The growth of the host cache: some moments, with MiB touched and MiB pinned.
    pub(super) growth: Vec<(Duration, usize, usize)>,
    /// The engine's metrics, in words.
    pub(super) metrics: String,
}

impl Passes {
    /// Returns the blocked time of checkpoints and of making the caches, as in the paper.
    pub(super) fn forward(&self) -> Duration {
        self.start + self.checkpoint
    }

    pub(super) fn total(&self) -> Duration {
        self.forward() + self.restore
    }
}

pub(super) fn host_growth(name: &str) -> Result<HostGrowth> {
    HostGrowth::all()
        .into_iter()
        .find(|growth| growth.name() == name)
        .with_context(|| format!("no host strategy is called {name}"))
}

pub(super) fn device_growth(name: &str) -> Result<DeviceGrowth> {
    [DeviceGrowth::DirectAlloc, DeviceGrowth::default()]
        .into_iter()
        .find(|growth| growth.name() == name)
        .with_context(|| format!("no device strategy is called {name}"))
}

/// Returns true if this machine has everything that the strategy needs.
pub(super) fn is_here(name: &str, gpu: bool) -> bool {
    let cuda_only = name == UVM || host_growth(name).is_ok_and(HostGrowth::needs_cuda);
    gpu || !cuda_only
}

/// Runs both passes.
pub(super) fn passes(device: &Device, load: &Load) -> Result<Passes> {
    if load.host == UVM {
        return uvm(device, load);
    }
    let largest = load.sizes.iter().copied().max().context("no checkpoints")?;
    let field = Field::new(device, largest)?;
    let host = HostOptions::from(host_growth(&load.host)?);
    let device_growth = device_growth(&load.device)?;

    // The papers' strategies flush as in the papers, and our strategy as our engine does.
    let ours = matches!(host.growth, HostGrowth::Pieces { .. });
    let flush = match ours {
        true => Flush::Needed,
        false => Flush::Eager,
    };
    let begun = Instant::now();
    let engine = Engine::builder(device)
        .tier(Tier::device(load.device_bytes).growth(device_growth))
        .tier(Tier::host(load.host_bytes).growth(host))
        .flush(flush)
        .after_restore(AfterRestore::Discard)
        .build()?;
    let mut found = Passes {
        start: begun.elapsed(),
        ..Passes::default()
    };
    if load.warm {
        wait_grown(&engine);
        found.start = Duration::ZERO;
    }
    engine.hint((0..load.sizes.len() as u64).rev());
    for (version, &size) in load.sizes.iter().enumerate() {
        compute(load.interval, || field.set(version, size))?;
        let begun = Instant::now();
        engine.checkpoint(version as u64, &[Region::Memory(&field.memory, 0..size)])?;
        found.checkpointed(version, begun.elapsed());
    }
    let report = engine.reports().host;
    found.pinned = report.map_or(0, |report| report.pinned);
    engine.hints().prefetch_start();
    for (version, &size) in load.sizes.iter().enumerate().rev() {
        compute(load.interval, || Ok(()))?;
        let begun = Instant::now();
        engine.restore(
            version as u64,
            &mut [RegionMut::Memory(&field.memory, 0..size)],
        )?;
        found.restored(version, begun.elapsed());
        field.check(version, size)?;
    }
    found.metrics = engine.metrics().to_string();
    if let Some(report) = engine.reports().host {
        let end = report
            .timeline
            .last()
            .filter(|end| end.pinned == report.capacity);
        found.pinned_after = end.map(|end| end.at);
        let step = (report.timeline.len() / 12).max(1);
        let some = report.timeline.iter().step_by(step).chain(end);
        found.growth = some
            .map(|sample| (sample.at, sample.touched >> 20, sample.pinned >> 20))
            .collect();
    }
    Ok(found)
}

/// Runs with one managed allocation for both caches, moved by the driver alone (HiPC'22 §V-B).
fn uvm(device: &Device, load: &Load) -> Result<Passes> {
    let largest = load.sizes.iter().copied().max().context("no checkpoints")?;
    let field = Field::new(device, largest)?;
    let begun = Instant::now();
    let memory = device.alloc_managed(load.sizes.iter().sum())?;
    let stream = device.stream()?;
    let mut found = Passes {
        start: begun.elapsed(),
        ..Passes::default()
    };
    let mut at = 0;
    for (version, &size) in load.sizes.iter().enumerate() {
        compute(load.interval, || field.set(version, size))?;
        let begun = Instant::now();
        let pair = (field.memory.lend(0..size)?, memory.lend_mut(at..at + size)?);
        stream.copy_all([pair])?;
        found.checkpointed(version, begun.elapsed());
        at += size;
    }
    for (version, &size) in load.sizes.iter().enumerate().rev() {
        at -= size;
        compute(load.interval, || Ok(()))?;
        let begun = Instant::now();
        let pair = (memory.lend(at..at + size)?, field.memory.lend_mut(0..size)?);
        stream.copy_all([pair])?;
        found.restored(version, begun.elapsed());
        field.check(version, size)?;
    }
    Ok(found)
}

impl Passes {
    fn checkpointed(&mut self, version: usize, took: Duration) {
        self.checkpoint += took;
        self.worst_checkpoint = self.worst_checkpoint.max(took);
        if took > Duration::from_millis(2) {
            self.slow.push((version, took));
        }
    }

    fn restored(&mut self, version: usize, took: Duration) {
        self.restore += took;
        self.worst_restore = self.worst_restore.max(took);
        if took > Duration::from_millis(2) {
            self.slow.push((version, took));
        }
    }
}

/// Does `work` between two calls, then sleeps until `interval` is over.
fn compute(interval: Duration, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let end = Instant::now() + interval;
    work()?;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}

/// The field that the application computes: device memory whose bytes depend on the version.
struct Field {
    memory: Memory,
    stream: Stream,
}

impl Field {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        let field = Self {
            memory: device.alloc(bytes)?,
            stream: device.stream()?,
        };
        field.set(0, bytes)?;
        Ok(field)
    }

    fn set(&self, version: usize, size: usize) -> Result<()> {
        let mut bytes = self.memory.lend_mut(0..size)?;
        Ok(self.stream.fill(&mut bytes, tag(version))?)
    }

    /// Checks both ends and the middle. The engine's own tests compare all bytes.
    fn check(&self, version: usize, size: usize) -> Result<()> {
        let mut seen = [0; 64];
        for at in [0, size / 2, size - seen.len()] {
            let bytes = self.memory.lend(at..at + seen.len())?;
            self.stream.read(&bytes, &mut seen)?;
            ensure!(
                seen.iter().all(|&byte| byte == tag(version)),
                "version {version} came back wrong at byte {at}"
            );
        }
        Ok(())
    }
}

fn tag(version: usize) -> u8 {
    (version % 251 + 1) as u8
}

/// Returns sizes like those of RTM's compressed checkpoints (HiPC'22 Figure 3a): from a quarter of `middle` to twice `middle`, with a
/// sum of `count` times three quarters of `middle`.
pub(super) fn variable(count: usize, middle: usize) -> Vec<usize> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let shares = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Many small ones and few large ones.
        0.25 * 8_f64.powf(unit(state))
    });
    let shares: Vec<f64> = shares.take(count).collect();
    let scale = 0.75 * count as f64 / shares.iter().sum::<f64>();
    let size = |share: f64| (share * scale * middle as f64) as usize;
    shares
        .into_iter()
        .map(|share| size(share).max(4096).next_multiple_of(4096))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierflow_device::{Choice, open};

    #[test]
    fn variable_sizes_add_up() {
        let sizes = variable(100, 1 << 20);
        let total: usize = sizes.iter().sum();
        assert!(
            (total as f64 / (75 << 20) as f64 - 1.0).abs() < 0.01,
            "{total}"
        );
        assert!(sizes.iter().max() > sizes.iter().min().map(|least| least * 4).as_ref());
        assert_eq!(sizes, variable(100, 1 << 20), "the same in every run");
    }

    #[test]
    fn every_strategy_that_is_here_passes() {
        let device = open(Choice::Host).unwrap();
        for growth in HostGrowth::all() {
            if !is_here(growth.name(), false) {
                continue;
            }
            let load = Load {
                sizes: variable(24, 1 << 20),
                interval: Duration::ZERO,
                device_bytes: 4 << 20,
                host_bytes: 24 << 20,
                device: String::from("IncrementalVmm"),
                host: growth.name().to_owned(),
                warm: false,
            };
            let found = passes(&device, &load).unwrap();
            assert!(found.checkpoint > Duration::ZERO && found.restore > Duration::ZERO);
        }
    }
}
