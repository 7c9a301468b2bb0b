//! Figures 5 to 8 of HPDC'23: the rates of checkpoints and restores by approach, order of restores, hints, sizes, waiting for flushes,
//! compute interval and device cache.
//!
//! A history has 96 versions in a quarter of the paper's caches (1 GiB on the device, 8 GiB on the host), or the paper's 384 versions in
//! 4 GiB and 32 GiB if `TIERFLOW_SCALE=paper` is set. `TIERFLOW_TRACES` names a folder of recorded sizes; without it sizes are made
//! up. The experiment may run in pieces: `experiments run hpdc --minutes 8 --out FILE`, again and again with the same file.

use std::time::Duration;

use anyhow::Result;
use tierflow_sim::{Order, Shot};

use super::super::{ORDERS, hints_of, inputs};
use super::play::{Played, play};
use super::{Approach, Machine, Scale};
use crate::experiments::Run;

/// Restores that are summed up in one point of Figure 7.
const PARTS: usize = 12;

/// The approaches that are compared with UVM, whose histories are in memory only.
const IN_MEMORY: [Approach; 3] = [
    Approach::Uvm,
    Approach::ScoreInMemory,
    Approach::TierflowInMemory,
];

/// The approaches with all three tiers.
const WITH_DISK: [Approach; 2] = [Approach::Score, Approach::Tierflow];

/// The approaches that are compared in the hardest cell only.
const OTHERS: [Approach; 2] = [Approach::Lru, Approach::Fifo];

/// The rate of a disk from which the time of a cell is estimated.
const DISK_BYTES_PER_S: u64 = 1_500_000_000;

/// The shape of a history. Restores begin at once, or after everything is flushed.
#[derive(Debug, Clone, Copy)]
struct Shape {
    sizes: &'static str,
    order: &'static str,
    hints: &'static str,
    waits: bool,
}

/// The sizes of versions, by name.
struct Sizes {
    uniform: Vec<u64>,
    variable: Vec<u64>,
    /// The origin of the varying sizes.
    traces: &'static str,
}

struct Hpdc<'a> {
    run: &'a mut Run,
    machine: Machine,
    sizes: Sizes,
}

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let is_whole = std::env::var("TIERFLOW_SCALE").is_ok_and(|scale| scale == "paper");
    let machine = Machine::open(run, u32::from(!is_whole))?;
    let sizes = Sizes {
        uniform: machine.scale.uniform(),
        variable: machine.scale.variable(1)?.swap_remove(0),
        traces: inputs::shots(1, machine.scale.versions)?.origin,
    };
    let mut hpdc = Hpdc {
        run,
        machine,
        sizes,
    };
    // The most important cells come first, as time may not suffice for all.
    let hardest = |waits| Shape {
        sizes: "variable",
        order: "irregular",
        hints: "all",
        waits,
    };
    for waits in [false, true] {
        hpdc.all_hints(hardest(waits), &IN_MEMORY)?;
        hpdc.all_hints(hardest(waits), &WITH_DISK)?;
    }
    let sequential = Shape {
        sizes: "uniform",
        order: "sequential",
        ..hardest(false)
    };
    hpdc.all_hints(sequential, &IN_MEMORY)?;
    hpdc.all_hints(sequential, &WITH_DISK)?;
    hpdc.all_hints(hardest(false), &OTHERS)?;
    for ways in [&IN_MEMORY[..], &WITH_DISK] {
        let usual = hpdc.machine.scale;
        for hints in ["all", "none"] {
            let shape = Shape {
                hints,
                ..hardest(false)
            };
            for percent in [50, 200, 400] {
                let device = usual.device * percent / 100;
                hpdc.points(shape, Scale { device, ..usual }, ways, Hpdc::by_cache)?;
            }
            for percent in [50, 200, 300] {
                let interval = usual.interval * percent / 100;
                hpdc.points(shape, Scale { interval, ..usual }, ways, Hpdc::by_interval)?;
            }
        }
        for waits in [false, true] {
            for sizes in ["uniform", "variable"] {
                for order in ["irregular", "reverse", "sequential"] {
                    let shape = Shape {
                        sizes,
                        order,
                        ..hardest(waits)
                    };
                    hpdc.all_hints(shape, ways)?;
                }
            }
        }
    }
    hpdc.all_hints(hardest(true), &OTHERS)
}

impl Hpdc<'_> {
    fn all_hints(&mut self, shape: Shape, ways: &[Approach]) -> Result<()> {
        for hints in ["all", "none", "single"] {
            let shape = Shape { hints, ..shape };
            for &way in ways {
                self.cell(shape, way)?;
            }
        }
        // The approach on demand fetches nothing ahead, so hints have no effect.
        let shape = Shape {
            hints: "none",
            ..shape
        };
        self.cell(shape, Approach::OnDemand)
    }

    /// Measures a cell with the usual caches and interval. The cell of the hardest shape is a point of Figure 8, too.
    fn cell(&mut self, shape: Shape, way: Approach) -> Result<()> {
        let machine = self.machine.clone();
        let case = format!("{}, approach={}", self.named(shape), way.name());
        let is_point = !OTHERS.contains(&way)
            && !shape.waits
            && (shape.sizes, shape.order) == ("variable", "irregular")
            && shape.hints != "single";
        let by = [Self::by_cache, Self::by_interval];
        let by = by.map(|named| named(self, shape, way, &machine.scale));
        self.measure(&machine, shape, &case, way, |run, played| {
            report(run, &case, played)?;
            for case in by.iter().filter(|_| is_point) {
                report(run, case, played)?;
            }
            match (shape.sizes, shape.order, shape.waits) {
                ("uniform", "sequential", false) => by_iteration(run, &case, played),
                _ => Ok(()),
            }
        })
    }

    /// Plays the shape with other caches or pauses, as cells with the names that `named` returns.
    fn points(
        &mut self,
        shape: Shape,
        scale: Scale,
        ways: &[Approach],
        named: fn(&Self, Shape, Approach, &Scale) -> String,
    ) -> Result<()> {
        let machine = self.machine.of_scale(scale);
        for &way in ways {
            let case = named(self, shape, way, &scale);
            self.measure(&machine, shape, &case, way, |run, played| {
                report(run, &case, played)
            })?;
        }
        Ok(())
    }

    fn by_cache(&self, shape: Shape, way: Approach, scale: &Scale) -> String {
        let (case, mib) = (self.named(shape), scale.device as f64 / f64::from(1 << 20));
        format!("{case}, approach={}, device cache in MiB={mib}", way.name())
    }

    fn by_interval(&self, shape: Shape, way: Approach, scale: &Scale) -> String {
        let (case, ms) = (self.named(shape), scale.interval.as_secs_f64() * 1e3);
        format!(
            "{case}, approach={}, compute interval in ms={ms}",
            way.name()
        )
    }

    fn named(&self, shape: Shape) -> String {
        let Shape {
            sizes,
            order,
            hints,
            waits,
        } = shape;
        let restores = if waits { "after flushes" } else { "at once" };
        let (versions, traces) = (self.machine.scale.versions, self.sizes.traces);
        format!(
            "versions={versions}, traces={traces}, restores={restores}, sizes={sizes}, order={order}, hints={hints}"
        )
    }

    /// Plays a history as a cell of the run.
    fn measure(
        &mut self,
        machine: &Machine,
        shape: Shape,
        case: &str,
        way: Approach,
        report: impl FnOnce(&mut Run, &Played) -> Result<()>,
    ) -> Result<()> {
        if let Some(part) = machine.lacks(way) {
            eprintln!("  {case}: not run: it needs {part}, and this machine has none");
            return Ok(());
        }
        let sizes = match shape.sizes {
            "uniform" => &self.sizes.uniform,
            _ => &self.sizes.variable,
        };
        let shot = Shot {
            order: ORDERS
                .into_iter()
                .find(|one| one.0 == shape.order)
                .map_or(Order::Sequential, |one| one.1),
            hints: hints_of(shape.hints),
            wait: shape.waits,
            ..machine.scale.shot(sizes.clone())
        };
        let workload = shot.workload();
        let compute = Duration::from_nanos(workload.compute_ns());
        let flushed = match shape.waits && !way.keeps_all_in_memory() {
            true => Duration::from_secs(workload.bytes() / DISK_BYTES_PER_S),
            false => Duration::ZERO,
        };
        let expected = compute * 3 / 2 + Duration::from_secs(1) + flushed;
        self.run.cell(case, expected, |run| {
            report(run, &play(machine, way, &workload)?)
        })
    }
}

/// Reports the rates that Figures 5, 6 and 8 show, and the times from which they are computed.
fn report(run: &mut Run, case: &str, played: &Played) -> Result<()> {
    let rate =
        |times: u64, took: Duration| (times * played.bytes) as f64 / took.as_secs_f64().max(1e-9);
    let rates = [
        ("rate of checkpoints", rate(1, played.checkpoints)),
        ("rate of restores", rate(1, played.restores)),
        ("rate of both", rate(2, played.blocking())),
    ];
    for (metric, rate) in rates {
        run.value(case, metric, "bytes/s", rate)?;
    }
    run.time(case, "blocking", played.blocking())?;
    run.time(case, "waited for flushes", played.waited)?;
    run.value(case, "prefetch distance, mean", "versions", played.distance)?;
    for &(metric, rate) in &played.migration {
        run.value(case, metric, "bytes/s", rate)?;
    }
    let mut restores: Vec<_> = played.each_restore.iter().map(|one| one.took).collect();
    restores.sort_unstable();
    if let (Some(median), Some(&worst)) = (restores.get(restores.len() / 2), restores.last()) {
        run.time(case, "restore, median", *median)?;
        run.time(case, "restore, worst", worst)?;
    }
    for blocked in &played.causes {
        let metric = format!("{}: {}", blocked.calls, blocked.cause);
        run.time(case, &metric, blocked.time)?;
    }
    Ok(())
}

/// Reports Figure 7: restore rate and prefetch distance along the restores.
fn by_iteration(run: &mut Run, case: &str, played: &Played) -> Result<()> {
    let part = played.each_restore.len().div_ceil(PARTS).max(1);
    for (at, restores) in played.each_restore.chunks(part).enumerate() {
        let case = format!("{case}, iteration={}", at * part);
        let bytes: u64 = restores.iter().map(|restore| restore.bytes).sum();
        let time: Duration = restores.iter().map(|restore| restore.took).sum();
        let distances: u64 = restores.iter().map(|restore| restore.distance).sum();
        let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
        run.value(&case, "restore rate", "bytes/s", rate)?;
        let distance = distances as f64 / restores.len() as f64;
        run.value(&case, "prefetch distance", "versions", distance)?;
    }
    Ok(())
}
