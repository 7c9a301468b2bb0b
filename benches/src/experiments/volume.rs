//! Several local stores as one tier's storage: a [`Volume`] that places chunks by what is predicted, against stripes of one size
//! and against the fastest store alone. The stores are memory file systems with limits of their own, so their sum is the
//! physical limit; what happens between the placing and the disks is ours.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tierflow_device::{Choice, HostReservation, open};
use tierflow_placement::stores::{Calibration, ShortestWait};
use tierflow_store::{Scratch, Storage, Throttled};
use tierflow_transfer::volume::{LocalStore, Volume};

use super::{Experiment, Run};
use crate::processor::measure;
use crate::threads::on_threads;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "volume",
    about: "several stores as one tier: adaptive placement, stripes, and the fastest store alone, over throttled stores",
    needs_gpu: false,
    run,
};

/// Bytes of a chunk, of what a worker of the engine writes at once, and workers.
const CHUNK: usize = 1 << 20;
const REQUEST: usize = 4 << 20;
const WORKERS: usize = 4;
const MIB: f64 = (1 << 20) as f64;

/// How stores are used.
#[derive(Clone, Copy)]
enum By {
    Volume,
    /// Chunks in turns, whatever the stores are: RAID-0.
    Stripes,
    Fastest,
}

fn run(run: &mut Run) -> Result<()> {
    let folder = match Path::new("/dev/shm") {
        memory if memory.is_dir() => TempDir::new_in(memory)?,
        _ => TempDir::new()?,
    };
    let bytes: usize = if run.is_quick() { 128 << 20 } else { 512 << 20 };
    // MiB/s of each, and what they were calibrated to: as they are, or as if they were alike.
    let cases: [(&[f64], bool); 4] = [
        (&[400.0, 400.0], true),
        (&[600.0, 200.0], true),
        (&[600.0, 200.0], false),
        (&[500.0, 200.0, 100.0], true),
    ];
    for (rates, is_calibrated) in cases {
        let case = |by: &str| {
            let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
            let rates = rates.join("+");
            let calibrated = if is_calibrated { "right" } else { "alike" };
            format!("by={by}, stores={rates} MiB/s, calibrated={calibrated}")
        };
        let sum = rates.iter().sum::<f64>() * MIB;
        for (name, by) in [
            ("volume", By::Volume),
            ("stripes", By::Stripes),
            ("fastest", By::Fastest),
        ] {
            let [down, up] = round(folder.path(), (rates, is_calibrated), by, bytes)?;
            for (metric, rate) in [("written", down), ("read back", up)] {
                run.value(&case(name), metric, "bytes/s", rate)?
                    .against(sum);
            }
        }
    }
    Ok(())
}

/// Bytes a second down and up.
fn round(folder: &Path, stores: (&[f64], bool), by: By, bytes: usize) -> Result<[f64; 2]> {
    let (rates, is_calibrated) = stores;
    let chunks = bytes / CHUNK;
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let stores = rates.iter().map(|rate| -> Result<LocalStore> {
        let limit = (rate * MIB) as u64;
        let known = if is_calibrated { *rate } else { mean };
        Ok(LocalStore {
            storage: Arc::new(Throttled::new(Scratch::open(folder)?, limit)),
            calibration: Calibration::new(1, 1, &[known * MIB])?,
            chunks,
        })
    });
    let mut stores = stores.collect::<Result<Vec<_>>>()?;
    let storage: Arc<dyn Storage> = match by {
        By::Volume => {
            let pause = Duration::from_millis(100);
            Arc::new(Volume::new(stores, Box::new(ShortestWait), CHUNK, pause)?)
        }
        By::Stripes => Arc::new(Stripes(
            stores.into_iter().map(|store| store.storage).collect(),
        )),
        By::Fastest => stores.swap_remove(0).storage,
    };
    let memory = open(Choice::Host)?.reserve_host(REQUEST)?;
    fill(&memory)?;
    let requests = bytes / REQUEST;
    let each = |worker: usize| (worker..requests).step_by(WORKERS);
    let down = measure(|| {
        on_threads(0..WORKERS, |worker| {
            each(worker).try_for_each(|at| -> Result<()> {
                let lent = memory.memory().lend(0..REQUEST)?;
                Ok(storage.write_at((at * REQUEST) as u64, lent.bytes()?)?)
            })
        })
        .map(drop)
    })?;
    let up = measure(|| {
        on_threads(0..WORKERS, |worker| {
            let memory = open(Choice::Host)?.reserve_host(REQUEST)?;
            each(worker).try_for_each(|at| -> Result<()> {
                let mut lent = memory.memory().lend_mut(0..REQUEST)?;
                storage.read_at((at * REQUEST) as u64, lent.bytes_mut()?)?;
                let first = lent.bytes_mut()?.first().copied();
                ensure!(first == Some(1), "what was written came back as another");
                Ok(())
            })
        })
        .map(drop)
    })?;
    Ok([down.rate(bytes as u64), up.rate(bytes as u64)])
}

fn fill(memory: &HostReservation) -> Result<()> {
    memory.memory().lend_mut(0..REQUEST)?.bytes_mut()?.fill(1);
    Ok(())
}

/// A chunk on each store in turn.
#[derive(Debug)]
struct Stripes(Vec<Arc<dyn Storage>>);

impl Stripes {
    /// The store of the chunk at `offset`, and where it lies there.
    fn at(&self, offset: u64) -> (&dyn Storage, u64) {
        let (chunk, count) = (offset / CHUNK as u64, self.0.len() as u64);
        let store = &self.0[(chunk % count) as usize];
        (&**store, chunk / count * CHUNK as u64)
    }
}

impl Storage for Stripes {
    fn alignment(&self) -> usize {
        let alignments = self.0.iter().map(|store| store.alignment());
        alignments.max().unwrap_or(1)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        let mut chunks = (offset..).step_by(CHUNK).zip(bytes.chunks(CHUNK));
        chunks.try_for_each(|(offset, chunk)| {
            let (store, at) = self.at(offset);
            store.write_at(at, chunk)
        })
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        let mut chunks = (offset..).step_by(CHUNK).zip(bytes.chunks_mut(CHUNK));
        chunks.try_for_each(|(offset, chunk)| {
            let (store, at) = self.at(offset);
            store.read_at(at, chunk)
        })
    }
}
