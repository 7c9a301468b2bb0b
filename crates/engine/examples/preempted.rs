//! A job that a batch system may end at any time, and that continues later: `packaging/slurm/job.sbatch` of the repository runs it.
//!
//! `cargo run --release --features signals --example preempted -- DIRECTORY [STEPS] [GRACE]`: takes checkpoints to memory, and copies
//! them in the background to DIRECTORY, which all nodes see. SIGTERM or SIGUSR1 says that GRACE seconds are left: the program makes the
//! newest version durable that can be in time, and ends with 75 (try again). The next run, on any node, continues from that version.

use std::process::ExitCode;
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Notice, Region, RegionMut};

/// The exit code for a temporary failure in `sysexits.h`.
const TRY_AGAIN: u8 = 75;

const SIGUSR1: i32 = 10;
const SIGTERM: i32 = 15;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .ok_or("name a directory that all nodes see")?;
    let steps: u64 = arguments.next().map_or(Ok(200), |n| n.parse())?;
    let grace: f64 = arguments.next().map_or(Ok(100.0), |n| n.parse())?;
    let notice = Notice::on_signals(&[SIGTERM, SIGUSR1], Duration::try_from_secs_f64(grace)?)?;
    let engine = Engine::builder(&open(Choice::Auto)?)
        .host_cache(256 << 20)
        .external(directory)
        .build()?;
    let mut state = vec![0_u8; 16 << 20];
    let mut next = 0;
    if let Some(version) = engine.latest(None) {
        engine.restore(version, &mut [RegionMut::from(state.as_mut_slice())])?;
        println!("goes on after step {version}");
        next = version + 1;
    }
    for step in next..steps {
        // The computation: each step depends on the one before.
        let before = state.last().copied().unwrap_or(0);
        state.iter_mut().fold(before, |before, byte| {
            *byte = byte.wrapping_mul(5).wrapping_add(before).wrapping_add(1);
            *byte
        });
        std::thread::sleep(Duration::from_millis(20));
        engine.checkpoint(step, &[Region::from(state.as_slice())])?;
        if let Some(deadline) = notice.deadline() {
            let suspension = engine.suspend(None, deadline)?;
            println!(
                "step {step}: has to go; version {:?} of {:?} will be durable in {:?}",
                suspension.version(),
                suspension.newest(),
                suspension.expected()
            );
            let is_durable = suspension.wait()?;
            println!("it {}", if is_durable { "is" } else { "is not" });
            return Ok(ExitCode::from(TRY_AGAIN));
        }
    }
    engine.call().settle()?;
    println!("{}", engine.metrics().explain().join("\n"));
    engine.close()?;
    let sum = state
        .iter()
        .fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    println!("done: {sum:016x}");
    Ok(ExitCode::SUCCESS)
}
