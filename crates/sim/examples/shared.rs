//! Measures the time of simulating GPUs in nodes of eight that all share one file system, by their number.
//!
//! `cargo run --release -p tierflow-sim --example shared` takes the numbers of GPUs as arguments, multiples of 8; the default is 64,
//! 128, 256 and 512.

use std::time::Instant;
use tierflow_sim::{Hardware, Link, Order, Shot, Simulation, made_up_sizes};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let counts: Vec<usize> = std::env::args()
        .skip(1)
        .map(|count| count.parse())
        .collect::<Result<_, _>>()?;
    let counts = match counts.as_slice() {
        [] => &[64, 128, 256, 512],
        given => given,
    };
    println!("GPUs   events  simulated in  µs an event  simulated time of all GPUs");
    for &gpus in counts {
        let mut hardware = Hardware::hgx_h200(1 << 30, 4 << 30);
        let files = Link::own(100_000_000_000).shared_by(gpus);
        hardware.hops[2].links.push(files);
        let workloads: Vec<_> = (0..gpus as u64)
            .map(|gpu| {
                let sizes = made_up_sizes(96, 12 << 30, gpu);
                let shot = Shot::new(sizes, 10_000_000);
                Shot {
                    order: Order::Irregular(gpu),
                    ..shot
                }
                .workload()
            })
            .collect();
        let begun = Instant::now();
        let outcome = Simulation::new(hardware).run(&workloads)?;
        let seconds = begun.elapsed().as_secs_f64();
        let elapsed: u64 = outcome.clients.iter().map(|client| client.elapsed_ns).sum();
        println!(
            "{gpus:>4} {:>8} {seconds:>11.1} s {:>12.1} {:>16.9} s",
            outcome.events,
            seconds * 1e6 / outcome.events as f64,
            elapsed as f64 / 1e9
        );
    }
    Ok(())
}
