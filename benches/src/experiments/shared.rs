//! Processes that checkpoint to one directory of a limited bandwidth, held against `tierflow_sim::scale`: the same model that tells what
//! 100 000 GPUs do.
//!
//! Each process is a node of one GPU: it computes (sleeps), meets the others, and checkpoints into a host cache that holds two
//! versions, from where they are flushed. What all of them may write is paid for in a file that they lock.

pub mod process;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tierflow_sim::scale::{Job, Protection, Straggle, System};

use super::{Experiment, Run};
use process::Member;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared",
    about: "1 to 8 processes on one throttled directory, against the simulator of many nodes on a shared file system",
    needs_gpu: false,
    run,
};

/// Bytes of a checkpoint.
const BYTES: usize = 8 << 20;

/// Versions that a cache holds.
const SLOTS: usize = 2;

fn run(run: &mut Run) -> Result<()> {
    let rounds = if run.is_quick() { 4 } else { 20 };
    let counts: &[usize] = if run.is_quick() { &[2] } else { &[1, 2, 4, 8] };
    let cases = [
        ("little to compute", 50, 0.0),
        ("as much as the directory takes", 400, 0.0),
        ("much to compute", 1200, 0.0),
        ("much to compute, slowed down", 600, 0.5),
    ];
    let member = |millis, slowed| Member {
        rank: 0,
        directory: std::path::PathBuf::new(),
        bytes: BYTES,
        slots: SLOTS,
        rounds,
        millis,
        slowed,
        bytes_per_second: 100_000_000,
    };
    let groups = counts.iter().flat_map(|&processes| {
        cases.map(|(about, millis, slowed)| (processes, about, member(millis, slowed)))
    });
    let groups: Vec<(usize, &str, Member)> = groups.collect();
    // They sleep nearly all the time: on many cores, groups on directories of their own do not disturb each other.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let at_a_time = match counts.iter().sum::<usize>() < cores {
        true => groups.len(),
        false => 1,
    };
    for groups in groups.chunks(at_a_time) {
        let found = std::thread::scope(|scope| {
            let under_way = groups
                .iter()
                .map(|(processes, _, member)| scope.spawn(|| measured(*processes, member)));
            let under_way: Vec<_> = under_way.collect();
            let ended = under_way.into_iter().map(|group| {
                let panicked = |_panic| anyhow::anyhow!("a measurement panicked");
                group.join().map_err(panicked)?
            });
            ended.collect::<Result<Vec<_>>>()
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

/// When the last round ended, and when all was durable, in the simulator: the mean of several seeds.
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

/// A process, and the lines to and from it.
struct Running {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Running {
    /// Waits for its next line.
    fn hear(&mut self) -> Result<()> {
        let read = self.answers.read_line(&mut String::new())?;
        ensure!(read > 0, "a process ended before it was done");
        Ok(())
    }

    fn tell(&mut self) -> Result<()> {
        writeln!(self.orders)?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that is done has left; any other is of no use any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measured(processes: usize, member: &Member) -> Result<(f64, f64)> {
    let directory = tempfile::tempdir()?;
    let mut all = Vec::new();
    for rank in 0..processes {
        let member = Member {
            rank,
            directory: directory.path().to_owned(),
            ..member.clone()
        };
        let mut child = Command::new(std::env::current_exe()?)
            .arg("member")
            .arg(serde_json::to_string(&member)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        all.push(Running {
            child,
            orders: orders.context("the process takes no orders")?,
            answers: BufReader::new(answers.context("the process gives no answers")?),
        });
    }
    let meet = |all: &mut Vec<Running>| -> Result<()> {
        all.iter_mut().try_for_each(Running::hear)?;
        all.iter_mut().try_for_each(Running::tell)
    };
    // All are ready.
    meet(&mut all)?;
    let begun = Instant::now();
    for _ in 0..member.rounds {
        meet(&mut all)?;
    }
    all.iter_mut().try_for_each(Running::hear)?;
    let elapsed = begun.elapsed().as_secs_f64();
    all.iter_mut().try_for_each(Running::hear)?;
    let settled = begun.elapsed().as_secs_f64();
    for mut running in all {
        let ended = running.child.wait()?;
        ensure!(ended.success(), "a process failed: {ended}");
    }
    Ok((elapsed, settled))
}
