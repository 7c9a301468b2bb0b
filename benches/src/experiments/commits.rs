//! Durable checkpoints of 4 KiB by 64 threads, each of which waits for its own: by the store and by the engine. The optimum is one
//! write and one `fdatasync` for all threads together on this disk (group commit).
//!
//! `TIERFLOW_STORE` names the folder whose disk is measured. The default is the folder for temporary files.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_device::{Choice, open};
use tierflow_engine::Engine;
use tierflow_store::{Options, Region, Repository, Snapshot};

use super::{Run, measured_folder};
use crate::processor::measure;
use crate::report::ratios;
use crate::threads::on_threads;

const SMALL: usize = 4 << 10;
const THREADS: u64 = 64;
/// Bytes of a record: the checkpoint and its head.
const RECORD: usize = SMALL + 256;
/// Goal: the least checkpoints per second, divided by those of the optimum in the same round.
const SHARE_GOAL: f64 = 0.6;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let folder = measured_folder()?;
    let (rounds, lasting) = match run.is_quick() {
        true => (3, Duration::from_millis(200)),
        false => (7, Duration::from_secs(3)),
    };
    let mut rates: [Vec<f64>; 4] = Default::default();
    let mut together: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds {
        let directory = folder.path().join(round.to_string());
        std::fs::create_dir(&directory)?;
        rates[0].push(raw(&directory, THREADS, lasting)?);
        rates[3].push(raw(&directory, 1, lasting / 4)?);
        for (by, work) in [store, engine].into_iter().enumerate() {
            let (rate, in_a_write) = work(&directory, lasting)?;
            rates[1 + by].push(rate);
            together[by].push(in_a_write);
        }
        std::fs::remove_dir_all(&directory)?;
    }
    let case = format!("bytes={SMALL}, by=raw, one at a time");
    run.samples(&case, "checkpoints", "1/s", &rates[3])?;
    for (by, rate) in ["raw", "store", "engine"].iter().zip(&rates) {
        let case = format!("bytes={SMALL}, threads={THREADS}, by={by}");
        run.samples(&case, "checkpoints", "1/s", rate)?;
        if *by != "raw" {
            let shares = ratios(rate, &rates[0]);
            run.samples(&case, "share of the optimum", "1", &shares)?
                .against(SHARE_GOAL);
        }
    }
    for (by, together) in ["store", "engine"].iter().zip(&together) {
        let case = format!("bytes={SMALL}, threads={THREADS}, by={by}");
        run.samples(&case, "checkpoints in one write", "1", together)?;
    }
    Ok(())
}

/// Measures the optimum: one thread writes batches of `records` records, each batch with one `fdatasync`. Returns records per second.
fn raw(folder: &Path, records: u64, lasting: Duration) -> Result<f64> {
    let batch = vec![7; (records as usize * RECORD).next_multiple_of(4096)];
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
    Ok((batches * records) as f64 / begun.elapsed().as_secs_f64())
}

fn store(folder: &Path, lasting: Duration) -> Result<(f64, f64)> {
    let repository = Repository::open(folder.join("store"), Options::default())?;
    side_by_side(lasting, |version, content| {
        Ok(repository.save(&Snapshot::new(version, &[Region::new("state", content)]))?)
    })
}

fn engine(folder: &Path, lasting: Duration) -> Result<(f64, f64)> {
    let device = open(Choice::Host)?;
    let engine = Engine::builder(&device)
        .host_cache(64 << 20)
        .node_local(folder.join("engine"))
        .build()?;
    side_by_side(lasting, |version, content| {
        engine.checkpoint(version, &[tierflow_engine::Region::from(content)])?;
        Ok(engine.call().wait_version(version)?)
    })
}

/// Lets all threads `save` for the time `lasting`. Returns checkpoints per second, and checkpoints per system call that wrote.
fn side_by_side(
    lasting: Duration,
    save: impl Fn(u64, &[u8]) -> Result<()> + Sync,
) -> Result<(f64, f64)> {
    let next = AtomicU64::new(0);
    let begun = Instant::now();
    let work = || -> Result<()> {
        let content = [7; SMALL];
        while begun.elapsed() < lasting {
            save(next.fetch_add(1, Ordering::Relaxed), &content)?;
        }
        Ok(())
    };
    let took = measure(|| on_threads(0..THREADS, |_| work()).map(drop))?;
    let saved = next.load(Ordering::Relaxed) as f64;
    Ok((saved / took.time.as_secs_f64(), saved / took.writes as f64))
}
