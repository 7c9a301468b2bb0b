//! Several local stores in front of an external one, for real (VeloC, IPDPS'19, Figures 3 to 6): memory and disk are this
//! machine's file systems, and the external storage is a *throttled* memory file system that stands for a parallel
//! file system. A second series has the disk *throttled* as well, to 400 MB/s: on machines with few cores and a
//! fast disk it is the processor that limits everything else.
//!
//! `TIERFLOW_MEMORY` and `TIERFLOW_DISK` name other folders than `/dev/shm` and the one for temporary files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use tierflow_active_backend::{Effort, Options, calibrate, measure};
use tierflow_placement::stores::Calibration;
use tierflow_store::{Scratch, Storage, Throttled};

use super::{Experiment, Run};

mod checkpoint;

use checkpoint::{Case, compare};

/// Calibration and its accuracy; the policies by writers, by cache size, at a fixed total and at a fixed size per writer.
pub const EXPERIMENT: Experiment = Experiment {
    name: "veloc",
    about: "local stores before a throttled external one: calibration, and the policies side by side",
    needs_gpu: false,
    run,
};

const CHUNK: usize = 4 << 20;
/// How near a prediction is to be to what is measured.
const NEAR: f64 = 1.0;
/// The external storage's bandwidth over what the disk writes with this many writers.
const MANY: u32 = 16;
/// An external storage that is faster than the disk, and one that is slower: times the disk's bandwidth.
const FAST: f64 = 3.0;
/// A slow disk, in bytes per second.
const SLOW: u64 = 400_000_000;

/// Where the stores are, and what they were measured to do.
struct Machine {
    memory: PathBuf,
    disk: PathBuf,
    /// Bytes per second that the disk is throttled to.
    limit: Option<u64>,
    memory_calibration: Calibration,
    disk_calibration: Calibration,
    options: Options,
}

fn run(run: &mut Run) -> Result<()> {
    let fast = Machine::calibrated(run, None)?;
    strong(run, &fast)?;
    // What the paper's nodes have: a disk that is far slower than memory and processors.
    let slow = Machine::calibrated(run, Some(SLOW))?;
    strong(run, &slow)?;
    if run.is_quick() {
        return Ok(());
    }
    weak(run, &slow)?;
    by_cache(run, &slow)
}

impl Machine {
    /// Figure 3, with its calibration.
    fn calibrated(run: &mut Run, limit: Option<u64>) -> Result<Self> {
        let folder =
            |name: &str, default: PathBuf| std::env::var_os(name).map_or(default, PathBuf::from);
        let memory = folder("TIERFLOW_MEMORY", PathBuf::from("/dev/shm"));
        let disk = folder("TIERFLOW_DISK", std::env::temp_dir());
        let options = Options::default().chunk_size(CHUNK);
        let mut machine = Self {
            memory,
            disk,
            limit,
            memory_calibration: Calibration::new(1, 1, &[1.0])?,
            disk_calibration: Calibration::new(1, 1, &[1.0])?,
            options,
        };
        let (memory, disk) = (machine.open_memory()?, machine.open_disk()?);
        machine.memory_calibration = accuracy(run, "memory", memory.as_ref(), &machine.options)?;
        let name = machine.disk_name();
        machine.disk_calibration = accuracy(run, name, disk.as_ref(), &machine.options)?;
        Ok(machine)
    }

    fn open_memory(&self) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(open(&self.memory)?))
    }

    fn open_disk(&self) -> Result<Arc<dyn Storage>> {
        let scratch = open(&self.disk)?;
        Ok(match self.limit {
            Some(limit) => Arc::new(Throttled::new(scratch, limit)),
            None => Arc::new(scratch),
        })
    }

    fn disk_name(&self) -> &'static str {
        match self.limit {
            Some(_) => "disk (throttled)",
            None => "disk",
        }
    }

    /// Bytes per second that make the external storage so many times as fast as a crowded disk.
    fn external(&self, times: f64) -> u64 {
        (self.disk_calibration.throughput(MANY) * times) as u64
    }
}

fn open(folder: &Path) -> Result<Scratch> {
    let opened = Scratch::open(folder);
    let scratch = opened.with_context(|| format!("no store in {}", folder.display()))?;
    Ok(scratch)
}

/// What the spline says at the points in between, against what is measured there.
fn accuracy(
    run: &mut Run,
    name: &str,
    storage: &dyn Storage,
    options: &Options,
) -> Result<Calibration> {
    // What is throttled does not vary, and takes its time.
    let is_throttled = name.contains("throttled");
    let (step, samples, trials) = match (run.is_quick(), is_throttled) {
        (true, _) => (8, 3, 1),
        (false, true) => (20, 4, 1),
        (false, false) => (10, 7, 9),
    };
    let effort = Effort {
        first: 1,
        step,
        samples,
        trials,
    };
    let calibration = calibrate(storage, options, effort)?;
    let last = effort.first + effort.step * (effort.samples - 1);
    for writers in (effort.first..=last).step_by(effort.step as usize / 2) {
        let case = format!("store={name}, writers={writers}");
        let measured = measure(storage, options, writers, effort.trials)?;
        let predicted = calibration.throughput(writers);
        run.value(&case, "throughput, measured", "bytes/s", measured)?;
        run.value(&case, "throughput, predicted", "bytes/s", predicted)?;
        let row = run.value(&case, "predicted over measured", "1", predicted / measured)?;
        row.against(NEAR);
    }
    Ok(calibration)
}

/// Figure 5: a fixed total, by number of writers.
fn strong(run: &mut Run, machine: &Machine) -> Result<()> {
    let (writers, chunks): (&[usize], usize) = if run.is_quick() {
        (&[16], 32)
    } else {
        (&[1, 4, 16, 64], 64)
    };
    for times in [0.5, FAST] {
        for &writers in writers {
            compare(
                run,
                machine,
                &Case {
                    figure: "fixed total",
                    writers,
                    chunks_each: chunks / writers,
                    cache_chunks: chunks / 16,
                    times,
                    last: ("writers", writers),
                },
            )?;
        }
    }
    Ok(())
}

/// Figure 4: four chunks for each writer.
fn weak(run: &mut Run, machine: &Machine) -> Result<()> {
    let writers = &[16, 32];
    for &writers in writers {
        compare(
            run,
            machine,
            &Case {
                figure: "4 chunks a writer",
                writers,
                chunks_each: 4,
                cache_chunks: 8,
                times: FAST,
                last: ("writers", writers),
            },
        )?;
    }
    Ok(())
}

/// Figure 6: 16 writers, by room in the cache.
fn by_cache(run: &mut Run, machine: &Machine) -> Result<()> {
    let (rooms, chunks) = (&[4, 8, 16], 64);
    for &cache_chunks in rooms {
        compare(
            run,
            machine,
            &Case {
                figure: "16 writers",
                writers: 16,
                chunks_each: chunks / 16,
                cache_chunks,
                times: FAST,
                last: ("chunks in the cache", cache_chunks),
            },
        )?;
    }
    Ok(())
}
