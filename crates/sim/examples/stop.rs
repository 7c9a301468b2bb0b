//! Compares strategies of stopping jobs over synthetic workloads: lost node time, missed deadlines, and use of the nodes.
//!
//! `cargo run --release -p tierflow-sim --example stop` takes the number of workloads as an argument. The default is 20. Then the example
//! measures the dynamic programme for 10 000 jobs.

use std::time::Instant;
use tierflow_sim::cluster::{Candidate, Cluster, StopOption, Strategy, WorkloadModel, least_loss};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seeds = std::env::args()
        .nth(1)
        .map_or(Ok(20), |n| n.parse::<u64>())?;
    // A cluster of 1 024 nodes with a file system of 200 GB/s.
    let cluster = Cluster {
        nodes: 1024,
        bandwidth: 200_000_000,
    };
    let strategies = [
        ("reserve an eighth", Strategy::Reserve(128)),
        ("reserve a quarter", Strategy::Reserve(256)),
        ("kill", Strategy::Kill),
        ("system-level", Strategy::System),
        ("application-level", Strategy::Application),
        ("least loss", Strategy::LeastLoss),
    ];
    for (interval, notice) in [
        (0, 60_000),
        (0, 600_000),
        (3_600_000, 60_000),
        (3_600_000, 600_000),
    ] {
        println!(
            "own checkpoints every {} min (0: never), {} min notice: lost and moving node-hours, missed, utilisation",
            interval / 60_000,
            notice / 60_000
        );
        for (name, strategy) in strategies {
            let (mut lost, mut moving, mut missed, mut of, mut used) = (0, 0, 0, 0, 0.0);
            for seed in 1..=seeds {
                let draw = WorkloadModel {
                    batch: 400,
                    on_demand: 60,
                    load: 1.0,
                    notice,
                    interval,
                    memory: 256 << 30,
                };
                let jobs = draw.jobs(&cluster, seed);
                let outcome = cluster.run(&jobs, strategy)?;
                lost += outcome.lost;
                moving += outcome.moving;
                missed += outcome.missed;
                of += jobs.on_demand.len();
                used += outcome.utilisation(&cluster) / seeds as f64;
            }
            let hours = |node_ms: u64| node_ms as f64 / 3_600_000.0 / seeds as f64;
            println!(
                "  {name:<18} {:>9.1} {:>9.1} {:>5.1}% {:>6.3}",
                hours(lost),
                hours(moving),
                100.0 * missed as f64 / of as f64,
                used
            );
        }
    }
    let mut word = 1_u64;
    let mut random = |below: u64| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 33) % below
    };
    let candidates: Vec<_> = (0..10_000)
        .map(|_| Candidate {
            nodes: 1 << random(6),
            options: vec![
                StopOption {
                    loss: random(1_000_000),
                    bytes: 0,
                },
                StopOption {
                    loss: random(10_000),
                    bytes: random(1 << 40),
                },
            ],
        })
        .collect();
    for (nodes, steps, budget) in [
        (10_000, 1, u64::MAX),
        (1_000, 8, 1 << 44),
        (250, 32, 1 << 44),
    ] {
        let begun = Instant::now();
        let choice = least_loss(&candidates, nodes, budget, steps);
        let loss = choice.map(|choice| choice.loss);
        println!(
            "10 000 jobs, {nodes} nodes, {steps} parts: {loss:?} in {:?}",
            begun.elapsed()
        );
    }
    Ok(())
}
