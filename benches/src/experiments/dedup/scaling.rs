//! ICPP'23, Figure 6: one state, cut into one part per process. Each part has a lineage and a stream of its own, and all parts
//! checkpoint at the same time.

use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result};
use tierflow_dedup::{Config, Method, gpu as kernels};

use super::gpu::{Buffers, Gpu, Measured};
use super::workloads::{Size, WORKLOADS};
use crate::experiments::Run;
use crate::machine;
use crate::threads::on_threads;

/// Number of measured differences.
const MEASURED: usize = 4;

/// A GPU with a part of the state.
struct Part {
    gpu: Gpu,
    buffers: Buffers,
    lineage: kernels::GpuLineage,
    start: usize,
    len: usize,
}

pub(crate) fn strong(run: &mut Run) -> Result<()> {
    let size = Size {
        bytes: if run.is_quick() { 64 << 20 } else { 1 << 30 },
        checkpoints: 10,
    };
    let gpus = machine::gpus().len().max(1);
    let workload = WORKLOADS
        .iter()
        .find(|one| one.name == "gdv-events")
        .context("the degree vectors are a workload")?;
    let history = workload.beginning(size, 1 + MEASURED);
    let len = history[0].len();
    for count in [1, 2, 4, 8] {
        let mut parts = split(len, count, gpus)?;
        let (mut rates, mut stored) = (Vec::new(), 0);
        for (state, version) in history.iter().zip(0..) {
            let (seconds, bytes) = encode(&mut parts, state, version)?;
            if version > 0 {
                rates.push(len as f64 / seconds);
                stored += bytes;
            }
        }
        let case = format!("lineages={count}, gpus={}", gpus.min(count));
        run.samples(&case, "end to end", "bytes/s", &rates)?;
        let ratio = (len * MEASURED) as f64 / stored as f64;
        run.value(&case, "ratio", "1", ratio)?;
    }
    Ok(())
}

fn split(len: usize, count: usize, gpus: usize) -> Result<Vec<Part>> {
    // Whole chunks.
    let share = len.div_ceil(count).next_multiple_of(4096);
    let parts = (0..len).step_by(share).enumerate();
    let part = |(at, start): (usize, usize)| {
        let len = share.min(len - start);
        let gpu = Gpu::at(at % gpus)?;
        let config = Config::new(Method::Tree).chunk(128);
        Ok(Part {
            buffers: gpu.buffers(len)?,
            lineage: kernels::GpuLineage::new(&gpu.kernels, config, len as u64)?,
            gpu,
            start,
            len,
        })
    };
    parts.map(part).collect()
}

/// Encodes a version in all parts. Returns the seconds from the first part's beginning to the last part's end, and the stored bytes.
fn encode(parts: &mut [Part], state: &[u8], version: u64) -> Result<(f64, u64)> {
    for part in &*parts {
        let own = &state[part.start..part.start + part.len];
        part.gpu.upload(&part.buffers, own)?;
    }
    let barrier = Barrier::new(parts.len());
    let shares: Vec<(Instant, Measured)> = on_threads(parts, |part| {
        let Part {
            gpu,
            buffers,
            lineage,
            ..
        } = part;
        barrier.wait();
        let began = Instant::now();
        Ok((began, gpu.encode(lineage, buffers, version)?))
    })?;
    let began = shares.iter().map(|(began, _)| *began).min();
    let ended = shares.iter().map(|(began, one)| *began + one.whole).max();
    let (began, ended) = began.zip(ended).context("there are parts")?;
    let stored = shares.iter().map(|(_, one)| one.stored).sum();
    Ok(((ended - began).as_secs_f64(), stored))
}
