//! `tierflow calibrate`: measures the speed of a directory's disk by the number of writers and readers (VeloC, IPDPS'19, §IV-C). Run it
//! while nothing else uses the disk.

use crate::output::Output;
use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;
use tierflow_store::{Scratch, Storage};

#[derive(Debug, Args)]
pub(crate) struct CalibrateArguments {
    /// An existing directory on the disk
    directory: PathBuf,
    /// How many writers, one figure for each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    writers: Vec<usize>,
    /// MiB that each writer writes; VeloC's chunks have 64
    #[arg(long, default_value_t = 64)]
    mib: u64,
}

#[derive(Debug, Serialize)]
struct Calibration {
    directory: String,
    bytes_per_writer: u64,
    direct_io: bool,
    samples: Vec<Sample>,
}

#[derive(Debug, Serialize)]
struct Sample {
    writers: usize,
    /// Bytes per second of all writers together.
    write_bytes_per_second: u64,
    read_bytes_per_second: u64,
}

/// Bytes of one request.
const REQUEST: usize = 4 << 20;

/// The most MiB of a writer: 16 TiB.
const MOST_MIB: u64 = 16 << 20;

pub(crate) fn calibrate(arguments: &CalibrateArguments, output: Output) -> Result<()> {
    ensure!(
        (4..=MOST_MIB).contains(&arguments.mib),
        "a writer writes between 4 and {MOST_MIB} MiB"
    );
    let bytes = (arguments.mib << 20) / REQUEST as u64 * REQUEST as u64;
    ensure!(
        arguments.writers.iter().all(|n| (1..=1024).contains(n)),
        "between 1 and 1024 writers"
    );
    let scratch = Scratch::open(&arguments.directory)?;
    let rounds = arguments.writers.iter().map(|n| *n as u64 * bytes * 2);
    let bar = output.progress(rounds.fold(0, u64::saturating_add));
    let mut samples = Vec::new();
    for &writers in &arguments.writers {
        let measure = |write: bool| -> Result<u64> {
            let begun = Instant::now();
            run(&scratch, writers, bytes, write)?;
            bar.inc(writers as u64 * bytes);
            Ok((writers as f64 * bytes as f64 / begun.elapsed().as_secs_f64()) as u64)
        };
        samples.push(Sample {
            writers,
            write_bytes_per_second: measure(true)?,
            read_bytes_per_second: measure(false)?,
        });
    }
    bar.finish_and_clear();
    let calibration = Calibration {
        directory: arguments.directory.display().to_string(),
        bytes_per_writer: bytes,
        direct_io: scratch.obtained().direct,
        samples,
    };
    let mut text = format!("{:>8} {:>14} {:>14}\n", "writers", "write", "read");
    let rate = |bytes| format!("{}/s", crate::output::bytes(bytes));
    for sample in &calibration.samples {
        let write = rate(sample.write_bytes_per_second);
        let read = rate(sample.read_bytes_per_second);
        writeln!(text, "{:>8} {write:>14} {read:>14}", sample.writers)?;
    }
    if !calibration.direct_io {
        text.push_str("through the page cache: this file system has no direct I/O\n");
    }
    output.answer(&calibration, &text)
}

/// Lets each thread write, or read, its part of the file.
fn run(scratch: &Scratch, threads: usize, bytes: u64, write: bool) -> Result<()> {
    let work = |thread: usize| -> Result<()> {
        let alignment = scratch.alignment();
        let mut memory = vec![thread as u8; REQUEST + alignment];
        let start = memory.as_ptr().align_offset(alignment);
        let memory = &mut memory[start..start + REQUEST];
        let first = thread as u64 * bytes;
        for offset in (first..first + bytes).step_by(REQUEST) {
            if write {
                scratch.write_at(offset, memory)?;
            } else {
                scratch.read_at(offset, memory)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })
}
