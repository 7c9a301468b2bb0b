//! The kernels on a GPU.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tierflow_dedup::{Chain, Config, Method, gpu};
use tierflow_device::{Choice, Device, HostReservation, Memory, Stream, open};

use super::workloads::{self, Size, WORKLOADS};
use super::{METHODS, Run};

/// Bytes a second that an H100's memory delivers, and what the design asks for at 1, 10 and 100% changed; see the
/// roofline in the design notes.
const MEMORY: f64 = 3.08e12;
const GOALS: [(u32, [f64; 3]); 3] = [
    (64, [1950e9, 1300e9, 310e9]),
    (128, [2200e9, 1700e9, 500e9]),
    (256, [2400e9, 2000e9, 730e9]),
];

pub(super) struct Gpu {
    device: Device,
    stream: Stream,
    pub(super) kernels: gpu::Kernels,
}

/// Memory for one checkpoint and for its difference on either side.
pub(super) struct Buffers {
    state: Memory,
    host: HostReservation,
    on_device: Memory,
    room: usize,
}

/// The memory that differences go to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Host,
    Device,
}

/// An encoded checkpoint.
pub(super) struct Measured {
    /// From the call to the header's last byte.
    pub(super) whole: Duration,
    kernels: Vec<(&'static str, Duration)>,
    pub(super) stored: u64,
    payload: u64,
    metadata: u64,
    changed: u64,
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
            on_device: self.device.alloc(room)?,
            room,
        })
    }

    pub(super) fn upload(&self, buffers: &Buffers, state: &[u8]) -> Result<()> {
        let mut loan = buffers.state.lend_mut(0..state.len())?;
        Ok(self.stream.write(state, &mut loan)?)
    }

    pub(super) fn encode(
        &self,
        lineage: &mut gpu::Lineage,
        buffers: &Buffers,
        version: u64,
        to: To,
    ) -> Result<Measured> {
        let landing = match to {
            To::Host => gpu::Landing::pinned(&buffers.host, 0..buffers.room)?,
            To::Device => gpu::Landing::device(&buffers.on_device, 0..buffers.room)?,
        };
        let state = buffers.state.lend(0..buffers.state.len())?;
        self.stream.synchronize()?;
        let began = Instant::now();
        let done = lineage.encode(&self.stream, version, state, landing).wait();
        let whole = began.elapsed();
        let summary = done.result?;
        Ok(Measured {
            whole,
            kernels: done.kernels,
            stored: summary.stored_bytes,
            payload: summary.payload_bytes,
            metadata: summary.metadata_bytes,
            changed: done.changed_chunks,
        })
    }
}

fn sum(kernels: &[(&'static str, Duration)]) -> f64 {
    kernels.iter().map(|(_, time)| time.as_secs_f64()).sum()
}

fn of(kernels: &[(&'static str, Duration)], wanted: &str) -> f64 {
    let found = kernels.iter().find(|(name, _)| *name == wanted);
    found.map_or(0.0, |(_, time)| time.as_secs_f64())
}

/// Bytes that each kernel has to move at least, for `chunks` chunks of which `changed` did; a random access is a sector of
/// 32 bytes and costs two.
fn least_bytes(kernel: &str, len: f64, chunks: f64, changed: f64, measured: &Measured) -> f64 {
    let stored = measured.payload as f64;
    match kernel {
        "leaves" => len + 16.0 * chunks + 16.0 * changed,
        "find" => chunks / 8.0 + changed * (16.0 + 8.0 + 64.0),
        "enter" => chunks / 8.0 + changed * (8.0 + 16.0 + 4.0 * 32.0),
        "resolve" => chunks * 0.75 + changed * 8.0,
        "heads" => chunks * 0.75,
        "emit" => chunks / 2.0 + changed * 24.0 + measured.metadata as f64,
        "gather" => 2.0 * stored,
        _ => 0.0,
    }
}

pub(super) fn goals(run: &mut Run) -> Result<()> {
    let gpu = Gpu::new()?;
    let len: usize = if run.is_quick() { 512 << 20 } else { 2 << 30 };
    let trials = if run.is_quick() { 3 } else { 5 };
    let buffers = gpu.buffers(len)?;
    let mut state = workloads::random(len, 7);
    for (chunk, goals) in GOALS {
        for (name, method) in [
            ("basic", Method::Basic),
            ("list", Method::List),
            ("tree", Method::Tree),
        ] {
            let config = Config::new(method).chunk(chunk);
            let mut lineage = gpu::Lineage::new(&gpu.kernels, config, len as u64)?;
            lineage.profile(true);
            if method == Method::Tree {
                let case = format!("chunk={chunk}");
                let share = lineage.device_bytes() as f64 / len as f64;
                run.value(&case, "metadata memory per byte", "1", share)?
                    .against(1.0);
            }
            gpu.upload(&buffers, &state)?;
            let mut version = 0;
            let first = gpu.encode(&mut lineage, &buffers, version, To::Device)?;
            let case = format!("changed=first, method={name}, chunk={chunk}");
            report(run, &case, len, chunk, &[first], None)?;
            for (every, goal) in [100, 10, 1].into_iter().zip(goals) {
                let goal = (method == Method::Tree).then_some(goal);
                for (to, side) in [(To::Device, "device"), (To::Host, "host")] {
                    let mut measured = Vec::new();
                    for _ in 0..trials {
                        version += 1;
                        workloads::change(&mut state, chunk as usize, every, version);
                        gpu.upload(&buffers, &state)?;
                        measured.push(gpu.encode(&mut lineage, &buffers, version, to)?);
                    }
                    let case = format!(
                        "changed={}%, to={side}, method={name}, chunk={chunk}",
                        100 / every
                    );
                    report(run, &case, len, chunk, &measured, goal)?;
                }
            }
        }
    }
    drop(buffers);
    small(run, &gpu)?;
    restore(run, &gpu, &mut state)
}

/// The rates of some checkpoints, and where their time went.
fn report(
    run: &mut Run,
    case: &str,
    len: usize,
    chunk: u32,
    measured: &[Measured],
    goal: Option<f64>,
) -> Result<()> {
    let len = len as f64;
    let rates: Vec<f64> = measured.iter().map(|one| len / sum(&one.kernels)).collect();
    let row = run.samples(case, "kernels", "bytes/s", &rates)?;
    if let Some(goal) = goal {
        row.against(goal);
    }
    // Without the way across the bus, or to where the device keeps it: what the goals speak of.
    let compare = |one: &Measured| len / (sum(&one.kernels) - of(&one.kernels, "gather"));
    let rates: Vec<f64> = measured.iter().map(compare).collect();
    let row = run.samples(case, "compare", "bytes/s", &rates)?;
    if let Some(goal) = goal {
        row.against(goal);
    }
    let rates: Vec<f64> = measured
        .iter()
        .map(|one| len / one.whole.as_secs_f64())
        .collect();
    run.samples(case, "end to end", "bytes/s", &rates)?;
    let Some(last) = measured.last() else {
        return Ok(());
    };
    run.value(case, "stored", "bytes", last.stored as f64)?;
    let chunks = len / f64::from(chunk);
    for (kernel, _) in &last.kernels {
        let times: Vec<f64> = measured
            .iter()
            .map(|one| of(&one.kernels, kernel) * 1e9)
            .collect();
        let time = run.samples(case, kernel, "ns", &times)?.value;
        let least = least_bytes(kernel, len, chunks, last.changed as f64, last);
        if least > 0.0 && time > 0.0 {
            run.value(
                case,
                &format!("{kernel} moves"),
                "bytes/s",
                least * 1e9 / time,
            )?
            .against(MEMORY);
        }
    }
    Ok(())
}

/// A checkpoint that is small enough for the launches to show.
fn small(run: &mut Run, gpu: &Gpu) -> Result<()> {
    for len in [1 << 20, 16 << 20, 128 << 20] {
        let buffers = gpu.buffers(len)?;
        let mut state = workloads::random(len, 8);
        let config = Config::new(Method::Tree).chunk(128);
        let mut lineage = gpu::Lineage::new(&gpu.kernels, config, len as u64)?;
        let mut times = Vec::new();
        for version in 0..12 {
            workloads::change(&mut state, 128, 100, version);
            gpu.upload(&buffers, &state)?;
            let measured = gpu.encode(&mut lineage, &buffers, version, To::Host)?;
            if version > 1 {
                times.push(measured.whole.as_secs_f64() * 1e9);
            }
        }
        run.samples(
            &format!("changed=1%, checkpoint={len}"),
            "end to end",
            "ns",
            &times,
        )?;
    }
    Ok(())
}

/// Restores the versions of a history with 1% changed from device memory.
fn restore(run: &mut Run, gpu: &Gpu, state: &mut [u8]) -> Result<()> {
    let len = state.len();
    for chunk in [64_u32, 128, 256] {
        let mut chain = Chain::new();
        {
            let config = Config::new(Method::Tree).chunk(chunk);
            let mut lineage = gpu::Lineage::new(&gpu.kernels, config, len as u64)?;
            let buffers = gpu.buffers(len)?;
            for version in 0..6 {
                workloads::change(state, chunk as usize, 100, 1000 + version);
                gpu.upload(&buffers, state)?;
                let measured = gpu.encode(&mut lineage, &buffers, version, To::Host)?;
                let stored = buffers.host.memory().lend(0..measured.stored as usize)?;
                chain.push(stored.bytes()?.to_vec())?;
            }
        }
        let mut resident = gpu::Resident::new(&gpu.kernels, &chain)?;
        let out = gpu.device.alloc(len)?;
        for version in [0, 2, 5] {
            let mut wholes = Vec::new();
            let mut steps = Vec::new();
            for _ in 0..5 {
                let began = Instant::now();
                let restored = resident
                    .restore(&gpu.stream, version, out.lend_mut(0..len)?)
                    .wait();
                wholes.push(len as f64 / began.elapsed().as_secs_f64());
                restored.result?;
                steps.push(restored.kernels);
            }
            let case = format!("chunk={chunk}, version={version}");
            run.samples(&case, "restore", "bytes/s", &wholes)?
                .against(200e9);
            let names: Vec<_> = steps
                .iter()
                .flatten()
                .map(|(name, _)| *name)
                .take(3)
                .collect();
            for name in names {
                let times: Vec<f64> = steps.iter().map(|step| of(step, name) * 1e9).collect();
                run.samples(&case, &format!("restore: {name}"), "ns", &times)?;
            }
        }
        let mut seen = vec![0; len];
        gpu.stream.read(&out.lend(0..len)?, &mut seen)?;
        ensure!(seen == state, "what came back is not what went in");
    }
    Ok(())
}

/// Checkpoints that are measured, of the ten at which the work is done: one tenth of the work is like another.
const MEASURED: usize = 5;

/// Degree vectors into host memory, by chunk size, and what each kernel takes of it.
pub(super) fn degree_vectors(run: &mut Run) -> Result<()> {
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
            let mut lineage = gpu::Lineage::new(
                &gpu.kernels,
                Config::new(Method::Tree).chunk(chunk),
                len as u64,
            )?;
            lineage.profile(true);
            let mut measured = Vec::new();
            for (state, version) in history.iter().zip(0..) {
                gpu.upload(&buffers, state)?;
                measured.push(gpu.encode(&mut lineage, &buffers, version, To::Host)?);
            }
            let case = format!("workload={}, kernels, chunk={chunk}", workload.name);
            report(run, &case, len, chunk, &measured[1..], None)?;
        }
    }
    Ok(())
}

/// Figure 4 by chunk size at ten checkpoints, and Figure 5 by checkpoints.
pub(super) fn figures(run: &mut Run) -> Result<()> {
    let gpu = Gpu::new()?;
    let bytes = if run.is_quick() { 256 << 20 } else { 1 << 30 };
    let buffers_len = bytes + (bytes >> 3);
    for workload in WORKLOADS {
        // History first: every method and chunk size sees the same one, and it is computed once.
        let size = Size {
            bytes,
            checkpoints: 10,
        };
        let history = workload.history(size);
        let buffers = gpu.buffers(history[0].len())?;
        ensure!(
            history[0].len() <= buffers_len,
            "{} is too long",
            workload.name
        );
        for chunk in [32, 64, 128, 256, 512] {
            for (name, method) in METHODS {
                let case = format!("workload={}, method={name}, chunk={chunk}", workload.name);
                history_of(
                    run,
                    &gpu,
                    &buffers,
                    &case,
                    Config::new(method).chunk(chunk),
                    &history,
                )?;
            }
        }
        drop(history);
        for checkpoints_wanted in [5, 20] {
            let quarter = Size {
                bytes: bytes / 4,
                checkpoints: checkpoints_wanted,
            };
            let history = workload.history(quarter);
            let buffers = gpu.buffers(history[0].len())?;
            for (name, method) in METHODS {
                let case = format!(
                    "workload={}, method={name}, checkpoints={checkpoints_wanted}",
                    workload.name
                );
                history_of(
                    run,
                    &gpu,
                    &buffers,
                    &case,
                    Config::new(method).chunk(128),
                    &history,
                )?;
            }
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
    let mut lineage = gpu::Lineage::new(&gpu.kernels, config, len as u64)?;
    let (mut seconds, mut stored) = (0.0, 0);
    for (state, version) in history.iter().zip(0..) {
        gpu.upload(buffers, state)?;
        let measured = gpu.encode(&mut lineage, buffers, version, To::Host)?;
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
