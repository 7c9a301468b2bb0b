//! The engine with the Tree method, with the codec after it and without, compared with the kernels alone. The checkpoints are degree
//! vectors, whose states are all in device memory.

use std::time::Instant;

use anyhow::{Result, ensure};
use tierflow_dedup::{Config, Method, gpu};
use tierflow_device::{Choice, Memory, open};
use tierflow_engine::{
    Compression, Engine, EngineBuilder, Flush, ProduceSlot, Region, RegionMut, Tier, Value,
};
use tierflow_tier_alloc::HostOptions;

use super::workloads::{Size, WORKLOADS};
use crate::experiments::{Run, wait_grown};

/// Bytes of a chunk.
const CHUNK: u32 = 128;

pub(crate) fn degree_vectors(run: &mut Run) -> Result<()> {
    let device = open(Choice::Cuda { ordinal: 0 })?;
    let stream = device.stream()?;
    let size = Size {
        bytes: if run.is_quick() { 64 << 20 } else { 256 << 20 },
        checkpoints: 10,
    };
    let scratch = tempfile::tempdir()?;
    for workload in WORKLOADS.iter().filter(|one| one.name.starts_with("gdv")) {
        let history = workload.history(size);
        let len = history[0].len();
        let mut states: Vec<Memory> = Vec::new();
        for state in &history {
            let memory = device.alloc(len)?;
            stream.write(state, &mut memory.lend_mut(0..len)?)?;
            states.push(memory);
        }
        let changed = (len * (states.len() - 1)) as f64;
        let name = workload.name;

        let kernels = gpu::Kernels::load(&device)?;
        let room = tierflow_dedup::most_stored_bytes(len as u64) as usize;
        let host = gpu::pinned(&device, room)?;
        let mut alone = Vec::new();
        for _ in 0..3 {
            let config = Config::new(Method::Tree).chunk(CHUNK);
            let mut lineage = gpu::GpuLineage::new(&kernels, config, len as u64)?;
            let mut seconds = 0.0;
            for (version, state) in (0..).zip(&states) {
                let output = gpu::OutputBuffer::pinned(&host, 0..room)?;
                let begun = Instant::now();
                let state = state.lend(0..len)?;
                let done = lineage.encode(&stream, version, state, output).wait();
                done.result?;
                if version > 0 {
                    seconds += begun.elapsed().as_secs_f64();
                }
            }
            alone.push(changed / seconds);
        }
        let case = format!("workload={name}, what=kernels");
        let alone = run.samples(&case, "down", "bytes/s", &alone)?.value;

        let host = |b: EngineBuilder| {
            let cache = Tier::host(4 * len + (256 << 20));
            b.tier(cache.growth(HostOptions::default()))
        };
        let disk = |b: EngineBuilder| host(b).scratch(scratch.path());
        type Below<'a> = &'a dyn Fn(EngineBuilder) -> EngineBuilder;
        let below: [(&str, Below<'_>); 2] = [("host", &host), ("disk", &disk)];
        let both = |b: EngineBuilder| b.compress(Compression::lossless(Value::I32));
        let stages: [(&str, Below<'_>); 2] = [("engine", &|b| b), ("engine, compressed", &both)];
        let cases = below
            .into_iter()
            .flat_map(|below| stages.map(|stage| (below, stage)));
        for ((to, below), (what, stage)) in cases {
            let (mut down, mut in_place, mut up) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..3 {
                let build = |versions: usize| {
                    let builder = Engine::builder(&device).device_cache(versions * (len + 4096));
                    let builder = builder.dedup(tierflow_dedup::Tree { chunk: CHUNK });
                    let engine = stage(below(builder.flush(Flush::Eager))).build()?;
                    wait_grown(&engine);
                    anyhow::Ok(engine)
                };
                let engine = build(states.len())?;
                let save = |engine: &Engine, version: usize| {
                    engine.checkpoint(version as u64, &[Region::from(&states[version])])
                };
                save(&engine, 0)?;
                engine.wait()?;
                let begun = Instant::now();
                for version in 1..states.len() {
                    save(&engine, version)?;
                }
                engine.wait()?;
                down.push(changed / begun.elapsed().as_secs_f64());
                drop(engine);

                // States are written where the engine reads them, as for the kernels alone, so the device copies nothing.
                let engine = build(states.len())?;
                save(&engine, 0)?;
                engine.wait()?;
                let mut slots = Vec::new();
                for (version, state) in (0..).zip(&states).skip(1) {
                    let mut slot = engine.call().produce(version, len)?;
                    slot.copy_from(&stream, &state.lend(0..len)?)?;
                    slots.push(slot);
                }
                let begun = Instant::now();
                slots.into_iter().for_each(ProduceSlot::commit);
                engine.wait()?;
                in_place.push(changed / begun.elapsed().as_secs_f64());
                drop(engine);

                // Device memory holds two states at a time. The others are rebuilt from their differences.
                let engine = build(2)?;
                engine.hint((0..states.len() as u64).rev());
                for version in 0..states.len() {
                    save(&engine, version)?;
                }
                engine.wait()?;
                let back = device.alloc(len)?;
                let begun = Instant::now();
                for version in (0..states.len() as u64).rev() {
                    engine.restore(version, &mut [RegionMut::from(&back)])?;
                }
                up.push((len * states.len()) as f64 / begun.elapsed().as_secs_f64());
                let mut seen = vec![0; len];
                stream.read(&back.lend(0..len)?, &mut seen)?;
                ensure!(seen == history[0], "what came back is not what went in");
            }
            let case = format!("workload={name}, what={what}, to={to}");
            run.samples(&case, "down", "bytes/s", &down)?.against(alone);
            run.samples(&case, "down, in place", "bytes/s", &in_place)?
                .against(alone);
            run.samples(&case, "up", "bytes/s", &up)?.against(500e9);
        }
    }
    Ok(())
}
