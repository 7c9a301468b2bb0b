//! Prints the efficiency for different intervals between checkpoints, for up to 100 000 GPUs on a shared parallel file system.
//!
//! `cargo run --release -p tierflow-sim --example scale` prints means over 4 runs, or over the number given as an argument. For comparison
//! the example prints Young's and Daly's optima and Daly's efficiency, for a file system that is written while the application waits, and
//! for node-local memory alone.

use std::time::Instant;
use tierflow_sim::scale::{
    Job, JobOutcome, Protection, Straggle, System, daly_efficiency, daly_interval, young_interval,
};

const GB: f64 = 1e9;
const HOUR: f64 = 3600.0;
const YEAR: f64 = 365.0 * 24.0 * HOUR;

/// Returns nodes of eight GPUs with 400 GB/s to host memory and 50 GB/s to other nodes and to the file system, which takes 5 TB/s of all
/// nodes together. A node fails once a year, and in one of 20 failures the next node fails, too.
fn system(gpus: usize) -> System {
    System {
        nodes: gpus / 8,
        gpus: 8,
        local: 400.0 * GB,
        network: 50.0 * GB,
        link: 50.0 * GB,
        shared: 5000.0 * GB,
        mtbf: YEAR,
        along: 0.05,
        replaced: 300.0,
    }
}

/// Returns a job of a day of computing with 40 GB of state on each GPU. In a round, one GPU of 10 000 is about two percent slower.
fn job(interval: f64, protection: Protection) -> Job {
    Job {
        bytes: 40.0 * GB,
        rounds: (24.0 * HOUR / interval).ceil() as usize,
        interval,
        slots: 2,
        every: 1,
        protection,
        straggle: Straggle {
            probability: 1e-4,
            mean: 0.02,
        },
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seeds = std::env::args()
        .nth(1)
        .map_or(Ok(4), |n| n.parse::<u64>())?;
    for gpus in [1_000, 10_000, 100_000] {
        let system = system(gpus);
        let of_job = system.mtbf / system.nodes as f64;
        let bytes = 40.0 * GB * gpus as f64;
        let all = bytes / system.shared.min(system.link * system.nodes as f64);
        let near = system.cost(&job(1.0, Protection::none()));
        println!(
            "{gpus} GPUs: a failure each {:.1} h; a checkpoint is {:.0} TB, {near:.1} s to the nodes, {all:.0} s to the file system",
            of_job / HOUR,
            bytes / 1e12,
        );
        println!(
            "  optima after Young and Daly: {:.0} and {:.0} s where the application waits for the file system, {:.0} and {:.0} s where only for its node",
            young_interval(all, of_job),
            daly_interval(all, of_job),
            young_interval(near, of_job),
            daly_interval(near, of_job),
        );
        println!(
            "  interval   Daly, file system   Daly, node   simulated: alone   partner   xor(8)   RS(6,2)   s a run"
        );
        for interval in [30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0] {
            let begun = Instant::now();
            let protections = [
                Protection::none(),
                Protection::partner(),
                Protection::xor(8),
                Protection::reed_solomon(6, 2),
            ];
            let mut found = Vec::new();
            for protection in protections {
                let runs = (1..=seeds).map(|seed| system.run(&job(interval, protection), seed));
                let runs: Vec<JobOutcome> = runs.collect::<Result<_, _>>()?;
                found.push(runs.iter().map(JobOutcome::efficiency).sum::<f64>() / seeds as f64);
            }
            let seconds = begun.elapsed().as_secs_f64() / (4 * seeds) as f64;
            println!(
                "  {interval:>8} {:>19.3} {:>12.3} {:>18.3} {:>9.3} {:>8.3} {:>9.3} {seconds:>9.2}",
                daly_efficiency(interval, all, 300.0 + all, of_job),
                daly_efficiency(interval, near, 300.0 + near, of_job),
                found[0],
                found[1],
                found[2],
                found[3],
            );
        }
    }
    Ok(())
}
