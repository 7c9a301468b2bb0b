//! Processes that checkpoint to one directory of a limited bandwidth, compared with `tierflow_sim::scale`, the model that also predicts
//! the times of 100 000 GPUs.
//!
//! Each process is a node of one GPU: it computes (sleeps), meets the others, and checkpoints into a host cache that holds two versions
//! and flushes them. The processes share the bandwidth by a file that they lock, which has the time until which the bandwidth is used up.

pub mod member;

use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_sim::scale::{Job, Protection, Straggle, System};

use super::Run;
use crate::process::Process;
use crate::threads::on_threads;
use member::Member;

/// Bytes of a checkpoint.
const BYTES: usize = 8 << 20;

/// Versions that a cache holds.
const SLOTS: usize = 2;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    // In a quick run, computing is shorter by the same factor as checkpoints are smaller.
    let (rounds, counts, part): (usize, &[usize], u64) = match run.is_quick() {
        true => (4, &[2], 4),
        false => (20, &[1, 2, 4, 8], 1),
    };
    let cases = [
        ("little to compute", 50, 0.0),
        ("as much as the directory takes", 400, 0.0),
        ("much to compute", 1200, 0.0),
        ("much to compute, slowed down", 600, 0.5),
    ];
    let member = |millis: u64, slowed| Member {
        rank: 0,
        directory: std::path::PathBuf::new(),
        bytes: BYTES / part as usize,
        slots: SLOTS,
        rounds,
        millis: millis / part,
        slowed,
        bytes_per_second: 100_000_000,
    };
    let groups = counts.iter().flat_map(|&processes| {
        cases.map(|(about, millis, slowed)| (processes, about, member(millis, slowed)))
    });
    let groups: Vec<(usize, &str, Member)> = groups.collect();
    // The processes sleep nearly all the time, so on many cores, groups with separate directories do not disturb each other.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let at_a_time = match counts.iter().sum::<usize>() < cores {
        true => groups.len(),
        false => 1,
    };
    for groups in groups.chunks(at_a_time) {
        let found = on_threads(groups, |(processes, _, member)| {
            measured(*processes, member)
        })?;
        for ((processes, about, member), (elapsed, settled)) in groups.iter().zip(found) {
            let expected = simulated(*processes, member)?;
            let case = format!("{processes} processes, {about}");
            run.value(&case, "last round ended", "s", elapsed)?
                .against(expected.0);
            run.value(&case, "all durable", "s", settled)?
                .against(expected.1);
        }
    }
    Ok(())
}

/// Returns the simulated times at which the last round ended, and at which everything was durable: the means of several seeds.
fn simulated(processes: usize, member: &Member) -> Result<(f64, f64)> {
    let system = System {
        nodes: processes,
        gpus: 1,
        local: 2e9,
        network: 1e12,
        link: member.bytes_per_second as f64,
        shared: member.bytes_per_second as f64,
        mtbf: f64::INFINITY,
        along: 0.0,
        replaced: 0.0,
    };
    let job = Job {
        bytes: member.bytes as f64,
        rounds: member.rounds,
        interval: Duration::from_millis(member.millis).as_secs_f64(),
        slots: member.slots,
        every: 1,
        protection: Protection::none(),
        straggle: Straggle {
            probability: if member.slowed > 0.0 { 1.0 } else { 0.0 },
            mean: member.slowed,
        },
    };
    let seeds = 50;
    let (mut elapsed, mut settled) = (0.0, 0.0);
    for seed in 1..=seeds {
        let outcome = system.run(&job, seed)?;
        elapsed += outcome.elapsed / seeds as f64;
        settled += outcome.settled / seeds as f64;
    }
    Ok((elapsed, settled))
}

fn measured(processes: usize, member: &Member) -> Result<(f64, f64)> {
    let directory = tempfile::tempdir()?;
    let all = (0..processes).map(|rank| {
        let member = Member {
            rank,
            directory: directory.path().to_owned(),
            ..member.clone()
        };
        Process::start("shared", &member)
    });
    let mut all = all.collect::<Result<Vec<_>>>()?;
    // All are ready.
    Process::all_meet(&mut all)?;
    let begun = Instant::now();
    for _ in 0..member.rounds {
        Process::all_meet(&mut all)?;
    }
    let heard = || -> Result<f64> {
        for process in &all {
            process.hear()?;
        }
        Ok(begun.elapsed().as_secs_f64())
    };
    let (elapsed, settled) = (heard()?, heard()?);
    all.iter_mut().try_for_each(Process::wait)?;
    Ok((elapsed, settled))
}
