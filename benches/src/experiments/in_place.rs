//! The cost of a checkpoint that is written in place: `produce` and `commit`, beside one that is copied.
//!
//! A history that fits the device cache, without a flush, so that only the calls are measured. Each version is given up at once, so that
//! sizes from 1 MiB to 1 GiB run in a cache of 2 GiB (64 MiB at most in a quick run).

use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_device::{Choice, Device, open};
use tierflow_engine::{Engine, Flush, Region};

use super::Run;

const MIB: usize = 1 << 20;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let device = open(Choice::Auto)?;
    let (largest, rounds) = if run.is_quick() {
        (64 * MIB, 20)
    } else {
        (1024 * MIB, 200)
    };
    let engine = Engine::builder(&device)
        .device_cache(2 * largest)
        .flush(Flush::Needed)
        .build()?;
    let mut size = MIB;
    let mut version = 0;
    while size <= largest {
        one_size(run, &device, &engine, size, rounds, &mut version)?;
        size *= 4;
    }
    Ok(())
}

fn one_size(
    run: &mut Run,
    device: &Device,
    engine: &Engine,
    size: usize,
    rounds: usize,
    version: &mut u64,
) -> Result<()> {
    let case = |way: &str| format!("way={way}, bytes={size}");
    let stream = device.stream()?;
    let field = device.alloc(size)?;
    stream.fill(&mut field.lend_mut(0..size)?, 1)?;
    let (mut produced, mut ordered, mut consumed, mut copied) = Default::default();
    for round in 0..rounds {
        *version += 1;
        let begun = Instant::now();
        let slot = engine.call().produce(*version, size)?;
        let lent = begun.elapsed();
        // An application would do its own work here.
        let begun = Instant::now();
        if round % 2 == 0 {
            slot.commit();
            note(&mut produced, lent + begun.elapsed());
        } else {
            slot.commit_after(&stream)?;
            note(&mut ordered, lent + begun.elapsed());
        }
        let begun = Instant::now();
        let slot = engine.call().consume(*version)?;
        drop(slot);
        note(&mut consumed, begun.elapsed());
        engine.discard(*version)?;
        if round % 4 == 0 {
            *version += 1;
            let begun = Instant::now();
            engine.checkpoint(*version, &[Region::from(&field)])?;
            note(&mut copied, begun.elapsed());
            engine.discard(*version)?;
        }
    }
    let ways = [
        ("produce-commit", &produced),
        ("produce-commit-after", &ordered),
        ("consume-drop", &consumed),
        ("checkpoint", &copied),
    ];
    for (way, times) in ways {
        let row = run.samples(&case(way), "blocked", "ns", times)?;
        if way != "checkpoint" {
            // The goal: 20 µs, whatever the size.
            row.against(20_000.0);
        }
    }
    Ok(())
}

fn note(times: &mut Vec<f64>, time: Duration) {
    times.push(time.as_nanos() as f64);
}
