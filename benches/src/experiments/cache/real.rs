//! The engine on the same workloads as the simulator: real bytes on the GPU, in main memory and on the disk of this machine.
//!
//! On a GPU, the caches are those of HPDC'23 (4 GiB and 32 GiB) or a quarter of them. Without a GPU, they are some MiB of plain memory,
//! and the rows say so. The scratch file is in the temporary directory (`TMPDIR`). Checkpoints are stamped with their version, and every
//! restore is checked.
//!
//! UVM with advice needs a GPU: without one its cells are left out.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tierflow_device::{Choice, Device, Kind, Memory, open};
use tierflow_engine::EngineBuilder;
use tierflow_plan::{Fifo, Lru, Residency, Score};
use tierflow_sim::{Shot, Workload};

use super::inputs;
use crate::experiments::Run;

mod calibrate;
pub(crate) mod goals;
mod history;
pub(crate) mod hpdc;
mod play;
pub mod processes;
#[cfg(test)]
mod uvm_tests;

/// The machine that the experiments run on.
#[derive(Clone)]
struct Machine {
    device: Device,
    /// The caches' scale: the paper's history has 384 versions of 128 MiB.
    scale: Scale,
    /// Managed memory, whose pages are all allocated once it was used.
    managed: Rc<RefCell<Option<Memory>>>,
}

/// Sizes of a history and of its caches.
#[derive(Debug, Clone, Copy)]
struct Scale {
    versions: usize,
    /// Bytes of a version, if all have one size.
    version: u64,
    device: u64,
    host: u64,
    interval: Duration,
}

impl Scale {
    /// Returns the paper's scale (HPDC'23 §5.3), divided by 4^`quarters`; a 64th of it in smaller versions without a GPU.
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

    /// Returns the sizes of recorded or made-up shots, scaled to this scale.
    fn variable(&self, shots: usize) -> Result<Vec<Vec<u64>>> {
        let smaller = (128 << 20) / self.version;
        let shots = inputs::shots(shots, self.versions)?.sizes.into_iter();
        let scaled = shots.map(|sizes| sizes.iter().map(|size| (size / smaller).max(8)).collect());
        Ok(scaled.collect())
    }

    fn shot(&self, sizes: Vec<u64>) -> Shot {
        Shot::new(sizes, self.interval.as_nanos() as u64)
    }
}

impl Machine {
    fn open(run: &Run, quarters: u32) -> Result<Self> {
        Ok(Self::on(open(Choice::Auto)?, quarters, run.is_quick()))
    }

    /// Returns the machine of a process that uses this device.
    fn on(device: Device, quarters: u32, quick: bool) -> Self {
        let scale = Scale::of(&device, quarters, quick);
        Self {
            device,
            scale,
            managed: Rc::default(),
        }
    }

    /// Returns the same machine with a quarter of the history in a quarter of the caches.
    fn quarter(&self) -> Self {
        self.of_scale(Scale {
            versions: self.scale.versions / 4,
            device: self.scale.device / 4,
            host: self.scale.host / 4,
            ..self.scale
        })
    }

    /// Returns the same machine with other sizes.
    fn of_scale(&self, scale: Scale) -> Self {
        Self {
            scale,
            ..self.clone()
        }
    }

    /// Returns managed memory of at least `bytes` bytes: that of earlier runs, if it is large enough.
    fn managed(&self, bytes: usize) -> Result<Memory> {
        let mut managed = self.managed.borrow_mut();
        if let Some(memory) = managed.as_ref().filter(|memory| memory.len() >= bytes) {
            return Ok(memory.clone());
        }
        // Managed memory has a limit in all, so the smaller allocation is freed first.
        *managed = None;
        Ok(managed.insert(self.device.alloc_managed(bytes)?).clone())
    }

    /// Returns the part that this machine lacks for a way to keep a history.
    fn lacks(&self, way: Approach) -> Option<&'static str> {
        (way == Approach::Uvm && self.device.info().kind != Kind::Cuda).then_some("a GPU")
    }
}

/// An approach to keep a history that the experiment compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Approach {
    /// The engine with its own policy.
    Tierflow,
    /// As `Tierflow`, with host memory for all of the history, and no disk.
    TierflowInMemory,
    /// HPDC'23's window scorer on contiguous caches.
    Score,
    /// As `Score`, with host memory for all of the history, and no disk.
    ScoreInMemory,
    Lru,
    Fifo,
    /// No cache on the device and no prefetch: the way of ADIOS2 (HPDC'23 §5.2.1).
    OnDemand,
    /// Managed memory with advice, prefetches and a limit on the device; host memory for all of the history, and no disk.
    Uvm,
}

impl Approach {
    fn name(self) -> &'static str {
        match self {
            Self::Tierflow => "Tierflow",
            Self::TierflowInMemory => "Tierflow without a disk",
            Self::Score => "Score",
            Self::ScoreInMemory => "Score without a disk",
            Self::Lru => "LRU",
            Self::Fifo => "FIFO",
            Self::OnDemand => "on demand",
            Self::Uvm => "UVM without a disk",
        }
    }

    fn keeps_all_in_memory(self) -> bool {
        let in_memory = [Self::TierflowInMemory, Self::ScoreInMemory, Self::Uvm];
        in_memory.contains(&self)
    }

    /// Sets the policy of this approach. Managed memory has the driver's policy, and no engine.
    fn engine(self, builder: EngineBuilder) -> EngineBuilder {
        match self {
            Self::Tierflow | Self::TierflowInMemory | Self::Uvm => builder.policy(Residency),
            Self::Score | Self::ScoreInMemory => builder.policy(Score),
            Self::Lru => builder.policy(Lru),
            Self::Fifo | Self::OnDemand => builder.policy(Fifo),
        }
    }
}

/// Returns the folder of scratch files.
fn scratch() -> PathBuf {
    std::env::temp_dir()
}

/// Returns the bytes of host memory for a whole history, with room for the alignment of copies.
fn host_for_all(workload: &Workload) -> u64 {
    workload.bytes() / 8 * 9 + (64 << 10)
}
