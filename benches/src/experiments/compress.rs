//! What compression gains, and what it costs where nothing can be gained: histories written and read back in reverse, with and
//! without it.

use std::time::Instant;

use anyhow::{Result, ensure};
use rayon::prelude::*;
use tierflow_device::{Choice, Device, Kind, Memory, open};
use tierflow_engine::{Compression, Engine, Flush, Region, RegionMut, Value};

use super::{Experiment, Run};
use crate::random::mix;

/// See the [module](self).
pub const EXPERIMENT: Experiment = Experiment {
    name: "compress",
    about: "lossless compression in the engine: time of a history down and up, of weights, moments and noise",
    needs_gpu: false,
    run,
};

struct Content {
    name: &'static str,
    value: Value,
    /// Four bytes from a random number.
    of: fn(u64) -> [u8; 4],
}

/// A number of the normal distribution, as a sum of uniform ones.
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

fn run(run: &mut Run) -> Result<()> {
    let device = open(Choice::Auto)?;
    let is_gpu = device.info().kind == Kind::Cuda;
    let (len, versions, rounds) = match (run.is_quick(), is_gpu) {
        (false, true) => (128 << 20, 40, 3),
        (false, false) => (32 << 20, 24, 3),
        (true, _) => (4 << 20, 8, 1),
    };
    for workload in WORKLOADS {
        let state = state(&device, &workload, len)?;
        for (to, has_host) in [("host", true), ("disk", false)] {
            let mut seconds = [Vec::new(), Vec::new()];
            let mut ratio = 1.0;
            // One after the other in turns; the first time, memory is touched.
            for round in 0..=rounds {
                for (compresses, seconds) in [false, true].into_iter().zip(&mut seconds) {
                    let how = compresses.then(|| Compression::lossless(workload.value));
                    let (took, shrunk) = one(&device, &state, (len, versions), has_host, how)?;
                    if round > 0 {
                        seconds.push(took);
                    }
                    ratio = if compresses { shrunk } else { ratio };
                }
            }
            let rates = seconds.map(|times| -> Vec<f64> {
                let bytes = 2.0 * (len * versions) as f64;
                times.iter().map(|time| bytes / time).collect()
            });
            let case = format!("workload={}, to={to}", workload.name);
            run.value(&case, "ratio", "1", ratio)?;
            let plain = run.samples(&case, "as it is", "bytes/s", &rates[0])?.value;
            run.samples(&case, "compressed", "bytes/s", &rates[1])?
                .against(plain);
        }
    }
    Ok(())
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

/// Seconds of a history down and up, and how many times smaller it became.
fn one(
    device: &Device,
    state: &Memory,
    (len, versions): (usize, usize),
    has_host: bool,
    how: Option<Compression>,
) -> Result<(f64, f64)> {
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
    let ratio = engine.metrics().compression.map_or(1.0, |compression| {
        let whole = compression.compressed + compression.as_they_are;
        whole as f64 / (compression.stored + compression.as_they_are).max(1) as f64
    });
    Ok((seconds, ratio))
}
