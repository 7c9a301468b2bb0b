//! Durable checkpoints against the disk's own bandwidth: the rates of large checkpoints in both directions, and the number of small
//! checkpoints per second.
//!
//! `TIERFLOW_STORE` names the folder whose disk is measured. The default is the folder for temporary files.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tierflow_store::{Options, Region, Repository, Retention, Snapshot};

use super::raw::Raw;
use super::{Run, measured_folder};
use crate::processor::{Timings, measure};
use crate::report::{Spread, ratios};
use crate::threads::on_threads;

const SMALL: usize = 4 << 10;
/// Threads of the store.
const THREADS: usize = 4;
/// Goal: the least bandwidth of large checkpoints, divided by that of raw I/O in the same round.
const SHARE_GOAL: f64 = 0.95;
/// Goal: the most cores that large checkpoints keep busy.
const CORES_GOAL: f64 = 1.0;
/// Goal: the least checkpoints of 4 KiB per second.
const GOAL: f64 = 50_000.0;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let folder = measured_folder()?;
    large(run, folder.path())?;
    small(run, folder.path())
}

/// Rounds before the measurement. Pruned versions leave files that later versions overwrite; raw I/O overwrites a file from the
/// beginning.
const WARMING: u64 = 3;

/// Measures large checkpoints. Raw and durable writes take turns, so that changes of the disk affect both.
fn large(run: &mut Run, folder: &Path) -> Result<()> {
    let (size, rounds) = match run.is_quick() {
        true => (32 << 20, 5),
        false => (128 << 20, 25),
    };
    let repository = Repository::open(folder.join("large"), Options::default().threads(THREADS))?;
    let content: Vec<u8> = (0..size).map(|at: usize| ((at / 61) ^ at) as u8).collect();
    let regions = [Region::new("state", &content)];
    let mut memory = vec![0; size];
    let (mut times, mut cores): ([Vec<f64>; 4], [Vec<f64>; 4]) = Default::default();
    let mut note = |at: usize, took: Timings| {
        times[at].push(took.rate(size as u64));
        cores[at].push(took.cores());
    };
    let mut raw = Raw::new(run, folder, size as u64, true)?;
    raw.calibrate(run)?;
    for round in 0..WARMING + rounds {
        note(0, raw.write()?);
        let snapshot = Snapshot::new(round, &regions);
        note(1, measure(|| Ok(repository.save(&snapshot)?))?);
        note(2, raw.read()?);
        memory.fill(0);
        let restored = measure(|| {
            let piece = repository.piece(round)?;
            Ok(piece.restore(&mut [("state", &mut memory)])?)
        });
        note(3, restored?);
        ensure!(memory == content, "version {round} came back as another");
        repository.prune(&Retention::newest(1))?;
    }
    for all in times.iter_mut().chain(&mut cores) {
        all.drain(..WARMING as usize);
    }
    for (way, raw, durable) in [("save", 0, 1), ("restore", 2, 3)] {
        let case = format!("bytes={size}, way={way}, by=raw");
        run.samples(&case, "bandwidth", "bytes/s", &times[raw])?;
        let reference = Spread::of(&times[raw])?.median;
        let case = format!("bytes={size}, way={way}, by=store");
        run.samples(&case, "bandwidth", "bytes/s", &times[durable])?
            .against(reference);
        let shares = ratios(&times[durable], &times[raw]);
        run.samples(&case, "share of raw I/O in the same round", "1", &shares)?
            .against(SHARE_GOAL);
        run.samples(&case, "cores busy", "1", &cores[durable])?
            .against(CORES_GOAL);
    }
    Ok(())
}

/// Measures checkpoints of 4 KiB per second, by threads and checkpoints in one call, with old versions pruned meanwhile. Each checkpoint
/// is on the disk when its call returns.
fn small(run: &mut Run, folder: &Path) -> Result<()> {
    let lasting = Duration::from_millis(if run.is_quick() { 250 } else { 20_000 });
    for (threads, calls_of) in [(1, 1), (64, 1), (1, 64), (1, 2048), (2, 2048)] {
        let directory = folder.join(format!("small-{threads}-{calls_of}"));
        let repository = Repository::open(&directory, Options::default())?;
        let (next, saved) = (AtomicU64::new(0), AtomicU64::new(0));
        let begun = Instant::now();
        let work = || -> Result<()> {
            let content = [7; SMALL];
            let regions = [Region::new("state", &content)];
            while begun.elapsed() < lasting {
                let first = next.fetch_add(calls_of, Ordering::Relaxed);
                let versions = first..first + calls_of;
                let snapshots: Vec<_> = versions
                    .map(|version| Snapshot::new(version, &regions))
                    .collect();
                repository.save_all(&snapshots)?;
                saved.fetch_add(calls_of, Ordering::Relaxed);
                if first / 200_000 != (first + calls_of) / 200_000 {
                    repository.prune(&Retention::newest(50_000))?;
                }
            }
            Ok(())
        };
        on_threads(0..threads, |_| work())?;
        let rate = saved.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
        let case = format!("bytes={SMALL}, threads={threads}, in one call={calls_of}");
        run.value(&case, "checkpoints", "1/s", rate)?.against(GOAL);
        drop(repository);
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}
