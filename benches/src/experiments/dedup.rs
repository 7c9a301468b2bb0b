//! De-duplicated checkpoints: how small and how fast, by workload, method and chunk size (ICPP'23, Figures 4
//! and 5), on the CPU and on a GPU.

use std::time::Instant;

use anyhow::{Result, ensure};
use tierflow_dedup::{Chain, Config, Lineage, Method};

use super::{Experiment, Run, copy};

mod codecs;
mod engine;
mod gdv;
mod gpu;
mod scaling;
mod workloads;

use workloads::{Size, WORKLOADS};

/// The CPU path.
pub const CPU: Experiment = Experiment {
    name: "dedup",
    about: "de-duplication on the CPU: ratio, encode and restore rates by workload, method and chunk size",
    needs_gpu: false,
    run: cpu,
};

/// The kernels against the goals of the design, and each kernel against the roofline.
pub const GPU_GOALS: Experiment = Experiment {
    name: "dedup-gpu",
    about: "de-duplication kernels: rates at 1, 10 and 100% changed, time of each kernel, restore",
    needs_gpu: true,
    run: gpu::goals,
};

/// The goal of the design for the degree vectors.
pub const GPU_GDV: Experiment = Experiment {
    name: "dedup-gdv",
    about: "de-duplication of degree vectors on a GPU, end to end into host memory, and where the time goes",
    needs_gpu: true,
    run: gpu::degree_vectors,
};

/// The compressors that de-duplication is compared with.
pub const CODECS: Experiment = Experiment {
    name: "dedup-codecs",
    about: "compressors on the same workloads: lz4 and zstd on the CPU, nvCOMP's codecs where it is installed",
    needs_gpu: false,
    run: codecs::codecs,
};

/// The stage within the engine.
pub const ENGINE: Experiment = Experiment {
    name: "dedup-engine",
    about: "de-duplication of degree vectors in the engine beside its kernels alone: into pinned memory, on to disk, and back",
    needs_gpu: true,
    run: engine::degree_vectors,
};

/// The paper's Figure 6.
pub const GPU_SCALING: Experiment = Experiment {
    name: "dedup-scaling",
    about: "ICPP'23, Figure 6: strong scaling of degree vectors over lineages, on as many GPUs as there are",
    needs_gpu: true,
    run: scaling::strong,
};

/// The paper's figures on one GPU.
pub const GPU_FIGURES: Experiment = Experiment {
    name: "dedup-figures",
    about: "ICPP'23, Figures 4 and 5: ratio and end-to-end rate by workload, chunk size and checkpoints",
    needs_gpu: true,
    run: gpu::figures,
};

const METHODS: [(&str, Method); 4] = [
    ("full", Method::Full),
    ("basic", Method::Basic),
    ("list", Method::List),
    ("tree", Method::Tree),
];

fn cpu(run: &mut Run) -> Result<()> {
    let size = if run.is_quick() {
        Size {
            bytes: 4 << 20,
            checkpoints: 3,
        }
    } else {
        Size {
            bytes: 512 << 20,
            checkpoints: 6,
        }
    };
    let cores = std::thread::available_parallelism()?.get();
    let rates = copy::bandwidth(cores, size.bytes, 3)?;
    let memcpy = run.samples("memcpy", "bandwidth", "bytes/s", &rates)?.value;
    changed(run, size, memcpy)?;
    for workload in WORKLOADS {
        let history = workload.history(size);
        let chunks: &[u32] = if run.is_quick() {
            &[128]
        } else {
            &[64, 128, 256, 512]
        };
        for &chunk in chunks {
            for (name, method) in METHODS {
                let case = format!("workload={}, method={name}, chunk={chunk}", workload.name);
                measure(run, &case, Config::new(method).chunk(chunk), &history)?;
            }
        }
    }
    Ok(())
}

/// The goal of the CPU path: 60% of memcpy with all cores at 1% changed.
fn changed(run: &mut Run, size: Size, memcpy: f64) -> Result<()> {
    for chunk in [64, 128, 256, 1024] {
        let mut lineage = Lineage::new(Config::new(Method::Tree).chunk(chunk))?;
        let mut state = workloads::random(size.bytes, 1);
        lineage.encode(0, &state)?;
        let mut rates = Vec::new();
        for version in 1..=5 {
            workloads::change(&mut state, chunk as usize, 100, version);
            let began = Instant::now();
            lineage.encode(version, &state)?;
            rates.push(size.bytes as f64 / began.elapsed().as_secs_f64());
        }
        let case = format!("changed=1%, method=tree, chunk={chunk}");
        run.samples(&case, "encode", "bytes/s", &rates)?
            .against(0.6 * memcpy);
    }
    Ok(())
}

/// Encodes a history, and restores its last version. The first checkpoint does not count, as in the paper.
fn measure(run: &mut Run, case: &str, config: Config, history: &[Vec<u8>]) -> Result<()> {
    let mut lineage = Lineage::new(config)?;
    let mut chain = Chain::new();
    let (mut stored, mut seconds) = (0, 0.0);
    for (state, version) in history.iter().zip(0..) {
        let began = Instant::now();
        let difference = lineage.encode(version, state)?;
        if version > 0 {
            seconds += began.elapsed().as_secs_f64();
            stored += difference.summary().stored_bytes;
        }
        chain.push(difference.into_bytes())?;
    }
    let last = &history[history.len() - 1];
    let bytes = last.len() as f64 * (history.len() - 1) as f64;
    run.value(case, "ratio", "1", bytes / stored as f64)?;
    run.value(case, "encode", "bytes/s", bytes / seconds)?;
    let mut out = vec![1; last.len()];
    let began = Instant::now();
    chain.restore(history.len() as u64 - 1, &mut out)?;
    let rate = out.len() as f64 / began.elapsed().as_secs_f64();
    ensure!(out == *last, "{case}: what came back is not what went in");
    run.value(case, "restore", "bytes/s", rate)?;
    Ok(())
}
