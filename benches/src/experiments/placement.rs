//! The placement of a group checkpoint's overflow, and the time of the decision (MASCOTS'21, as told in the SC'22 showcase). No byte is
//! moved: blocking times are those that the schedules predict.

use std::num::NonZeroU64;

use anyhow::Result;
use tierflow_placement::{
    Greedy, LocalOnly, MinTimeMaxFlow, Problem, Share, Strategy, Topology, UnitIncrement,
};

use super::Run;

pub mod machines;
mod response;
mod traces;

const MB: u64 = 1_000_000;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    example(run)?;
    traces::blocking(run)?;
    response::by_gpus(run)?;
    response::by_bytes(run)
}

/// Returns all strategies. The published strategy moves `unit` bytes at a time.
fn strategies(unit: u64) -> [Box<dyn Strategy>; 4] {
    [
        Box::new(MinTimeMaxFlow::default()),
        Box::new(UnitIncrement::new(
            NonZeroU64::new(unit).unwrap_or(NonZeroU64::MIN),
        )),
        Box::new(Greedy),
        Box::new(LocalOnly),
    ]
}

/// Reports slide 46: GPU 0 has 480 MB too much and GPU 6 240 MB, GPU 4 has room for 480 MB and GPU 1 for 240.
fn example(run: &mut Run) -> Result<()> {
    let topology = Topology::dgx_1();
    let mut shares = [Share::Spare(0); 8];
    shares[0] = Share::Remainder(480 * MB);
    shares[6] = Share::Remainder(240 * MB);
    shares[4] = Share::Spare(480 * MB);
    shares[1] = Share::Spare(240 * MB);
    let problem = Problem::new(&topology, &shares)?;
    for mut strategy in strategies(MB) {
        let schedule = strategy.schedule(&problem)?;
        let nanoseconds = schedule.makespan().as_secs_f64() * 1e9;
        let case = format!("example=slide 46, strategy={}", strategy.name());
        let row = run.value(&case, "predicted blocking time", "ns", nanoseconds)?;
        match strategy.name() {
            "greedy" => row.against(20e6),
            "min-time-max-flow" | "unit-increment" => row.against(20e6 / 3.0),
            _ => {}
        }
    }
    Ok(())
}
