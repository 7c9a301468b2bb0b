//! Counts the pieces of versions on the tiers: `cargo run --release -p tierflow-sim --example pieces`.
//!
//! Plays the shots of HPDC'23 (§5.3) at the paper's size: 384 versions in 4 GiB and 32 GiB, a checkpoint or a restore every 10 ms.
//! `TIERFLOW_TRACES` names a folder of recorded sizes in place of the synthetic ones. The example prints a CSV row for each shot.

use std::error::Error;
use std::time::Instant;
use tierflow_plan::{Residency, Score};
use tierflow_sim::{
    Hardware, Hints, Order, Shot, Simulation, fluid_bound, made_up_sizes, sizes_from_csv,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut variable = made_up_sizes(384, 48 << 30, 7);
    if let Some(folder) = std::env::var_os("TIERFLOW_TRACES") {
        let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        files.sort_by_key(std::fs::DirEntry::path);
        let first = files.first().ok_or("the folder is empty")?;
        variable = sizes_from_csv(&std::fs::read_to_string(first.path())?)?;
    }
    let sizes = [("uniform", vec![128 << 20; 384]), ("variable", variable)];
    let orders = [
        ("irregular", Order::Irregular(1)),
        ("reverse", Order::Reverse),
        ("sequential", Order::Sequential),
    ];
    let hardware = Hardware::h100(4 << 30, 32 << 30);
    println!(
        "policy,hints,sizes,order,pieces a checkpoint,pieces a restore,events,lost ms,over the bound,us of plan and simulation an event"
    );
    for hints in [Hints::All, Hints::None] {
        for (size, sizes) in &sizes {
            for (order, of) in orders {
                let shot = Shot {
                    order: of,
                    hints,
                    ..Shot::new(sizes.clone(), 10_000_000)
                };
                let workload = [shot.workload()];
                let bound = fluid_bound(&hardware, &workload)?.lost_ns as f64;
                let runs = [
                    (
                        "residency",
                        Simulation::new(hardware.clone()).policy(|| Residency),
                    ),
                    ("score", Simulation::new(hardware.clone()).policy(|| Score)),
                ];
                for (policy, simulation) in runs {
                    let began = Instant::now();
                    let outcome = simulation.run(&workload)?;
                    let us = began.elapsed().as_secs_f64() * 1e6 / outcome.events as f64;
                    let own = &outcome.clients[0];
                    let calls = sizes.len() as f64;
                    let (lost, events) = (outcome.lost_ns() as f64, outcome.events);
                    println!(
                        "{policy},{},{size},{order},{:.2},{:.2},{events},{:.1},{:.4},{us:.2}",
                        hints.name(),
                        own.checkpoint_pieces as f64 / calls,
                        own.restore_pieces as f64 / calls,
                        lost / 1e6,
                        lost / bound,
                    );
                }
            }
        }
    }
    Ok(())
}
