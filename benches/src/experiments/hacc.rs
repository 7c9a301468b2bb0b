//! A run in the manner of HACC: ranks compute, meet and checkpoint nine arrays of particles. The experiment measures the run time that
//! checkpoints add: in the manner of GenericIO (synchronous), by VELOC's interface over Tierflow, and by the engine (VeloC, IPDPS'19,
//! Figures 7 and 8, at the size of one node).
//!
//! Ranks are processes that meet by lines to and from this process, not by MPI. All write to one folder on the disk that `TIERFLOW_STORE`
//! names, in place of a parallel file system. The rank of VELOC's interface is a separate program, `hacc_veloc`, an example of this
//! package, which is searched beside this program, in `examples/` there or one folder up, or at the path `TIERFLOW_HACC_VELOC`.
//!
//! Many nodes are simulated (`tierflow_sim::scale`), with the rates of the one-node run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tierflow_sim::scale::{Job, Protection, Straggle, System};

use super::{Run, measured_folder};
use crate::process::Process;
use crate::report::Spread;

mod generic_io;
mod particles;
mod rank;

pub use particles::Particles;
pub use rank::{Checkpoints, Rank, Writing};

/// Nodes that are simulated: one, to compare with the measured run, and the paper's.
const NODES: [usize; 4] = [1, 8, 32, 128];

/// Bandwidth of the simulated file system, in multiples of the rate of a node that writes alone.
const SATURATED_BY: f64 = 8.0;

/// Unflushed versions that a rank's cache holds.
const SLOTS: usize = 2;

/// The ways to write. The others are compared with the first.
const WAYS: [(&str, Writing); 4] = [
    ("no checkpoints", Writing::Nothing),
    ("GenericIO", Writing::GenericIo),
    ("VELOC's interface", Writing::Veloc),
    ("engine", Writing::Engine),
];

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let (counts, particles, steps, step_seconds, rounds): (&[usize], _, _, _, _) =
        match run.is_quick() {
            true => (&[2], 20_000, 2, 0.02, 1),
            false => (&[8, 4, 2, 1], 4_000_000, 6, 1.5, 3),
        };
    let veloc = veloc_rank();
    if veloc.is_none() {
        eprintln!(
            "  VELOC's interface is not measured: `cargo build -p tierflow-benches --example hacc_veloc` makes its rank"
        );
    }
    for &ranks in counts {
        let group = RankGroup {
            rank: Rank {
                rank: 0,
                ranks,
                particles,
                steps,
                substeps: 0,
                writing: Writing::Nothing,
                directory: PathBuf::new(),
            },
            step_seconds,
            rounds,
            veloc: veloc.clone(),
        };
        let one = step_seconds * steps as f64 * 1.5;
        let expected = Duration::from_secs_f64(one * (rounds * WAYS.len()) as f64);
        run.cell(&format!("ranks={ranks}"), expected, |run| {
            group.measure(run)
        })?;
    }
    Ok(())
}

/// Finds the program of a rank that writes by VELOC's interface.
fn veloc_rank() -> Option<PathBuf> {
    let name = "examples/hacc_veloc";
    let own = std::env::current_exe().ok()?;
    let beside = own.ancestors().skip(1).take(2).map(|at| at.join(name));
    let named = std::env::var_os("TIERFLOW_HACC_VELOC").map(PathBuf::from);
    named.into_iter().chain(beside).find(|path| path.exists())
}

/// Ranks that run in several ways.
struct RankGroup {
    rank: Rank,
    step_seconds: f64,
    rounds: usize,
    veloc: Option<PathBuf>,
}

/// The times of a run, in seconds.
#[derive(Debug, Clone, Copy)]
struct RunTimes {
    /// Time until the last step ended.
    run: f64,
    /// Time until everything was durable.
    durable: f64,
    /// Time for which checkpoints blocked the rank that they blocked longest.
    blocked: f64,
}

impl RankGroup {
    fn case(&self, way: &str) -> String {
        format!("way={way}, ranks={}", self.rank.ranks)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let substep = self.substep()?;
        let substeps = (self.step_seconds / substep).round().max(1.0) as u32;
        let ways = WAYS
            .iter()
            .filter(|(_, writing)| self.program(*writing).is_some());
        let ways: Vec<_> = ways.collect();
        let mut took: Vec<Vec<RunTimes>> = vec![Vec::new(); ways.len()];
        // Ways take turns, in another order each time, so that other load of the machine affects all of them alike.
        for round in 0..self.rounds {
            for turn in 0..ways.len() {
                let at = (turn + round) % ways.len();
                took[at].push(self.run_once(ways[at].1, substeps)?);
            }
        }
        let mut rates = NodeRates {
            bytes: self.rank.bytes() * self.rank.ranks,
            rounds: self.rank.steps as usize,
            interval: 0.0,
            synchronous: 0.0,
            copy: 0.0,
        };
        let plain = took[0].clone();
        for ((name, writing), took) in ways.iter().zip(&took) {
            let case = self.case(name);
            let samples = |of: &dyn Fn(&RunTimes, &RunTimes) -> f64| -> Vec<f64> {
                let pairs = took.iter().zip(&plain);
                pairs.map(|(took, plain)| of(took, plain) * 1e9).collect()
            };
            let all = samples(&|took, _| took.run);
            run.samples(&case, "run time", "ns", &all)?;
            let median = |of: &[f64]| Spread::of(of).map(|spread| spread.median / 1e9);
            if *writing == Writing::Nothing {
                rates.interval = median(&all)? / self.rank.steps as f64;
                continue;
            }
            let added = samples(&|took, plain| took.run - plain.run);
            run.samples(&case, "added run time", "ns", &added)?;
            let durable = samples(&|took, plain| took.durable - plain.run);
            run.samples(&case, "added until all is durable", "ns", &durable)?;
            let blocked = samples(&|took, _| took.blocked);
            run.samples(&case, "blocked in checkpoints", "ns", &blocked)?;
            let each = median(&blocked)? / self.rank.steps as f64;
            match writing {
                Writing::GenericIo => rates.synchronous = each,
                Writing::Engine => rates.copy = each,
                _ => {}
            }
        }
        run.value(
            &format!("ranks={}", self.rank.ranks),
            "bytes of a checkpoint",
            "bytes",
            rates.bytes as f64,
        )?;
        rates.simulate(run, self.rank.ranks)
    }

    /// Returns the program of a rank that writes in this way.
    fn program(&self, writing: Writing) -> Option<PathBuf> {
        match writing {
            Writing::Veloc => self.veloc.clone(),
            _ => std::env::current_exe().ok(),
        }
    }

    fn start(&self, rank: &Rank) -> Result<Vec<Process>> {
        let program = self.program(rank.writing).context("no program")?;
        let all = (0..rank.ranks).map(|number| {
            let rank = Rank {
                rank: number,
                ..rank.clone()
            };
            Process::start_of(&program, "hacc", &rank)
        });
        all.collect()
    }

    /// Returns the seconds that a substep takes while all ranks compute.
    fn substep(&self) -> Result<f64> {
        let mut all = self.start(&self.rank)?;
        Process::all_meet(&mut all)?;
        Ok(seconds(&all)?.into_iter().fold(0.0, f64::max))
    }

    fn run_once(&self, writing: Writing, substeps: u32) -> Result<RunTimes> {
        let directory = measured_folder()?;
        let rank = Rank {
            substeps,
            writing,
            directory: directory.path().to_owned(),
            ..self.rank.clone()
        };
        let mut all = self.start(&rank)?;
        // All are ready.
        Process::all_meet(&mut all)?;
        let begun = Instant::now();
        for _ in 0..2 * rank.steps {
            Process::all_meet(&mut all)?;
        }
        let blocked = seconds(&all)?.into_iter().fold(0.0, f64::max);
        let run = begun.elapsed().as_secs_f64();
        all.iter().try_for_each(|one| one.hear().map(drop))?;
        let durable = begun.elapsed().as_secs_f64();
        // Each rank has read its last checkpoint back.
        all.iter().try_for_each(|one| one.hear().map(drop))?;
        all.iter_mut().try_for_each(Process::wait)?;
        Ok(RunTimes {
            run,
            durable,
            blocked,
        })
    }
}

/// Reads a line from each process, which is a number of seconds.
fn seconds(all: &[Process]) -> Result<Vec<f64>> {
    let lines = all.iter().map(|one| Ok(one.hear()?.parse::<f64>()?));
    lines.collect()
}

/// The sizes and times of a node for the simulator, in bytes and seconds of a step.
#[derive(Debug, Clone, Copy)]
struct NodeRates {
    /// Bytes of a node's checkpoint.
    bytes: usize,
    rounds: usize,
    /// Seconds of computing.
    interval: f64,
    /// Seconds of a synchronous checkpoint.
    synchronous: f64,
    /// Seconds of a copy into the engine's cache.
    copy: f64,
}

impl NodeRates {
    /// Simulates many such nodes on one file system, which is as fast as [`SATURATED_BY`] nodes that write alone.
    fn simulate(self, run: &mut Run, ranks: usize) -> Result<()> {
        let bytes = self.bytes as f64;
        let link = bytes / self.synchronous;
        let shared = SATURATED_BY * link;
        for nodes in NODES {
            let system = System {
                nodes,
                gpus: 1,
                local: bytes / self.copy,
                network: 1e12,
                link,
                shared,
                mtbf: f64::INFINITY,
                along: 0.0,
                replaced: 0.0,
            };
            let job = Job {
                bytes,
                rounds: self.rounds,
                interval: self.interval,
                slots: SLOTS,
                every: 1,
                protection: Protection::none(),
                straggle: Straggle {
                    probability: 0.0,
                    mean: 0.0,
                },
            };
            let outcome = system.run(&job, 1)?;
            let each = bytes / link.min(shared / nodes as f64);
            let ways = [
                ("GenericIO", each * self.rounds as f64),
                ("engine", outcome.elapsed - outcome.work),
            ];
            for (way, added) in ways {
                let case = format!("simulated=yes, ranks a node={ranks}, way={way}, nodes={nodes}");
                run.value(&case, "added run time", "ns", added * 1e9)?;
            }
        }
        Ok(())
    }
}
