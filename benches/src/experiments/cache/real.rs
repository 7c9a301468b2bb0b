//! The engine itself on the same workloads as the simulator: real bytes on the card, in main memory and on the disk of this
//! machine, beside what [`Simulation`] predicts for it from the bandwidths measured a moment before, and beside the fluid bound.
//!
//! On a GPU the caches are the paper's (4 GiB and 32 GiB) or a quarter of them; without one they are some MiB of plain
//! memory, and the rows say so. The scratch file lies in the temporary directory (`TMPDIR`). Checkpoints are stamped
//! with their version, and every restore is checked.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tierflow_device::{Choice, Device, Kind, open};
use tierflow_evict::{Cost, Fifo, Lru, Policy, Score};
use tierflow_sim::{Hardware, Shot, Simulation, Workload, fluid_bound};

use super::inputs;
use crate::experiments::{Experiment, Run};

mod calibrate;
mod cells;
mod figures;
mod goals;
mod play;

use play::{Played, StorageRates, play};

/// The goals at the paper's size.
pub const GOALS: Experiment = Experiment {
    name: "cache-goals",
    about: "blocking of the engine at the paper's size, against the fluid bound and the simulator",
    needs_gpu: false,
    run: goals::run,
};

/// The matrix at a quarter of the paper's size.
pub const CELLS: Experiment = Experiment {
    name: "cache-cells",
    about: "sizes × order × hints × waiting on the engine, for every policy and for other ways to keep a history",
    needs_gpu: false,
    run: cells::run,
};

/// By iteration, by compute interval and by cache size.
pub const FIGURES: Experiment = Experiment {
    name: "cache-figures",
    about: "restore rate and prefetch distance by iteration, by compute interval and by cache size",
    needs_gpu: false,
    run: figures::run,
};

/// What the experiments run on.
struct Machine {
    device: Device,
    /// The caches' scale: the paper's history has 384 versions of 128 MiB.
    scale: Scale,
    hardware: Hardware,
}

/// Sizes of a history and of its caches.
#[derive(Debug, Clone, Copy)]
struct Scale {
    versions: usize,
    /// Bytes of a version, where all are of one size.
    version: u64,
    device: u64,
    host: u64,
    interval: Duration,
}

impl Scale {
    /// The paper's (HPDC'23 §5.3), divided by 4^`quarters`; a 64th of it in smaller versions where there is no GPU.
    fn of(device: &Device, quarters: u32, quick: bool) -> Self {
        let part = 4_u64.pow(quarters);
        let paper = Self {
            versions: 384 / part as usize,
            version: 128 << 20,
            device: (4 << 30) / part,
            host: (32 << 30) / part,
            interval: Duration::from_millis(10),
        };
        let smaller = match (device.info().kind, quick) {
            (Kind::Cuda, false) => 1,
            (Kind::Cuda, true) => 4,
            (_, false) => 128,
            (_, true) => 256,
        };
        Self {
            version: paper.version / smaller,
            device: paper.device / smaller,
            host: paper.host / smaller,
            interval: if smaller > 64 {
                paper.interval / 4
            } else {
                paper.interval
            },
            ..paper
        }
    }

    fn uniform(&self) -> Vec<u64> {
        vec![self.version; self.versions]
    }

    /// Sizes of the recorded shots, or made-up ones, scaled to this one.
    fn variable(&self, shots: usize) -> Result<Vec<Vec<u64>>> {
        let smaller = (128 << 20) / self.version;
        let shots = inputs::shots(shots, self.versions)?.items.into_iter();
        let scaled = shots.map(|sizes| sizes.iter().map(|size| (size / smaller).max(8)).collect());
        Ok(scaled.collect())
    }

    fn shot(&self, sizes: Vec<u64>) -> Shot {
        Shot::new(sizes, self.interval.as_nanos() as u64)
    }
}

impl Machine {
    /// Opens the device and measures its bandwidths.
    fn measure(run: &mut Run, quarters: u32) -> Result<Self> {
        let device = open(Choice::Auto)?;
        let scale = Scale::of(&device, quarters, run.is_quick());
        let hardware = calibrate::hardware(run, &device, &scale)?;
        Ok(Self {
            device,
            scale,
            hardware,
        })
    }

    /// The same with a quarter of the history in a quarter of the caches.
    fn quarter(&self) -> Self {
        let mut hardware = self.hardware.clone();
        for tier in hardware.tiers.iter_mut().take(2) {
            tier.capacity /= 4;
        }
        Self {
            device: self.device.clone(),
            scale: Scale {
                versions: self.scale.versions / 4,
                device: self.scale.device / 4,
                host: self.scale.host / 4,
                ..self.scale
            },
            hardware,
        }
    }

    /// The same with caches of other sizes.
    fn with_device_cache(&self, bytes: u64) -> Self {
        let mut hardware = self.hardware.clone();
        hardware.tiers[0].capacity = bytes;
        Self {
            device: self.device.clone(),
            scale: Scale {
                device: bytes,
                ..self.scale
            },
            hardware,
        }
    }

    /// Plays a workload on the engine and reports it beside its bound and its simulation. Returns what was seen.
    fn compare(&self, run: &mut Run, case: &str, way: Way, workload: &Workload) -> Result<Played> {
        let workloads = std::slice::from_ref(workload);
        let bound = fluid_bound(&self.hardware, workloads)?.lost_ns as f64;
        let played = play(self, way, workload)?;
        run.value(case, "prefetch distance, mean", "versions", played.distance)?;
        let lost = (played.blocking() + played.waited).as_nanos() as f64;
        run.value(case, "time lost", "ns", lost)?.against(bound);
        let blocking = played.blocking().as_nanos() as f64;
        run.value(case, "blocking", "ns", blocking)?;
        for (what, time) in [
            ("checkpoints", played.checkpoints),
            ("restores", played.restores),
        ] {
            let rate = workload.bytes() as f64 / time.as_secs_f64().max(1e-9);
            run.value(case, &format!("rate of {what}"), "bytes/s", rate)?;
        }
        for &(tier, restores) in &played.served {
            run.value(case, &format!("restores from {tier}"), "1", restores as f64)?;
        }
        let rates = [("down", played.storage.down), ("up", played.storage.up)];
        for (direction, rate) in rates {
            if let Some(rate) = rate {
                run.value(
                    case,
                    &format!("storage carried, {direction}"),
                    "bytes/s",
                    rate,
                )?;
            }
        }
        let carried = self.with_storage(played.storage);
        let bound = fluid_bound(&carried, workloads)?.lost_ns as f64;
        run.value(case, "time lost, at what the storage carried", "ns", lost)?
            .against(bound);
        let hardware = [
            ("beside its simulation", self.hardware.clone()),
            ("beside its simulation at what the storage carried", carried),
        ];
        for (beside, hardware) in hardware {
            if let Some(simulation) = way.simulation(&hardware) {
                let simulated = simulation.run(workloads)?.blocking_ns() as f64;
                run.value(case, &format!("blocking, {beside}"), "ns", blocking)?
                    .against(simulated);
            }
        }
        Ok(played)
    }

    /// The hardware with storage as fast as it was while a workload was played: what a disk does in a calibration's burst is
    /// not what it does in the next seconds.
    fn with_storage(&self, rates: StorageRates) -> Hardware {
        let mut hardware = self.hardware.clone();
        let links = hardware.hops.last_mut().map(|hop| &mut hop.links);
        for link in links.into_iter().flatten() {
            link.down = rates.down.map_or(link.down, |rate| rate as u64);
            link.up = rates.up.map_or(link.up, |rate| rate as u64);
        }
        hardware
    }
}

/// A way to keep a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The engine's own policy.
    Cost,
    /// The paper's (HPDC'23, Algorithm 1).
    Score,
    Fifo,
    Lru,
    /// No cache on the device and no prefetch: the way of ADIOS2 (HPDC'23 §5.2.1).
    OnDemand,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Score => "score",
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::OnDemand => "on demand",
        }
    }

    fn policy(self) -> Box<dyn Policy + Send> {
        match self {
            Self::Cost => Box::<Cost>::default(),
            Self::Score => Box::new(Score),
            Self::Fifo | Self::OnDemand => Box::<Fifo>::default(),
            Self::Lru => Box::<Lru>::default(),
        }
    }

    /// The simulator takes the first tier for the fastest the application copies to; on demand it has none of its own.
    fn simulation(self, hardware: &Hardware) -> Option<Simulation> {
        let simulation = Simulation::new(hardware.clone());
        Some(match self {
            Self::Cost => simulation.policy(Cost::default),
            Self::Score => simulation.policy(|| Score),
            Self::Fifo => simulation.policy(Fifo::default),
            Self::Lru => simulation.policy(Lru::default),
            Self::OnDemand => return None,
        })
    }
}

/// Where scratch files go.
fn scratch() -> PathBuf {
    std::env::temp_dir()
}
