//! The time of making a schedule.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_placement::{Greedy, LocalOnly, MinTimeMaxFlow, Problem, Strategy, Topology};

use super::{MB, machines, strategies};
use crate::experiments::Run;

/// The showcase's time for 8 GPUs (slide 20).
const PAPER_NS: f64 = 90_000.0;
/// Our goal for 8 GPUs, in ns.
const GOAL_8_NS: f64 = 10_000.0;
/// Our goal for 1024 GPUs, in ns.
const GOAL_1024_NS: f64 = 20e6;

/// Measures the response time by the number of GPUs, with 100 MB for each on average.
pub(super) fn by_gpus(run: &mut Run) -> Result<()> {
    for (name, machine, most) in machines::LARGE {
        let most = if run.is_quick() { most.min(1024) } else { most };
        let counts = (3..).map(|power| 1 << power);
        for gpus in counts.take_while(|gpus| *gpus <= most) {
            let topology = machine(gpus)?;
            let strategies: [&mut dyn Strategy; 3] =
                [&mut MinTimeMaxFlow::default(), &mut Greedy, &mut LocalOnly];
            for strategy in strategies {
                // If the room equals the bytes to place, groups of GPUs and their peers limit the time. With four times as much room, the links of one
                // GPU limit it.
                for (room, more) in [("as much as needed", 1), ("ample", 4)] {
                    let samples = times(run, &topology, 100 * MB, more, strategy)?;
                    let name = format!("machine={name}, room={room}, strategy={}", strategy.name());
                    let case = format!("{name}, gpus={gpus}");
                    let row = run.samples(&case, "response time", "ns", &samples)?;
                    match (strategy.name(), gpus) {
                        ("min-time-max-flow", 8) => row.against(GOAL_8_NS),
                        ("min-time-max-flow", 1024) => row.against(GOAL_1024_NS),
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(())
}

/// Measures the response time by the mean number of bytes, at 8 GPUs.
pub(super) fn by_bytes(run: &mut Run) -> Result<()> {
    let topology = Topology::dgx_1();
    for mean in [1, 10, 100, 1000, 10_000, 100_000, 1_000_000].map(|mb| mb * MB) {
        for mut strategy in strategies(MB) {
            // Unit increment has as many steps as there are units.
            if strategy.name() == "unit-increment" && mean > 1000 * MB {
                continue;
            }
            let samples = times(run, &topology, mean, 1, strategy.as_mut())?;
            let case = format!("strategy={}, bytes={mean}", strategy.name());
            let row = run.samples(&case, "response time at 8 GPUs", "ns", &samples)?;
            row.against(PAPER_NS);
        }
    }
    Ok(())
}

/// Returns the nanoseconds that schedules of different shares take.
fn times(
    run: &Run,
    topology: &Topology,
    mean: u64,
    more_room: u64,
    strategy: &mut dyn Strategy,
) -> Result<Vec<f64>> {
    let (most, budget) = if run.is_quick() {
        (20, Duration::from_millis(50))
    } else {
        (200, Duration::from_millis(700))
    };
    // Each sample has other shares. The first does not count, as it finds no memory to reuse.
    let began = Instant::now();
    let mut samples = Vec::new();
    for seed in 0..=most {
        let shares = machines::shares_with(more_room, topology.gpus(), mean, seed);
        let problem = Problem::new(topology, &shares)?;
        let start = Instant::now();
        black_box(strategy.schedule(black_box(&problem))?);
        let took = start.elapsed();
        if seed > 0 {
            samples.push(took.as_nanos() as f64);
        }
        if seed > 2 && began.elapsed() > budget {
            break;
        }
    }
    Ok(samples)
}
