//! The rate at which this machine copies host memory: the physical limit of everything that moves bytes through it.

use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Run;
use crate::random::fill;
use crate::threads::on_threads;

const MIB: usize = 1 << 20;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let (bytes, trials) = if run.is_quick() {
        (128 * MIB, 5)
    } else {
        (512 * MIB, 15)
    };
    let cores = std::thread::available_parallelism()?.get();
    let mut threads = 1;
    while threads < cores {
        report(run, threads, bytes, trials)?;
        threads *= 2;
    }
    report(run, cores, bytes, trials)
}

fn report(run: &mut Run, threads: usize, bytes: usize, trials: u64) -> Result<()> {
    let samples = bandwidth(threads, bytes, trials)?;
    run.samples(
        &format!("threads={threads}"),
        "bandwidth",
        "bytes/s",
        &samples,
    )?;
    Ok(())
}

/// Returns the payload bytes per second of `trials` copies of `bytes` bytes, each shared by `threads` threads.
///
/// Every trial copies fresh random data into memory that was touched before. `bytes` must be larger than the processor's caches, which
/// are measured otherwise.
///
/// # Errors
/// An error if a thread dies.
pub fn bandwidth(threads: usize, bytes: usize, trials: u64) -> Result<Vec<f64>> {
    let mut from = vec![0_u8; bytes];
    let mut to = vec![1_u8; bytes];
    let mut samples = Vec::new();
    for trial in 0..trials {
        fill(&mut from, trial);
        samples.push(timed_copy(&from, &mut to, threads)?);
        anyhow::ensure!(
            from == to,
            "the copy of trial {trial} differs from its source"
        );
    }
    Ok(samples)
}

/// Returns the payload bytes per second, from the first thread's start to the last thread's end.
fn timed_copy(from: &[u8], to: &mut [u8], threads: usize) -> Result<f64> {
    let share = from.len().div_ceil(threads).max(1);
    let pieces: Vec<_> = from.chunks(share).zip(to.chunks_mut(share)).collect();
    let start = Barrier::new(pieces.len());
    let times = on_threads(pieces, |(from, to)| {
        start.wait();
        let began = Instant::now();
        to.copy_from_slice(from);
        Ok((began, Instant::now()))
    })?;
    let began = times.iter().map(|(began, _)| *began).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let (began, ended) = began.zip(ended).context("nothing was copied")?;
    Ok(from.len() as f64 / (ended - began).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_whatever_the_number_of_threads() {
        for threads in [1, 3, 8] {
            let mut from = vec![0; 1013];
            fill(&mut from, 7);
            let mut to = vec![0; 1013];
            assert!(timed_copy(&from, &mut to, threads).unwrap() > 0.0);
            assert_eq!(from, to);
        }
    }

    #[test]
    fn each_trial_has_data_of_its_own() {
        let (mut one, mut other) = ([0; 64], [0; 64]);
        fill(&mut one, 0);
        fill(&mut other, 1);
        assert_ne!(one, other);
    }
}
