//! A group checkpoint from engines: the time that the schedule predicts for the measured links, and the time for which the group is
//! blocked. The engines run on the GPUs, if there are two or more, and on devices of plain memory whose links have a set rate.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use rayon::prelude::*;
use tierflow_device::{Device, Kind, Memory, Stream, host};
use tierflow_engine::{Engine, Region, RegionMut, Tier};
use tierflow_peers::{Effort, GroupOverflow, calibrate};
use tierflow_placement::{GpuId, Share, Topology};
use tierflow_tier_alloc::HostOptions;

use super::Run;
use crate::experiments::wait_grown;
use crate::threads::on_threads;

const MIB: usize = 1 << 20;

/// Rate of each throttled link to a peer, in bytes per second.
const TO_PEER: f64 = 200e6;
/// Rate of the throttled link to the host, which all devices share, in bytes per second.
const TO_HOST: f64 = 80e6;

/// Goal: the most blocked time of a group, divided by the predicted time.
const GOAL: f64 = 1.05;

/// Links that carry one copy after the other, each at its rate.
#[derive(Default)]
struct Links(Mutex<BTreeMap<(usize, Option<usize>), Instant>>);

impl Links {
    fn device(self: &Arc<Self>, ordinal: usize) -> Result<Device> {
        let links = Arc::clone(self);
        let on_link: host::OnLink = Arc::new(move |copy: host::LinkCopy| {
            let (link, rate) = match copy.peer {
                Some(peer) => ((ordinal, Some(peer)), TO_PEER),
                // All devices share one link to the host.
                None => ((0, None), TO_HOST),
            };
            let cost = Duration::from_secs_f64(copy.bytes as f64 / rate);
            let now = Instant::now();
            let end = {
                let mut free = links.0.lock();
                let free = free.entry(link).or_insert(now);
                *free = (*free).max(now) + cost;
                *free
            };
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
        });
        let options = host::Options::default().ordinal(ordinal);
        Ok(host::open(options.on_link(on_link))?)
    }
}

/// The devices of a group: their memory, and the bytes that they checkpoint.
struct EngineGroup<'a> {
    devices: &'a [Device],
    topology: Topology,
    /// Bytes of each device's cache.
    cache: usize,
    /// Bytes by which each device's checkpoint is larger than its cache; the other devices have `spare` bytes for them.
    overflow: Vec<usize>,
    spare: u64,
    /// Bytes of each engine's host cache.
    host: usize,
}

/// An engine, and the checkpoint that it takes in.
struct GroupMember {
    engine: Engine,
    state: Memory,
    stream: Stream,
    /// The value of each byte of the state.
    byte: u8,
}

pub(super) fn measure(run: &mut Run, devices: &[Device]) -> Result<()> {
    if devices[0].info().kind == Kind::Cuda {
        let unit = if run.is_quick() { 32 * MIB } else { 128 * MIB };
        let mut overflow = vec![0; devices.len()];
        overflow[0] = 32 * unit;
        let group = EngineGroup {
            devices,
            topology: calibrate(devices, Effort::default())?.topology()?,
            cache: unit,
            overflow,
            spare: 32 * unit as u64,
            host: 33 * unit,
        };
        group.measure(run, &format!("{} GPUs", devices.len()))?;
    }
    let links = Arc::new(Links::default());
    let devices = (0..4).map(|ordinal| links.device(ordinal));
    let devices = devices.collect::<Result<Vec<_>>>()?;
    let group = EngineGroup {
        devices: &devices,
        topology: calibrate(&devices, Effort::default().bytes(4 * MIB).trials(2))?.topology()?,
        cache: 16 * MIB,
        overflow: vec![64 * MIB, 0, 0, 32 * MIB],
        spare: 256 << 20,
        host: 128 * MIB,
    };
    group.measure(run, "throttled host memory")
}

impl EngineGroup<'_> {
    fn measure(&self, run: &mut Run, on: &str) -> Result<()> {
        let rounds = if run.is_quick() { 1 } else { 3 };
        for (name, spare) in [("min-time-max-flow", self.spare), ("local-only", 0)] {
            let (predicted, members) = self.members(spare)?;
            let case = format!("engines={} on {on}, strategy={name}", self.devices.len());
            let (mut blocked, mut ratios) = (Vec::new(), Vec::new());
            // The first round creates streams and contexts, and does not count.
            for version in 0..=rounds {
                let took = checkpoint(&members, version)?;
                if version > 0 {
                    blocked.push(took.as_nanos() as f64);
                    ratios.push(took.as_secs_f64() / predicted);
                }
            }
            run.value(&case, "predicted", "ns", predicted * 1e9)?;
            run.samples(&case, "blocked", "ns", &blocked)?;
            let row = run.samples(&case, "blocked over predicted", "1", &ratios)?;
            row.against(GOAL);
        }
        Ok(())
    }

    /// Returns the predicted time in seconds, and the engines whose checkpoints are larger than their caches.
    fn members(&self, spare: u64) -> Result<(f64, Vec<GroupMember>)> {
        let shares = self.overflow.iter().map(|&bytes| match bytes as u64 {
            0 => Share::Spare(spare),
            bytes => Share::Remainder(bytes),
        });
        let shares: Vec<Share> = shares.collect();
        let mut predicted: f64 = 0.0;
        let mut members = Vec::new();
        for (gpu, device) in self.devices.iter().enumerate() {
            if self.overflow[gpu] == 0 {
                continue;
            }
            let overflow = GroupOverflow::new(self.devices, GpuId(gpu), &self.topology, &shares)?;
            ensure!(overflow.refusals.is_empty(), "{:?}", overflow.refusals);
            predicted = predicted.max(overflow.schedule.makespan().as_secs_f64());
            // All of the host's memory is allocated before the measurement.
            let host = Tier::host(self.host).growth(HostOptions::default());
            let mut builder = Engine::builder(device).device_cache(self.cache).tier(host);
            if let Some(cache) = overflow.cache {
                builder = builder.tier(Tier::peers(cache));
            }
            let engine = builder.build()?;
            wait_grown(&engine);
            let state = device.alloc(self.cache + self.overflow[gpu])?;
            let (stream, byte) = (device.stream()?, gpu as u8 + 1);
            stream.fill(&mut state.lend_mut(0..state.len())?, byte)?;
            stream.synchronize()?;
            members.push(GroupMember {
                engine,
                state,
                stream,
                byte,
            });
        }
        Ok((predicted, members))
    }
}

/// Lets all engines take in their checkpoints at once, read them back and discard them. Returns the time until the last one was taken in.
fn checkpoint(members: &[GroupMember], version: u64) -> Result<Duration> {
    let barrier = Barrier::new(members.len());
    let times = on_threads(members, |member| {
        barrier.wait();
        let began = Instant::now();
        let state = [Region::from(&member.state)];
        member.engine.checkpoint(version, &state)?;
        Ok(began.elapsed())
    })?;
    for member in members {
        let GroupMember {
            engine,
            state,
            stream,
            byte,
        } = member;
        stream.fill(&mut state.lend_mut(0..state.len())?, 0)?;
        stream.synchronize()?;
        engine.restore(version, &mut [RegionMut::from(state)])?;
        let mut back = vec![0; state.len()];
        stream.read(&state.lend(0..state.len())?, &mut back)?;
        let whole = vec![*byte; MIB];
        let blocks = back.par_chunks(MIB);
        let is_whole = blocks.all(|found| found == &whole[..found.len()]);
        ensure!(is_whole, "version {version} came back wrong");
        engine.discard(version)?;
    }
    Ok(times.into_iter().max().unwrap_or_default())
}
