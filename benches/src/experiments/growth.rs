//! How fast a host arena is touched and pinned, and what copies within the device see meanwhile.

use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_device::{Choice, Kind, open};
use tierflow_tier_alloc::{HostArena, HostGrowth};

use super::{Experiment, Run};

/// See the [module](self).
pub const EXPERIMENT: Experiment = Experiment {
    name: "growth",
    about: "a host arena's growth by touchers, piece and pause, and the copies within the device meanwhile",
    needs_gpu: false,
    run,
};

fn run(run: &mut Run) -> Result<()> {
    let device = open(Choice::Auto)?;
    let cuda = device.info().kind == Kind::Cuda;
    let capacity = match (cuda, run.is_quick()) {
        (true, false) => 32_usize << 30,
        (true, true) => 8 << 30,
        (false, _) => 256 << 20,
    };
    let copied = if cuda { 128 << 20 } else { 4 << 20 };
    let (from, to, stream) = (
        device.alloc(copied)?,
        device.alloc(copied)?,
        device.stream()?,
    );
    stream.fill(&mut from.lend_mut(0..copied)?, 3)?;
    let threads = std::thread::available_parallelism()?.get();
    for touchers in [threads / 4, threads / 2, threads] {
        for (piece, pause) in [(16 << 20, 20), (4 << 20, 20), (64 << 20, 200)] {
            let growth = HostGrowth::Pieces {
                piece,
                pause: Duration::from_micros(pause),
                touchers: touchers.max(1),
            };
            let begun = Instant::now();
            let arena = HostArena::start(&device, capacity, growth)?;
            let mut copies = Vec::new();
            while !arena.is_grown() {
                let pair = (from.lend(0..copied)?, to.lend_mut(0..copied)?);
                let _first = arena.gate().enter();
                let copy = Instant::now();
                stream.copy_all([pair])?;
                copies.push(copy.elapsed().as_nanos() as f64);
                drop(_first);
                std::thread::sleep(Duration::from_millis(2));
            }
            let case = format!("touchers={touchers}, piece={piece}");
            let report = arena.report();
            let touched = report
                .timeline
                .iter()
                .find(|s| s.touched == report.touched)
                .map(|s| s.at);
            let seconds = begun.elapsed().as_secs_f64();
            if let Some(at) = touched {
                run.value(
                    &case,
                    "touched",
                    "bytes/s",
                    report.touched as f64 / at.as_secs_f64(),
                )?;
            }
            run.value(&case, "pinned", "bytes/s", report.pinned as f64 / seconds)?;
            run.value(
                &case,
                "huge pages",
                "bytes",
                report.huge_pages.unwrap_or(0) as f64,
            )?;
            if !copies.is_empty() {
                run.samples(&case, "copy meanwhile", "ns", &copies)?;
            }
        }
    }
    Ok(())
}
