//! Measures the cost of calls, and the share that is not copying: medians in µs, for comparing front doors and finding
//! slow parts.
//!
//! `cargo run --release --example calls`, with `cuda` as an argument on a GPU. With `pairs`, each version is restored right after its
//! checkpoint and discarded then, so the same memory is used over and over, as in `crates/python/benches/calls.py --pairs`.
//!
//! | column | the time of |
//! |---|---|
//! | copy | one copy of the same bytes by the device crate alone: enqueued, and waited for |
//! | plan | the plan's handling of the call's two events, without an engine |
//! | rest | the rest of the call: the engine's locks, gates, loans and counters |

use std::time::{Duration, Instant};
use tierflow_device::{Choice, Device, Memory, open};
use tierflow_engine::{AfterRestore, Engine, Region, RegionMut};
use tierflow_plan::{Coding, Refusal, Ticket, TierId, Transfer, TransferId};
use tierflow_plan::{Event, Executor, Piece, PlanConfig, TierConfig, Version, World};

/// Bytes of a call, number of calls, and the pause before each call, as an application computes between two checkpoints.
const CASES: [(usize, u64, Duration); 5] = [
    (8, 100_000, Duration::ZERO),
    (4096, 100_000, Duration::ZERO),
    (1 << 20, 2000, Duration::ZERO),
    (128 << 20, 30, Duration::ZERO),
    (128 << 20, 30, Duration::from_millis(10)),
];

fn main() -> anyhow::Result<()> {
    let on_gpu = std::env::args().any(|argument| argument == "cuda");
    let device = open(if on_gpu {
        Choice::Cuda { ordinal: 0 }
    } else {
        Choice::Host
    })?;
    if std::env::args().any(|argument| argument == "pairs") {
        return pairs(&device);
    }
    println!("     bytes  pause      call    median    copy    plan    rest     99%     most");
    for (size, count, pause) in CASES {
        // At least 4 KiB for each version, so that all fit into one cache.
        let cache = count as usize * size.max(4096) + (64 << 20);
        let copied = copies(&device, size, count, pause)?;
        let (planned, replanned) = plans(cache as u64, size as u64, count)?;
        let engine = Engine::builder(&device).device_cache(cache).build()?;
        let field = device.alloc(size)?;
        touch(&device, &field)?;
        let written = times(count, pause, |version| {
            engine.checkpoint(version, &[Region::from(&field)])
        })?;
        let read = times(count, pause, |version| {
            engine.restore(version, &mut [RegionMut::from(&field)])
        })?;
        eprintln!("{}", engine.metrics().explain().join("\n"));
        for (call, times, plan) in [
            ("checkpoint", &written, &planned),
            ("restore", &read, &replanned),
        ] {
            let (all, copy, plan) = (at(times, 50), at(&copied, 50), at(plan, 50));
            println!(
                "{size:>10} {:>4} ms {call:>10} {all:>8.2} {copy:>7.2} {plan:>7.2} {:>7.2} {:>7.2} {:>8.2}",
                pause.as_millis(),
                all - copy - plan,
                at(times, 99),
                at(times, 100),
            );
        }
    }
    Ok(())
}

/// Prints medians of 10⁵ checkpoints and of the restores that follow them.
fn pairs(device: &Device) -> anyhow::Result<()> {
    println!("     bytes   checkpoint      restore");
    for size in [8, 4096, 1 << 20] {
        let engine = Engine::builder(device)
            .device_cache(64 << 20)
            .after_restore(AfterRestore::Discard)
            .build()?;
        let field = device.alloc(size)?;
        touch(device, &field)?;
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for version in 0..100_000 {
            let begun = Instant::now();
            engine.checkpoint(version, &[Region::from(&field)])?;
            let between = Instant::now();
            engine.restore(version, &mut [RegionMut::from(&field)])?;
            read.push(between.elapsed().as_secs_f64() * 1e6);
            written.push((between - begun).as_secs_f64() * 1e6);
        }
        for times in [&mut written, &mut read] {
            times.sort_unstable_by(f64::total_cmp);
        }
        println!(
            "{size:>10} {:>12.2} {:>12.2}",
            at(&written, 50),
            at(&read, 50)
        );
    }
    Ok(())
}

/// Returns the times of the copies that the engine would make: from one field to a new place each time.
fn copies(device: &Device, size: usize, count: u64, pause: Duration) -> anyhow::Result<Vec<f64>> {
    let stream = device.stream()?;
    let places = (count as usize).min((4 << 30) / size);
    let (from, to) = (device.alloc(size)?, device.alloc(places * size)?);
    touch(device, &to)?;
    let times = times(count, pause, |version| {
        let at = version as usize % places * size;
        stream.copy_now(&from.lend(0..size)?, &mut to.lend_mut(at..at + size)?)
    })?;
    Ok(times)
}

fn touch(device: &Device, memory: &Memory) -> tierflow_device::Result<()> {
    device
        .stream()?
        .fill(&mut memory.lend_mut(0..memory.len())?, 1)
}

/// An executor that moves nothing. No call waits.
struct Idle;

impl Executor for Idle {
    fn write(&mut self, _: Ticket, _: Version, _: Vec<Piece>) {}
    fn read(&mut self, _: Ticket, _: Version, _: Vec<Piece>, _: Coding) {}
    fn transfer(&mut self, _: Transfer) {}
    fn cancel(&mut self, _: TransferId) {}
    fn answer(&mut self, _: Ticket, _: Result<(), Refusal>) {}
    fn released(&mut self, _: TierId, _: u64) {}
    fn removed(&mut self, _: Version, _: TierId, _: u64, _: bool) {}
}

/// Returns the times of checkpoints and of restores in a plan with one tier.
fn plans(cache: u64, size: u64, count: u64) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let tier = TierConfig {
        alignment: 512,
        ..TierConfig::new(cache)
    };
    let mut world = World::new(PlanConfig::new(vec![tier]))?;
    let mut both = |ask: fn(Ticket, Version, u64) -> Event, tell: fn(Ticket) -> Event| {
        times(count, Duration::ZERO, |version| {
            let ticket = world.ticket();
            world.tell(0, ask(ticket, version, size), &mut Idle)?;
            world.tell(0, tell(ticket), &mut Idle)
        })
    };
    let written = both(
        |ticket, version, size| Event::Checkpoint {
            ticket,
            version,
            size,
        },
        |ticket| Event::Written { ticket, ok: true },
    )?;
    let read = both(
        |ticket, version, _| Event::Restore { ticket, version },
        |ticket| Event::Read { ticket, ok: true },
    )?;
    Ok((written, read))
}

/// Returns the times of `count` calls in µs, in ascending order.
fn times<E>(
    count: u64,
    pause: Duration,
    mut call: impl FnMut(u64) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let mut times = Vec::new();
    for version in 0..count {
        compute(pause);
        let begun = Instant::now();
        call(version)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}

/// Keeps the processor busy for `time`.
fn compute(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Returns a percentile of sorted times.
fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100]
}
