//! The time for which a checkpoint and a restore block the application, beside one plain copy within device memory: the physical limit
//! of both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tierflow_device::{Choice, Device, Kind, Memory, Stream, open};
use tierflow_engine::{AfterRestore, Engine, Region, RegionMut};

use super::Run;
use crate::random::fill;
use crate::report::Spread;

/// A shape of the history and the caches that hold it.
struct HistoryShape {
    checkpoint: usize,
    count: u64,
    /// Pause before each call, in which the application computes.
    interval: Duration,
}

/// Bytes of the caches.
struct CacheBytes {
    device: usize,
    host: usize,
}

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let device = open(Choice::Auto)?;
    let shape = match (device.info().kind, run.is_quick()) {
        (Kind::Cuda, false) => HistoryShape {
            checkpoint: 128 << 20,
            count: 300,
            interval: Duration::from_millis(10),
        },
        (Kind::Cuda, true) => HistoryShape {
            checkpoint: 128 << 20,
            count: 60,
            interval: Duration::from_millis(5),
        },
        (_, quick) => HistoryShape {
            checkpoint: 4 << 20,
            count: if quick { 60 } else { 300 },
            interval: Duration::from_millis(if quick { 2 } else { 5 }),
        },
    };
    let field = filled(&device, shape.checkpoint)?;
    let plain = plain_copies(&device, &field, Duration::ZERO)?;
    run.samples("plain copies, one after the other", "time", "ns", &plain)?;
    // A device that pauses between copies copies more slowly, so plain copies have the same pauses as the application.
    let plain = plain_copies(&device, &field, shape.interval)?;
    run.samples("plain copy after a pause", "time", "ns", &plain)?;
    let limit = Spread::of(&plain)?.median;
    let history = shape.checkpoint * shape.count as usize;
    first_checkpoint(run, &device, &field, history)?;
    for (case, device_cache, host_cache) in [
        ("all on the device", history, history),
        ("tenth on the device", history / 10, history),
        (
            "tenth on the device and two thirds on the host",
            history / 10,
            history / 3 * 2,
        ),
    ] {
        let caches = CacheBytes {
            device: device_cache,
            host: host_cache,
        };
        shot(run, case, &device, &field, &shape, &caches, limit)?;
    }
    Ok(())
}

fn filled(device: &Device, length: usize) -> Result<Memory> {
    let memory = device.alloc(length)?;
    let mut bytes = vec![0; length];
    fill(&mut bytes, 0);
    let mut loan = memory.lend_mut(0..length)?;
    device.stream()?.write(&bytes, &mut loan)?;
    drop(loan);
    Ok(memory)
}

/// Returns the times of copies within the device, as an application would make them, in ns.
fn plain_copies(device: &Device, field: &Memory, pause: Duration) -> Result<Vec<f64>> {
    let (target, stream) = (device.alloc(field.len())?, device.stream()?);
    let mut times = Vec::new();
    for trial in 0..60 {
        let pair = (
            field.lend(0..field.len())?,
            target.lend_mut(0..field.len())?,
        );
        std::thread::sleep(pause);
        let begun = Instant::now();
        stream.copy_all([pair])?;
        if trial >= 10 {
            times.push(begun.elapsed().as_nanos() as f64);
        }
    }
    Ok(times)
}

/// Measures the time from the build of a cold engine until its first checkpoint is taken in.
fn first_checkpoint(run: &mut Run, device: &Device, field: &Memory, history: usize) -> Result<()> {
    for part in [16, 4, 1] {
        let cache = (history / part).max(field.len());
        let begun = Instant::now();
        let engine = Engine::builder(device)
            .device_cache(cache)
            .host_cache(cache)
            .build()?;
        let built = begun.elapsed();
        engine.checkpoint(0, &[Region::from(field)])?;
        let accepted = begun.elapsed();
        let case = format!("caches={}", cache);
        run.time(&case, "build", built)?;
        run.time(&case, "first checkpoint after start of build", accepted)?
            .against(20e6);
    }
    Ok(())
}

/// Runs forward and back, and checks each version.
fn shot(
    run: &mut Run,
    case: &str,
    device: &Device,
    field: &Memory,
    shape: &HistoryShape,
    caches: &CacheBytes,
    limit: f64,
) -> Result<()> {
    let engine = Engine::builder(device)
        .device_cache(caches.device.max(2 * shape.checkpoint))
        .host_cache(caches.host)
        .scratch(std::env::temp_dir())
        .after_restore(AfterRestore::Discard)
        .build()?;
    let stream = device.stream()?;
    let back = device.alloc(shape.checkpoint)?;
    engine.hint((0..shape.count).rev());
    let mut checkpoints = Vec::new();
    for version in 0..shape.count {
        stamp(&stream, field, version)?;
        std::thread::sleep(shape.interval);
        let begun = Instant::now();
        engine.checkpoint(version, &[Region::from(field)])?;
        checkpoints.push(begun.elapsed().as_nanos() as f64);
    }
    engine.hints().prefetch_start();
    let mut restores = Vec::new();
    for version in (0..shape.count).rev() {
        std::thread::sleep(shape.interval);
        let begun = Instant::now();
        engine.restore(version, &mut [RegionMut::from(&back)])?;
        restores.push(begun.elapsed().as_nanos() as f64);
        ensure!(
            stamped(&stream, &back)? == version,
            "version {version} came back as another"
        );
    }
    let near = engine
        .metrics()
        .tiers
        .first()
        .map_or(0, |tier| tier.restores);
    for (what, times) in [("checkpoint", &checkpoints), ("restore", &restores)] {
        for (part, times) in times.chunks(times.len().div_ceil(4)).enumerate() {
            let metric = format!("{what}, quarter {}", part + 1);
            run.value(case, &metric, "ns", Spread::of(times)?.median)?
                .against(limit);
        }
        run.samples(case, what, "ns", times)?.against(limit);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        run.value(case, &format!("{what} mean"), "ns", mean)?
            .against(limit);
    }
    run.value(
        case,
        "restores served on the device",
        "restores",
        near as f64,
    )?
    .against(shape.count as f64);
    Ok(())
}

fn stamp(stream: &Stream, field: &Memory, version: u64) -> Result<()> {
    Ok(stream.write(&version.to_le_bytes(), &mut field.lend_mut(0..8)?)?)
}

fn stamped(stream: &Stream, field: &Memory) -> Result<u64> {
    let mut bytes = [0; 8];
    stream.read(&field.lend(0..8)?, &mut bytes)?;
    stream.synchronize().context("the stamp was read")?;
    Ok(u64::from_le_bytes(bytes))
}
