//! The blocking time of each workload with each policy, against the fluid bound that no policy can beat.
//!
//! All of it is simulated: the engine's plan in virtual time, over links with the bandwidths that were measured on an
//! H100 and on a host of eight H200. No byte is moved, and the rows say so. *Blocking* is the time in checkpoints and
//! restores; *time lost* is that and the waiting for flushes and at barriers, which is what the bound is about. The
//! bound knows the whole future: no policy can reach it where the application gives no hints.

use anyhow::Result;
use tierflow_plan::{Fifo, Lru, Residency, Score};
use tierflow_sim::{Hardware, Hints, Order, Outcome, Shot, Simulation, Workload, fluid_bound};

use super::{Experiment, Run};

mod inputs;
mod matrix;
pub mod real;
mod scale;
mod schedules;
pub mod sweep;

pub(crate) use inputs::recorded_shots;

/// The matrix of HPDC'23 (Figures 5 and 6), by compute interval and cache size (Figure 8), schedules of adjoint
/// checkpointing, and by number of GPUs (Figure 9).
pub const EXPERIMENT: Experiment = Experiment {
    name: "cache",
    about: "simulated blocking time of the policies, against the bound that none can beat",
    needs_gpu: false,
    run,
};

fn run(run: &mut Run) -> Result<()> {
    matrix::run(run)?;
    schedules::run(run)?;
    scale::run(run)
}

/// A policy by its name.
#[derive(Clone, Copy)]
struct NamedPolicy {
    name: &'static str,
    choose: fn(Simulation) -> Simulation,
}

/// The policies that are compared. The first is the engine's own.
const POLICIES: [NamedPolicy; 4] = [
    NamedPolicy {
        name: "residency",
        choose: |simulation| simulation.policy(|| Residency),
    },
    NamedPolicy {
        name: "score",
        choose: |simulation| simulation.policy(|| Score),
    },
    NamedPolicy {
        name: "lru",
        choose: |simulation| simulation.policy(|| Lru),
    },
    NamedPolicy {
        name: "fifo",
        choose: |simulation| simulation.policy(|| Fifo),
    },
];

impl NamedPolicy {
    fn simulate(self, hardware: &Hardware, workloads: &[Workload]) -> Result<Outcome> {
        let simulation = (self.choose)(Simulation::new(hardware.clone()));
        Ok(simulation.run(workloads)?)
    }
}

/// Runs each of these workloads on a machine of its own with each policy, and reports the sums under the `case` of the policy's
/// name. Returns the bound's sum, and the time lost with each policy, in ns.
fn report(
    run: &mut Run,
    case: impl Fn(&str) -> String,
    hardware: &Hardware,
    workloads: &[Workload],
) -> Result<(f64, [f64; POLICIES.len()])> {
    let mut bound = 0.0;
    for workload in workloads {
        bound += fluid_bound(hardware, std::slice::from_ref(workload))?.lost_ns as f64;
    }
    let mut lost = [0.0; POLICIES.len()];
    for (policy, lost) in POLICIES.into_iter().zip(&mut lost) {
        let mut blocking = 0.0;
        for workload in workloads {
            let outcome = policy.simulate(hardware, std::slice::from_ref(workload))?;
            *lost += outcome.lost_ns() as f64;
            blocking += outcome.blocking_ns() as f64;
        }
        let case = case(policy.name);
        run.value(&case, "simulated time lost", "ns", *lost)?
            .against(bound);
        run.value(&case, "simulated blocking", "ns", blocking)?;
    }
    Ok((bound, lost))
}

const ORDERS: [(&str, Order); 3] = [
    ("sequential", Order::Sequential),
    ("reverse", Order::Reverse),
    ("irregular", Order::Irregular(1)),
];

const HINTS: [(&str, Hints); 3] = [
    ("none", Hints::None),
    ("single", Hints::Single),
    ("all", Hints::All),
];

/// How large a shot and its caches are: the paper's, or a quarter of that where it has to be quick.
struct SimulatedScale {
    versions: usize,
    device: u64,
    host: u64,
    /// Of intervals and of cache sizes, the first of so many.
    every: usize,
}

impl SimulatedScale {
    const GIB: u64 = 1 << 30;

    fn of(run: &Run) -> Self {
        let (quarters, every) = if run.is_quick() { (1, 3) } else { (4, 1) };
        Self {
            every,
            versions: 96 * quarters,
            device: Self::GIB * quarters as u64,
            host: 8 * Self::GIB * quarters as u64,
        }
    }

    fn h100(&self) -> Hardware {
        Hardware::h100(self.device, self.host)
    }

    fn uniform(&self) -> Shot {
        Shot::new(vec![128 << 20; self.versions], INTERVAL_NS)
    }
}

/// The paper's compute interval (HPDC'23 §5.4.1).
const INTERVAL_NS: u64 = 10_000_000;
