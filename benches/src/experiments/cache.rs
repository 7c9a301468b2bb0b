//! The blocking time of each workload with each policy, against the fluid bound that no policy can beat.
//!
//! All of it is simulated: the engine's plan in virtual time, over links with the bandwidths that were measured on an
//! H100 and on a host of eight H200. No byte is moved, and the rows say so. *Blocking* is the time in checkpoints and
//! restores; *time lost* is that and the waiting for flushes and at barriers, which is what the bound is about. The
//! bound knows the whole future: no policy can reach it where the application gives no hints.

use anyhow::Result;
use tierflow_plan::{Fifo, Lru, Residency, Score};
use tierflow_sim::{Hardware, Hints, Order, Outcome, Simulation, Workload};

use super::Run;

mod inputs;
pub mod real;
pub(crate) mod scale;

pub(crate) use inputs::recorded_shots;

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

/// Returns the hints of this name.
fn hints_of(name: &str) -> Hints {
    HINTS
        .into_iter()
        .find(|hints| hints.0 == name)
        .map_or(Hints::None, |hints| hints.1)
}

/// How large a shot and its caches are: the paper's, or a quarter of that where it has to be quick.
struct SimulatedScale {
    versions: usize,
    device: u64,
    host: u64,
}

impl SimulatedScale {
    const GIB: u64 = 1 << 30;

    fn of(run: &Run) -> Self {
        let quarters = if run.is_quick() { 1 } else { 4 };
        Self {
            versions: 96 * quarters,
            device: Self::GIB * quarters as u64,
            host: 8 * Self::GIB * quarters as u64,
        }
    }
}

/// The paper's compute interval (HPDC'23 §5.4.1).
const INTERVAL_NS: u64 = 10_000_000;
