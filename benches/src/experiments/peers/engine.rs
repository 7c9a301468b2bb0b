//! A group checkpoint from engines, each on a device of plain memory whose links have a rate: the time by the schedule, on the links as
//! they were measured, beside the time for which the group is blocked.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use tierflow_device::{Device, Memory, host};
use tierflow_engine::{Engine, Region, RegionMut, Tier};
use tierflow_peers::{Effort, GroupOverflow, calibrate};
use tierflow_placement::{GpuId, Share, Topology};

use super::Run;

const MIB: usize = 1 << 20;

/// Rates of the throttled links, in bytes per second: each link to a peer, and the host's that all share.
const TO_PEER: f64 = 200e6;
const TO_HOST: f64 = 80e6;

/// Bytes of each device's cache, and by how much each one's checkpoint is larger; the others have as much to spare as they have memory.
const CACHE: usize = 16 * MIB;
const OVERFLOW: [usize; 4] = [64 * MIB, 0, 0, 32 * MIB];

/// The blocked time of a group beside the predicted one, at most.
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
                // All share a link to the host.
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

/// An engine, and the checkpoint that it is to take in.
struct Member {
    engine: Engine,
    state: Memory,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let links = Arc::new(Links::default());
    let devices = (0..OVERFLOW.len()).map(|ordinal| links.device(ordinal));
    let devices = devices.collect::<Result<Vec<_>>>()?;
    let topology = calibrate(&devices, Effort::default().bytes(4 * MIB).trials(2))?.topology()?;
    let rounds = if run.is_quick() { 1 } else { 3 };
    let shares = OVERFLOW.map(|bytes| match bytes as u64 {
        0 => Share::Spare(256 << 20),
        bytes => Share::Remainder(bytes),
    });
    let nothing = shares.map(|share| match share {
        Share::Spare(_) => Share::Spare(0),
        remainder => remainder,
    });
    for (name, shares) in [("min-time-max-flow", shares), ("local-only", nothing)] {
        let case = format!("engines=4 on throttled host memory, strategy={name}");
        let (mut blocked, mut ratios) = (Vec::new(), Vec::new());
        let mut predicted = 0.0;
        for _ in 0..rounds {
            let (seconds, took) = checkpoint(&devices, &topology, &shares)?;
            predicted = seconds;
            blocked.push(took.as_nanos() as f64);
            ratios.push(took.as_secs_f64() / seconds);
        }
        run.value(&case, "predicted", "ns", predicted * 1e9)?;
        run.samples(&case, "blocked", "ns", &blocked)?;
        let row = run.samples(&case, "blocked over predicted", "1", &ratios)?;
        row.against(GOAL);
    }
    Ok(())
}

/// Has all engines take in their checkpoints at once, and read them back. Returns the predicted time, in seconds, and the time until the
/// last one was taken in.
fn checkpoint(
    devices: &[Device],
    topology: &Topology,
    shares: &[Share],
) -> Result<(f64, Duration)> {
    let mut predicted: f64 = 0.0;
    let mut members = Vec::new();
    for (gpu, device) in devices.iter().enumerate() {
        if OVERFLOW[gpu] == 0 {
            continue;
        }
        let overflow = GroupOverflow::new(devices, GpuId(gpu), topology, shares)?;
        ensure!(overflow.refusals.is_empty(), "{:?}", overflow.refusals);
        predicted = predicted.max(overflow.schedule.makespan().as_secs_f64());
        let mut builder = Engine::builder(device)
            .device_cache(CACHE)
            .host_cache(128 * MIB);
        if let Some(cache) = overflow.cache {
            builder = builder.tier(Tier::peers(cache));
        }
        let state = device.alloc(CACHE + OVERFLOW[gpu])?;
        let stream = device.stream()?;
        stream.fill(&mut state.lend_mut(0..state.len())?, gpu as u8 + 1)?;
        members.push(Member {
            engine: builder.build()?,
            state,
        });
    }
    let barrier = Barrier::new(members.len());
    let times: Result<Vec<Duration>> = std::thread::scope(|scope| {
        let threads = members.iter().map(|member| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                let began = Instant::now();
                member
                    .engine
                    .checkpoint(1, &[Region::from(&member.state)])?;
                anyhow::Ok(began.elapsed())
            })
        });
        let threads: Vec<_> = threads.collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Duration>>| {
            thread.join().ok().context("a checkpoint panicked")?
        };
        threads.into_iter().map(join).collect()
    });
    let blocked = times?.into_iter().max().unwrap_or_default();
    for Member { engine, state } in &members {
        let mut back = vec![0; state.len()];
        engine.restore(1, &mut [RegionMut::from(&mut *back)])?;
        ensure!(state.lend(0..state.len())?.bytes()? == back, "bytes differ");
    }
    Ok((predicted, blocked))
}
