//! The engine itself on the same workloads as the simulator: real bytes on the card, in main memory and on the disk of this
//! machine, beside what [`Simulation`] predicts for it from the bandwidths measured a moment before, and beside the fluid bound.
//!
//! On a GPU the caches are the paper's (4 GiB and 32 GiB) or a quarter of them; without one they are some MiB of plain
//! memory, and the rows say so. The scratch file lies in the temporary directory (`TMPDIR`). Checkpoints are stamped
//! with their version, and every restore is checked.
//!
//! Beside the engine stands UVM with advice, which needs a GPU: without one its runs are left out, and counted.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use tierflow_device::{Choice, Device, Kind, Memory, open};
use tierflow_engine::EngineBuilder;
use tierflow_plan::{Fifo, Lru, Residency, Score};
use tierflow_sim::{Hardware, Shot, Simulation, Workload, fluid_bound};

use super::inputs;
use crate::experiments::{Experiment, Run};

mod calibrate;
mod cells;
mod figures;
mod goals;
mod history;
mod play;
mod sitting;
#[cfg(test)]
mod uvm_tests;

use play::{Played, play};

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

/// The machine that the experiments run on.
struct Machine {
    device: Device,
    /// The caches' scale: the paper's history has 384 versions of 128 MiB.
    scale: Scale,
    hardware: Hardware,
    /// Managed memory, of which all pages are there once it was used.
    managed: Rc<RefCell<Option<Memory>>>,
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
        let (smaller, sooner) = match (device.info().kind, quick) {
            (Kind::Cuda, false) => (1, 1),
            (Kind::Cuda, true) => (4, 1),
            (_, false) => (128, 4),
            (_, true) => (256, 20),
        };
        Self {
            version: paper.version / smaller,
            device: paper.device / smaller,
            host: paper.host / smaller,
            interval: paper.interval / sooner,
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
            managed: Rc::default(),
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
            managed: Rc::clone(&self.managed),
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
            managed: Rc::clone(&self.managed),
        }
    }

    /// Managed memory of at least so many bytes, the same for every run that it is large enough for.
    fn managed(&self, bytes: usize) -> Result<Memory> {
        let mut managed = self.managed.borrow_mut();
        if let Some(memory) = managed.as_ref().filter(|memory| memory.len() >= bytes) {
            return Ok(memory.clone());
        }
        // All of it together has a limit: the smaller one goes first.
        *managed = None;
        Ok(managed.insert(self.device.alloc_managed(bytes)?).clone())
    }

    /// Returns the part that this machine lacks for a way to keep a history.
    fn lacks(&self, way: Way) -> Option<&'static str> {
        (way == Way::Uvm && self.device.info().kind != Kind::Cuda).then_some("a GPU")
    }

    /// The tiers that a way has for this workload.
    fn hardware_of(&self, way: Way, workload: &Workload) -> Hardware {
        let mut hardware = self.hardware.clone();
        if way.keeps_all_in_memory() {
            hardware.tiers.truncate(2);
            hardware.hops.truncate(2);
            hardware.tiers[1].capacity = host_for_all(workload);
        }
        hardware
    }

    /// Plays a workload and reports it beside its bound and its simulation. Returns what was seen.
    fn compare(&self, run: &mut Run, case: &str, way: Way, workload: &Workload) -> Result<Played> {
        let played = play(self, way, workload)?;
        self.report(run, case, way, workload, &played)?;
        Ok(played)
    }

    fn report(
        &self,
        run: &mut Run,
        case: &str,
        way: Way,
        workload: &Workload,
        played: &Played,
    ) -> Result<()> {
        let workloads = std::slice::from_ref(workload);
        let hardware = self.hardware_of(way, workload);
        let bound = fluid_bound(&hardware, workloads)?.lost_ns as f64;
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
        let carried = played.storage.of_hardware(&hardware);
        let bound = fluid_bound(&carried, workloads)?.lost_ns as f64;
        run.value(case, "time lost, at what the storage carried", "ns", lost)?
            .against(bound);
        let hardware = [
            ("beside its simulation", hardware),
            ("beside its simulation at what the storage carried", carried),
        ];
        for (beside, hardware) in hardware {
            if let Some(simulation) = way.simulation(&hardware) {
                let simulated = simulation.run(workloads)?.blocking_ns() as f64;
                run.value(case, &format!("blocking, {beside}"), "ns", blocking)?
                    .against(simulated);
            }
        }
        Ok(())
    }
}

/// A way to keep a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The engine's own policy.
    Residency,
    /// HPDC'23's window scorer on contiguous caches.
    Score,
    Lru,
    Fifo,
    /// No cache on the device and no prefetch: the way of ADIOS2 (HPDC'23 §5.2.1).
    OnDemand,
    /// The engine's own policy with host memory for all of the history, and no disk.
    InMemory,
    /// Managed memory with advice, prefetches and a limit on the device; as much host memory, and no disk.
    Uvm,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Residency => "residency",
            Self::Score => "score",
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::OnDemand => "on demand",
            Self::InMemory => "residency without a disk",
            Self::Uvm => "uvm with advice without a disk",
        }
    }

    fn keeps_all_in_memory(self) -> bool {
        matches!(self, Self::InMemory | Self::Uvm)
    }

    /// With the policy of this way. Managed memory has the driver's, and no engine.
    fn engine(self, builder: EngineBuilder) -> EngineBuilder {
        match self {
            Self::Residency | Self::InMemory | Self::Uvm => builder.policy(Residency),
            Self::Score => builder.policy(Score),
            Self::Lru => builder.policy(Lru),
            Self::Fifo | Self::OnDemand => builder.policy(Fifo),
        }
    }

    /// The simulator takes the first tier for the fastest the application copies to; on demand it has none of its own.
    fn simulation(self, hardware: &Hardware) -> Option<Simulation> {
        let simulation = Simulation::new(hardware.clone());
        Some(match self {
            Self::Residency | Self::InMemory => simulation.policy(|| Residency),
            Self::Score => simulation.policy(|| Score),
            Self::Lru => simulation.policy(|| Lru),
            Self::Fifo => simulation.policy(|| Fifo),
            Self::OnDemand | Self::Uvm => return None,
        })
    }
}

/// Returns the folder of scratch files.
fn scratch() -> PathBuf {
    std::env::temp_dir()
}

/// Host memory for a whole history, with room to spare for where copies begin and end.
fn host_for_all(workload: &Workload) -> u64 {
    workload.bytes() / 8 * 9 + (64 << 10)
}
