//! The stores, their calibrations, and the accuracy of the predictions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tierflow_placement::stores::Calibration;
use tierflow_store::{Scratch, Storage, Throttled};
use tierflow_transfer::volume::{Effort, Points, measure};

use crate::experiments::Run;

/// Number of writers of a crowded disk. The external storage's bandwidth is a multiple of the crowded disk's.
const MANY: u32 = 16;
/// Bytes per second of a disk that is far slower than memory and processors, as on the paper's nodes.
const SLOW_DISK: u64 = 200_000_000;
/// Bytes of a chunk on the slow disk. Such a chunk takes as long as 4 MiB at 800 MB/s, and a quarter of the copying.
const SMALL_CHUNK: usize = 1 << 20;
const CHUNK: usize = 4 << 20;
/// Goal: predicted over measured throughput.
const NEAR: f64 = 1.0;

/// The stores of one half of the experiment.
pub(super) struct StoreMachine {
    memory: PathBuf,
    disk: Disk,
    pub(super) memory_calibration: Calibration,
    pub(super) disk_calibration: Calibration,
    /// Bytes of a chunk.
    pub(super) chunk: usize,
}

enum Disk {
    At(PathBuf),
    /// A memory file system that is throttled to this many bytes per second.
    Throttled(u64),
}

impl StoreMachine {
    pub(super) fn with_throttled_disk(run: &mut Run) -> Result<Self> {
        Self::calibrated(run, Disk::Throttled(SLOW_DISK), SMALL_CHUNK)
    }

    pub(super) fn with_disk(run: &mut Run) -> Result<Self> {
        let disk = folder("TIERFLOW_DISK", std::env::temp_dir());
        Self::calibrated(run, Disk::At(disk), CHUNK)
    }

    /// Calibrates the stores, and reports Figure 3.
    fn calibrated(run: &mut Run, disk: Disk, chunk: usize) -> Result<Self> {
        let mut machine = Self {
            memory: folder("TIERFLOW_MEMORY", PathBuf::from("/dev/shm")),
            disk,
            memory_calibration: Calibration::new(1, 1, &[1.0])?,
            disk_calibration: Calibration::new(1, 1, &[1.0])?,
            chunk,
        };
        [machine.memory_calibration, machine.disk_calibration] = accuracy(run, &machine)?;
        Ok(machine)
    }

    pub(super) fn open_memory(&self) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(open(&self.memory)?))
    }

    pub(super) fn open_disk(&self) -> Result<Arc<dyn Storage>> {
        Ok(match &self.disk {
            Disk::At(folder) => Arc::new(open(folder)?),
            Disk::Throttled(limit) => Arc::new(Throttled::new(open(&self.memory)?, *limit)),
        })
    }

    /// Opens external storage that is `times` times as fast as a crowded disk.
    pub(super) fn open_external(&self, times: f64) -> Result<Arc<dyn Storage>> {
        let limit = self.external(times) as u64;
        Ok(Arc::new(Throttled::new(open(&self.memory)?, limit)))
    }

    fn external(&self, times: f64) -> f64 {
        self.disk_calibration.throughput(MANY) * times
    }

    /// Returns the nanoseconds before which no policy has all chunks on local stores, if the calibrations are right. Chunks that are not in
    /// the cache at the end went to the disk, or through the cache to the external storage. All chunks went to the disk or to memory, each
    /// at its best number of writers.
    pub(super) fn bound(&self, writers: usize, chunks: usize, cached: usize, times: f64) -> f64 {
        let best = |of: &Calibration| {
            let each = (1..=writers as u32).map(|writers| of.throughput(writers));
            each.fold(0.0, f64::max)
        };
        let bytes = |chunks: usize| (chunks * self.chunk) as f64;
        let (memory, disk) = (best(&self.memory_calibration), best(&self.disk_calibration));
        let through = bytes(chunks - cached) / (disk + self.external(times));
        through.max(bytes(chunks) / (memory + disk)) * 1e9
    }

    pub(super) fn disk_name(&self) -> &'static str {
        match self.disk {
            Disk::At(_) => "disk",
            Disk::Throttled(_) => "disk (throttled)",
        }
    }
}

fn folder(variable: &str, default: PathBuf) -> PathBuf {
    std::env::var_os(variable).map_or(default, PathBuf::from)
}

fn open(folder: &Path) -> Result<Scratch> {
    let opened = Scratch::open(folder);
    let scratch = opened.with_context(|| format!("no store in {}", folder.display()))?;
    Ok(scratch)
}

/// Compares the splines between their samples with measurements there. All points of both stores take turns, so that a machine that is
/// busy for a while affects all points alike.
fn accuracy(run: &mut Run, machine: &StoreMachine) -> Result<[Calibration; 2]> {
    let (samples, trials, at_least) = match (run.is_quick(), &machine.disk) {
        (true, _) => (5, 3, 20),
        // A throttled store does not vary.
        (false, Disk::Throttled(_)) => (7, 5, 100),
        (false, Disk::At(_)) => (7, 9, 150),
    };
    let effort = Effort {
        points: Points::Doubling { samples },
        trials,
        at_least: Duration::from_millis(at_least),
    };
    let sampled = effort.points.writers();
    let between = sampled.iter().skip(1).map(|writers| writers + writers / 2);
    let between: Vec<u32> = between.take(sampled.len().saturating_sub(2)).collect();
    let writers = [sampled.as_slice(), &between].concat();
    let (memory, disk) = (machine.open_memory()?, machine.open_disk()?);
    let stores = [memory.as_ref(), disk.as_ref()];
    let points = stores.iter();
    let points = points.flat_map(|&store| writers.iter().map(move |&writers| (store, writers)));
    let measured = measure(&points.collect::<Vec<_>>(), machine.chunk, effort)?;
    let (memory, disk) = measured.split_at(writers.len());
    let memory_name = match machine.disk {
        Disk::Throttled(_) => "memory, small chunks",
        Disk::At(_) => "memory",
    };
    let mut report = |store: &str, measured: &[f64]| {
        let calibration = effort.points.calibration(&measured[..sampled.len()])?;
        let mut points: Vec<_> = writers.iter().zip(measured).enumerate().collect();
        points.sort_by_key(|(_, (writers, _))| **writers);
        for (at, (&writers, &measured)) in points {
            let case = format!("store={store}, writers={writers}");
            run.value(&case, "throughput, measured", "bytes/s", measured)?;
            if at >= sampled.len() {
                let predicted = calibration.throughput(writers);
                run.value(&case, "throughput, predicted", "bytes/s", predicted)?;
                let over = predicted / measured;
                let row = run.value(&case, "predicted over measured", "1", over)?;
                row.against(NEAR);
            }
        }
        Ok::<_, anyhow::Error>(calibration)
    };
    let memory = report(memory_name, memory)?;
    Ok([memory, report(machine.disk_name(), disk)?])
}
