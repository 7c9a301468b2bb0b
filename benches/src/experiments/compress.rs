//! The gain of compression, and its cost for data that it does not make smaller: histories written, and read back in reverse, with
//! compression and without.

use std::time::Instant;

use anyhow::{Result, ensure};
use rayon::prelude::*;
use tierflow_device::{Choice, Device, Kind, Memory, open};
use tierflow_engine::{Compression, Engine, Flush, NvcompCodec, Region, RegionMut, Value};

use super::Run;
use crate::random::mix;

struct Content {
    name: &'static str,
    value: Value,
    /// Makes four bytes from a random number.
    of: fn(u64) -> [u8; 4],
}

/// Returns a number of the normal distribution, as a sum of uniform numbers.
fn normal(random: u64) -> f32 {
    let part = |shift: u64| (random >> shift & 0xFFFF) as f32 / 65_536.0;
    part(0) + part(16) + part(32) + part(48) - 2.0
}

const WORKLOADS: [Content; 3] = [
    Content {
        name: "weights-bf16",
        value: Value::Bf16,
        of: |random| {
            let half = |random: u64| (0.02 * normal(random)).to_bits().to_le_bytes();
            let (low, high) = (half(random), half(mix(random)));
            [low[2], low[3], high[2], high[3]]
        },
    },
    Content {
        name: "moments-f32",
        value: Value::F32,
        of: |random| {
            let square = normal(random) * normal(mix(random)) * 1e-4;
            square.to_le_bytes()
        },
    },
    Content {
        name: "noise",
        value: Value::F32,
        of: |random| (random as u32).to_le_bytes(),
    },
];

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let device = open(Choice::Auto)?;
    let is_gpu = device.info().kind == Kind::Cuda;
    let has_nvcomp = has_nvcomp(&device);
    let (len, versions, rounds) = match (run.is_quick(), is_gpu) {
        (false, true) => (128 << 20, 40, 3),
        (false, false) => (32 << 20, 24, 3),
        (true, _) => (4 << 20, 8, 1),
    };
    for workload in WORKLOADS {
        let state = state(&device, &workload, len)?;
        let lossless = Compression::lossless(workload.value);
        let mut ways = vec![("as it is", None), ("compressed", Some(lossless.clone()))];
        if has_nvcomp {
            let by = |codec: NvcompCodec| (codec.name(), Some(lossless.clone().nvcomp(codec)));
            ways.extend(NvcompCodec::ALL.map(by));
        }
        for (to, has_host) in [("host", true), ("disk", false)] {
            let mut found = vec![Vec::new(); ways.len()];
            // The cases take turns. The first round touches memory and does not count.
            for round in 0..=rounds {
                for ((_, how), found) in ways.iter().zip(&mut found) {
                    let one = one(&device, &state, len, versions, has_host, how.clone())?;
                    if round > 0 {
                        found.push(one);
                    }
                }
            }
            let case = format!("workload={}, to={to}", workload.name);
            let mut plain = None;
            for ((way, how), found) in ways.iter().zip(found) {
                let bytes = 2.0 * (len * versions) as f64;
                let rates: Vec<_> = found.iter().map(|one| bytes / one.seconds).collect();
                let row = run.samples(&case, way, "bytes/s", &rates)?;
                row.against(*plain.get_or_insert(row.value));
                if let (Some(_), Some(last)) = (how, found.last()) {
                    run.value(&case, &format!("{way}: ratio"), "1", last.ratio)?;
                    run.value(&case, &format!("{way}: stage"), "bytes/s", last.stage_rate)?;
                }
            }
        }
    }
    Ok(())
}

/// Returns true if this machine has nvCOMP and the device can use it.
fn has_nvcomp(device: &Device) -> bool {
    let how = Compression::lossless(Value::I8).nvcomp(NvcompCodec::Lz4);
    let small = Engine::builder(device)
        .device_cache(1 << 20)
        .host_cache(8 << 20);
    let built = small.compress(how).build();
    if let Err(error) = &built {
        eprintln!("  nvCOMP is not measured: {error}");
    }
    built.is_ok()
}

fn state(device: &Device, workload: &Content, len: usize) -> Result<Memory> {
    let words: Vec<[u8; 4]> = (0..len as u64 / 4)
        .into_par_iter()
        .map(|n| (workload.of)(mix(n)))
        .collect();
    let memory = device.alloc(len)?;
    let stream = device.stream()?;
    stream.write(words.as_flattened(), &mut memory.lend_mut(0..len)?)?;
    Ok(memory)
}

/// The measurement of a history that was written and read back.
#[derive(Clone)]
struct Passed {
    seconds: f64,
    /// Bytes of the history, divided by its compressed bytes.
    ratio: f64,
    /// Bytes/s that the stage compresses.
    stage_rate: f64,
}

fn one(
    device: &Device,
    state: &Memory,
    len: usize,
    versions: usize,
    has_host: bool,
    how: Option<Compression>,
) -> Result<Passed> {
    let directory = tempfile::tempdir()?;
    let host = if has_host { versions + 2 } else { 2 };
    let builder = Engine::builder(device)
        .device_cache(3 * len)
        .host_cache(host * (len + (1 << 20)))
        .flush(Flush::Eager);
    let builder = match has_host {
        true => builder,
        false => builder.scratch(directory.path()),
    };
    let builder = match how {
        Some(how) => builder.compress(how),
        None => builder,
    };
    let engine = builder.build()?;
    engine.hint((0..versions as u64).rev());
    let begun = Instant::now();
    for version in 0..versions as u64 {
        engine.checkpoint(version, &[Region::from(state)])?;
    }
    engine.wait()?;
    let back = device.alloc(len)?;
    for version in (0..versions as u64).rev() {
        engine.restore(version, &mut [RegionMut::from(&back)])?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let stream = device.stream()?;
    let mut bytes = [vec![0; len], vec![0; len]];
    for (memory, bytes) in [state, &back].into_iter().zip(&mut bytes) {
        stream.read(&memory.lend(0..len)?, bytes)?;
    }
    ensure!(bytes[0] == bytes[1], "what came back is not what went in");
    let compression = engine.metrics().compression;
    let ratio = compression.map_or(1.0, |compression| {
        let whole = compression.compressed + compression.as_they_are;
        whole as f64 / (compression.stored + compression.as_they_are).max(1) as f64
    });
    Ok(Passed {
        seconds,
        ratio,
        stage_rate: compression.map_or(0.0, |compression| compression.stage_rate as f64),
    })
}
