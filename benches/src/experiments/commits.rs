//! Durable checkpoints of 4 KiB by 64 threads, each of which waits for its own: by the store, and by the engine, beside what one
//! write and one `fdatasync` for all of them would reach on this disk (group commit).
//!
//! `TIERFLOW_STORE` names the folder whose disk is measured; else it is the one for temporary files.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tempfile::TempDir;
use tierflow_device::{Choice, open};
use tierflow_engine::Engine;
use tierflow_store::{Options, Region, Repository, Snapshot};

use super::{Experiment, Run};
use crate::threads::on_threads;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "commits",
    about: "durable 4 KiB checkpoints of 64 threads beside one write and one fdatasync for all of them",
    needs_gpu: false,
    run,
};

const SMALL: usize = 4 << 10;
const THREADS: u64 = 64;
/// Bytes of a record: the checkpoint and its head.
const RECORD: usize = SMALL + 256;
/// What is to be reached, of the optimum.
const SHARE_GOAL: f64 = 0.6;

fn run(run: &mut Run) -> Result<()> {
    let folder = match std::env::var_os("TIERFLOW_STORE") {
        Some(folder) => TempDir::new_in(folder)?,
        None => TempDir::new()?,
    };
    let (rounds, lasting) = match run.is_quick() {
        true => (3, Duration::from_millis(500)),
        false => (7, Duration::from_secs(3)),
    };
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        let directory = folder.path().join(round.to_string());
        std::fs::create_dir(&directory)?;
        rates[0].push(raw(&directory, lasting)?);
        rates[1].push(store(&directory, lasting)?);
        rates[2].push(engine(&directory, lasting)?);
        std::fs::remove_dir_all(&directory)?;
    }
    for (by, rate) in ["raw", "store", "engine"].iter().zip(&rates) {
        let case = format!("bytes={SMALL}, threads={THREADS}, by={by}");
        run.samples(&case, "checkpoints", "1/s", rate)?;
        if *by != "raw" {
            let pairs = rate.iter().zip(&rates[0]);
            let shares: Vec<f64> = pairs.map(|(rate, raw)| rate / raw).collect();
            run.samples(&case, "share of the optimum", "1", &shares)?
                .against(SHARE_GOAL);
        }
    }
    Ok(())
}

/// One thread writes the records of all, one batch behind the other, each made to last.
fn raw(folder: &Path, lasting: Duration) -> Result<f64> {
    let batch = vec![7; (THREADS as usize * RECORD).next_multiple_of(4096)];
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(folder.join("raw"))?;
    let (mut at, mut batches) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < lasting {
        file.write_all_at(&batch, at)?;
        file.sync_data()?;
        at += batch.len() as u64;
        batches += 1;
    }
    Ok((batches * THREADS) as f64 / begun.elapsed().as_secs_f64())
}

fn store(folder: &Path, lasting: Duration) -> Result<f64> {
    let repository = Repository::open(folder.join("store"), Options::default())?;
    side_by_side(lasting, |version, content| {
        Ok(repository.save(&Snapshot {
            version,
            base: None,
            regions: &[Region::new("state", content)],
        })?)
    })
}

fn engine(folder: &Path, lasting: Duration) -> Result<f64> {
    let device = open(Choice::Host)?;
    let engine = Engine::builder(&device)
        .host_cache(64 << 20)
        .node_local(folder.join("engine"))
        .build()?;
    side_by_side(lasting, |version, content| {
        engine.checkpoint(version, &[tierflow_engine::Region::from(content)])?;
        Ok(engine.wait_version(version)?)
    })
}

/// Checkpoints a second, by all threads.
fn side_by_side(lasting: Duration, save: impl Fn(u64, &[u8]) -> Result<()> + Sync) -> Result<f64> {
    let (next, saved) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let work = || -> Result<()> {
        let content = [7; SMALL];
        while begun.elapsed() < lasting {
            save(next.fetch_add(1, Ordering::Relaxed), &content)?;
            saved.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    on_threads(THREADS as usize, |_| work())?;
    Ok(saved.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}
