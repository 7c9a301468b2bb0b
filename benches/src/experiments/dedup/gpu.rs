//! The kernels on a GPU.

use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_dedup::{Config, Method, gpu};
use tierflow_device::{Choice, Device, HostReservation, Memory, Stream, open};

use super::METHODS;
use super::workloads::{Size, WORKLOADS};
use crate::experiments::Run;

pub(super) struct Gpu {
    device: Device,
    stream: Stream,
    pub(super) kernels: gpu::Kernels,
}

/// Memory for one checkpoint, and pinned memory for its difference.
pub(super) struct Buffers {
    state: Memory,
    host: HostReservation,
    room: usize,
}

/// An encoded checkpoint.
pub(super) struct Measured {
    /// Time from the call to the header's last byte.
    pub(super) whole: Duration,
    pub(super) stored: u64,
}

impl Gpu {
    pub(super) fn new() -> Result<Self> {
        Self::at(0)
    }

    pub(super) fn at(ordinal: usize) -> Result<Self> {
        let device = open(Choice::Cuda { ordinal })?;
        let stream = device.stream()?;
        let began = Instant::now();
        let kernels = gpu::Kernels::load(&device)?;
        eprintln!(
            "  {}: kernels loaded in {:?}",
            device.info().name,
            began.elapsed()
        );
        Ok(Self {
            device,
            stream,
            kernels,
        })
    }

    pub(super) fn buffers(&self, len: usize) -> Result<Buffers> {
        let room = tierflow_dedup::most_stored_bytes(len as u64) as usize;
        Ok(Buffers {
            state: self.device.alloc(len)?,
            host: gpu::pinned(&self.device, room)?,
            room,
        })
    }

    pub(super) fn upload(&self, buffers: &Buffers, state: &[u8]) -> Result<()> {
        let mut loan = buffers.state.lend_mut(0..state.len())?;
        Ok(self.stream.write(state, &mut loan)?)
    }

    pub(super) fn encode(
        &self,
        lineage: &mut gpu::GpuLineage,
        buffers: &Buffers,
        version: u64,
    ) -> Result<Measured> {
        let output = gpu::OutputBuffer::pinned(&buffers.host, 0..buffers.room)?;
        let state = buffers.state.lend(0..buffers.state.len())?;
        self.stream.synchronize()?;
        let began = Instant::now();
        let done = lineage.encode(&self.stream, version, state, output).wait();
        let whole = began.elapsed();
        Ok(Measured {
            whole,
            stored: done.result?.stored_bytes,
        })
    }
}

/// Number of measured checkpoints, out of ten at which the work is done: one tenth of the work is like another.
const MEASURED: usize = 5;

/// Measures degree vectors into host memory, by chunk size.
pub(crate) fn degree_vectors(run: &mut Run) -> Result<()> {
    let gpu = Gpu::new()?;
    let size = Size {
        bytes: if run.is_quick() { 128 << 20 } else { 1 << 30 },
        checkpoints: 10,
    };
    for workload in WORKLOADS.iter().filter(|one| one.name.starts_with("gdv")) {
        let history = workload.beginning(size, 1 + MEASURED);
        let len = history[0].len();
        let buffers = gpu.buffers(len)?;
        for chunk in [64, 128, 256, 512] {
            for (name, method) in METHODS {
                let case = format!("workload={}, method={name}, chunk={chunk}", workload.name);
                let config = Config::new(method).chunk(chunk);
                history_of(run, &gpu, &buffers, &case, config, &history)?;
            }
        }
    }
    Ok(())
}

/// Measures Figure 4 by chunk size at ten checkpoints, and Figure 5 by checkpoints. A cell is a history of a workload, which is computed
/// once for all methods and chunk sizes.
pub(crate) fn figures(run: &mut Run) -> Result<()> {
    let gpu = Gpu::new()?;
    let bytes = if run.is_quick() { 256 << 20 } else { 1 << 30 };
    for workload in WORKLOADS {
        let size = Size {
            bytes,
            checkpoints: 10,
        };
        let figure = format!("workload={}", workload.name);
        // The processor computes as many steps of the wave as the field is wide.
        let seconds = if workload.name == "wavefield" {
            300
        } else {
            90
        };
        run.cell(&figure, Duration::from_secs(seconds), |run| {
            let history = workload.history(size);
            let buffers = gpu.buffers(history[0].len())?;
            for chunk in [32, 64, 128, 256, 512] {
                for (name, method) in METHODS {
                    let case = format!("{figure}, method={name}, chunk={chunk}");
                    let config = Config::new(method).chunk(chunk);
                    history_of(run, &gpu, &buffers, &case, config, &history)?;
                }
            }
            Ok(())
        })?;
        for checkpoints in [5, 20] {
            let quarter = Size {
                bytes: bytes / 4,
                checkpoints,
            };
            let figure = format!("{figure}, checkpoints={checkpoints}");
            run.cell(&figure, Duration::from_secs(40), |run| {
                let history = workload.history(quarter);
                let buffers = gpu.buffers(history[0].len())?;
                for (name, method) in METHODS {
                    let case = format!(
                        "workload={}, method={name}, checkpoints={checkpoints}",
                        workload.name
                    );
                    let config = Config::new(method).chunk(128);
                    history_of(run, &gpu, &buffers, &case, config, &history)?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Encodes a history to host memory. The first checkpoint does not count, as in the paper.
fn history_of(
    run: &mut Run,
    gpu: &Gpu,
    buffers: &Buffers,
    case: &str,
    config: Config,
    history: &[Vec<u8>],
) -> Result<()> {
    let len = history[0].len();
    let mut lineage = gpu::GpuLineage::new(&gpu.kernels, config, len as u64)?;
    let (mut seconds, mut stored) = (0.0, 0);
    for (state, version) in history.iter().zip(0..) {
        gpu.upload(buffers, state)?;
        let measured = gpu.encode(&mut lineage, buffers, version)?;
        if version > 0 {
            seconds += measured.whole.as_secs_f64();
            stored += measured.stored;
        }
    }
    let bytes = len as f64 * (history.len() - 1) as f64;
    run.value(case, "ratio", "1", bytes / stored as f64)?;
    let row = run.value(case, "end to end", "bytes/s", bytes / seconds)?;
    if case.contains("gdv") && matches!(config.method, Method::List | Method::Tree) {
        row.against(800e9);
    }
    Ok(())
}
