//! HPDC'23, Figure 9, and slide 36 of the SC'22 showcase: the hardest history of `hpdc` (irregular order, sizes that vary, no waiting
//! for flushes) in several processes at once, each with a GPU of its own, by approach and hints.
//!
//! There are as many processes as GPUs, then half as many, down to one. Without a GPU, there are two processes, each on a device of
//! plain memory. *Coupled* processes meet before each checkpoint and each restore; waiting for the others does not count as blocking.
//! Histories are a quarter of the paper's.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tierflow_sim::{Op, Order, Shot, Workload};

use super::super::{hints_of, inputs};
use super::play::play_among;
use super::{Approach, Machine};
use crate::experiments::Run;
use crate::machine::{device_of, gpus};
use crate::process::{Process, meet, say};

const QUARTERS: u32 = 1;

/// The approaches, those of the paper's claims first. The approach on demand fetches nothing ahead, so hints have no effect on it.
const WAYS: [Approach; 6] = [
    Approach::Uvm,
    Approach::ScoreInMemory,
    Approach::TierflowInMemory,
    Approach::OnDemand,
    Approach::Score,
    Approach::Tierflow,
];

/// Time of a cell in addition to computing, in which processes start and pin their memory.
const TO_BEGIN: Duration = Duration::from_secs(6);

/// The history of a process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::experiments) struct GpuPlayer<'a> {
    /// The process's number, which chooses its GPU and the shot whose sizes it has.
    index: usize,
    processes: usize,
    quick: bool,
    way: Approach,
    hints: &'a str,
    coupled: bool,
}

/// The measurement of a process: bytes of all its checkpoints, and the seconds in which it was blocked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PlayerTimes {
    bytes: f64,
    checkpointing: f64,
    restoring: f64,
}

impl GpuPlayer<'_> {
    /// Plays the process's history, meets the others by a line each way, and prints the measurement.
    pub(in crate::experiments) fn serve(&self) -> Result<()> {
        let machine = Machine::on(device_of(self.index)?, QUARTERS, self.quick);
        let workload = self.workload(&machine)?;
        let barriers = workload.ops.iter().filter(|op| matches!(op, Op::Barrier));
        ensure!(
            barriers.count() == self.barriers(machine.scale.versions),
            "the shots differ in their versions, so coupled processes would wait for ever"
        );
        let played = play_among(&machine, self.way, &workload, Some(meet))?;
        say(&serde_json::to_string(&PlayerTimes {
            bytes: played.bytes as f64,
            checkpointing: played.checkpoints.as_secs_f64(),
            restoring: played.restores.as_secs_f64(),
        })?)
    }

    /// Returns the number of times that the process meets the others within its history.
    fn barriers(&self, versions: usize) -> usize {
        if self.coupled { 2 * versions } else { 0 }
    }

    fn workload(&self, machine: &Machine) -> Result<Workload> {
        let sizes = machine.scale.variable(self.processes)?;
        let shot = Shot {
            order: Order::Irregular(1),
            hints: hints_of(self.hints),
            coupled: self.coupled,
            ..machine.scale.shot(sizes[self.index].clone())
        };
        Ok(shot.workload())
    }
}

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let machine = Machine::open(run, QUARTERS)?;
    let gpus = gpus().len();
    let most = if gpus == 0 { 2 } else { gpus };
    let counts = std::iter::successors(Some(most), |count| (*count > 1).then_some(count / 2));
    for processes in counts {
        for coupled in [false, true] {
            for hints in ["none", "single", "all"] {
                for way in WAYS {
                    let player = GpuPlayer {
                        index: 0,
                        processes,
                        quick: run.is_quick(),
                        way,
                        hints,
                        coupled,
                    };
                    let one_will_do = processes == 1 && coupled;
                    if !one_will_do && (way != Approach::OnDemand || hints == "none") {
                        cell(run, &machine, player)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn cell(run: &mut Run, machine: &Machine, player: GpuPlayer<'_>) -> Result<()> {
    let GpuPlayer {
        processes,
        way,
        hints,
        coupled,
        ..
    } = player;
    let (versions, traces) = (
        machine.scale.versions,
        inputs::shots(processes, machine.scale.versions)?.origin,
    );
    let case = format!(
        "versions={versions}, traces={traces}, coupled={}, hints={hints}, approach={}, processes={processes}",
        if coupled { "yes" } else { "no" },
        way.name()
    );
    if let Some(part) = machine.lacks(way) {
        eprintln!("  {case}: not run: it needs {part}, and this machine has none");
        return Ok(());
    }
    let workload = player.workload(machine)?;
    let expected = TO_BEGIN + Duration::from_nanos(workload.compute_ns()) * 3 / 2;
    run.cell(&case, expected, |run| {
        let times = measured(player, versions)?;
        let mut rates = |metric, rate: fn(&PlayerTimes) -> f64| {
            let rates: Vec<f64> = times.iter().map(rate).collect();
            run.samples(&case, metric, "bytes/s", &rates).map(drop)
        };
        rates("rate of checkpoints", |one| one.bytes / one.checkpointing)?;
        rates("rate of restores", |one| one.bytes / one.restoring)?;
        rates("rate of both", |one| {
            2.0 * one.bytes / (one.checkpointing + one.restoring)
        })
    })
}

/// Lets the processes play at the same time.
fn measured(player: GpuPlayer<'_>, versions: usize) -> Result<Vec<PlayerTimes>> {
    let all = 0..player.processes;
    let all = all.map(|index| Process::start("hpdc-scale", &GpuPlayer { index, ..player }));
    let meetings = 1 + player.barriers(versions);
    Process::answers(all.collect::<Result<_>>()?, meetings as u64)
}
