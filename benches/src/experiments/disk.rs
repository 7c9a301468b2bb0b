//! The disk tier against the disk's own bandwidth: a history of 128 MiB checkpoints (16 MiB in a quick run) flows to the disk and back,
//! through a small host cache and straight from the device cache, beside raw direct I/O in the same run. With cuFile, the history also
//! flows past the host's memory, or by the library's own copies in its compatibility mode.
//!
//! `TIERFLOW_STORE` names the folder whose disk is measured. The default is the folder for temporary files.

use anyhow::{Result, ensure};
use tierflow_device::{Choice, Device, Memory, open};
use tierflow_engine::{AfterRestore, DirectIo, Engine, Flush, Metrics, Region, RegionMut};

use super::raw::Raw;
use super::{Run, measured_folder};
use crate::processor::{Timings, measure};
use crate::random::fill;
use crate::report::ratios;

/// Bytes of a checkpoint.
const CHECKPOINT: usize = 128 << 20;
/// Checkpoints that the device cache holds.
const DEVICE_CACHE: usize = 8;
/// Checkpoints that the host cache holds.
const HOST_CACHE: usize = 4;
/// Goal: the least bandwidth of the disk tier, divided by that of raw I/O in the same round.
const SHARE_GOAL: f64 = 0.95;
/// Goal: the most cores that the disk tier keeps busy.
const CORES_GOAL: f64 = 1.0;
/// Offset of the first compared bytes of a restored checkpoint after the version's number, and a part of the step to the next.
const LOOKED_AT: usize = 64 << 10;

/// The tiers above the disk, each with true if cuFile copies between the device and the disk. The last is left out without cuFile.
const CACHES: [Caches; 4] = [
    Caches::of("host", 0, HOST_CACHE, DirectIo::Never),
    Caches::of("device and host", DEVICE_CACHE, HOST_CACHE, DirectIo::Never),
    Caches::of("device", DEVICE_CACHE, 0, DirectIo::Never),
    Caches::of("device by cuFile", DEVICE_CACHE, 0, DirectIo::Always),
];

/// The tiers above the disk, by name: bytes of each, and the use of cuFile.
#[derive(Clone, Copy)]
struct Caches {
    name: &'static str,
    device: usize,
    host: usize,
    direct_io: DirectIo,
}

impl Caches {
    const fn of(name: &'static str, device: usize, host: usize, direct_io: DirectIo) -> Self {
        Self {
            name,
            device,
            host,
            direct_io,
        }
    }
}

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let folder = measured_folder()?;
    let (checkpoint, versions, rounds) = match run.is_quick() {
        true => (CHECKPOINT / 8, 16, 2),
        false => (CHECKPOINT, 32, 9),
    };
    let device = open(Choice::Auto)?;
    let mut raw = Raw::new(run, folder.path(), versions * checkpoint as u64, false)?;
    raw.calibrate(run)?;
    let mut histories = Vec::new();
    for caches in CACHES {
        match TierRounds::new(&device, folder.path(), &caches, checkpoint, versions) {
            Ok(history) => histories.push(history),
            Err(error) if caches.direct_io == DirectIo::Always => {
                eprintln!("  {}: {error}", caches.name);
            }
            Err(error) => return Err(error),
        }
    }
    // The first round writes to files without blocks, through caches that are still growing.
    for history in &mut histories {
        let (down, up) = history.round()?;
        let case = format!("caches={}, round=first", history.name);
        run.value(&case, "bandwidth down", "bytes/s", down.rate(down.written))?;
        run.value(&case, "bandwidth up", "bytes/s", up.rate(up.read))?;
    }
    let mut found: Vec<[Vec<f64>; 8]> = vec![Default::default(); histories.len()];
    let mut raws: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        for (history, found) in histories.iter_mut().zip(&mut found) {
            let (write, read) = (raw.write()?, raw.read()?);
            let (down, up) = history.round()?;
            let raw = [write.rate(write.written), read.rate(read.read)];
            let engine = [down.rate(down.written), up.rate(up.read)];
            let shares = [engine[0] / raw[0], engine[1] / raw[1]];
            let raw = [raw[0], raw[1], write.cores(), read.cores()];
            raws.iter_mut()
                .zip(raw)
                .for_each(|(all, value)| all.push(value));
            let per_gb =
                |took: &Timings, bytes: u64| took.processor.as_secs_f64() / (bytes as f64 / 1e9);
            let ours = [
                engine[0],
                engine[1],
                shares[0],
                shares[1],
                down.cores(),
                up.cores(),
                per_gb(&down, down.written),
                per_gb(&up, up.read),
            ];
            found
                .iter_mut()
                .zip(ours)
                .for_each(|(all, value)| all.push(value));
        }
    }
    for (at, way) in ["down", "up"].into_iter().enumerate() {
        let case = format!("by=raw, {}", raw.best(at));
        run.samples(&case, &format!("bandwidth {way}"), "bytes/s", &raws[at])?;
        run.samples(&case, &format!("cores busy {way}"), "1", &raws[2 + at])?;
    }
    for (history, found) in histories.iter().zip(&found) {
        let case = format!("caches={}", history.name);
        for (at, way) in ["down", "up"].into_iter().enumerate() {
            run.samples(&case, &format!("bandwidth {way}"), "bytes/s", &found[at])?;
            for (metric, samples, goal) in [
                ("share of raw I/O", &found[2 + at], SHARE_GOAL),
                ("cores busy", &found[4 + at], CORES_GOAL),
            ] {
                let row = run.samples(&case, &format!("{metric} {way}"), "1", samples)?;
                // The engine compares cuFile with its buffers, and takes cuFile if it is faster.
                if history.direct_io == DirectIo::Never {
                    row.against(goal);
                }
            }
            run.samples(
                &case,
                &format!("processor time {way}"),
                "s/GB",
                &found[6 + at],
            )?;
        }
        passed(run, &case, &history.metrics())?;
    }
    // Both are of one round: straight from the device's memory, and through the host cache.
    let case = "caches=device, beside=device and host";
    for (at, way) in ["down", "up"].into_iter().enumerate() {
        let shares = ratios(&found[2][at], &found[1][at]);
        let metric = format!("rate {way} of that through the host in the same round");
        run.samples(case, &metric, "1", &shares)?.against(1.0);
    }
    let Some(by_cufile) = found.get(3) else {
        return Ok(());
    };
    let case = "caches=device by cuFile, beside=device";
    for (at, way) in ["down", "up"].into_iter().enumerate() {
        let shares = ratios(&by_cufile[at], &found[2][at]);
        let metric = format!("rate {way} of that through pinned buffers in the same round");
        run.samples(case, &metric, "1", &shares)?;
    }
    Ok(())
}

/// Reports the bytes that moved between the tiers, and how often host memory was written or read for each byte to the disk: once by each
/// end of a copy. Bytes between a device and a file pass a pinned ring in host memory, or cuFile's own memory in its compatibility mode.
fn passed(run: &mut Run, case: &str, metrics: &Metrics) -> Result<()> {
    let (mut touched, mut stored) = (0, 0);
    let mode = metrics.direct.as_ref().and_then(|direct| direct.mode);
    if let Some(mode) = mode {
        eprintln!("  {case}: cuFile in {mode}");
    }
    let through_host = match mode {
        None | Some("compatibility mode") => 2,
        Some(_) => 0,
    };
    for hop in &metrics.hops {
        let metric = format!("{} to {}", hop.from, hop.to);
        run.value(case, &metric, "bytes", hop.bytes as f64)?;
        let (accesses, is_stored) = match (hop.from, hop.to) {
            ("device", "host") => (1, false),
            ("host", "file") => (1, true),
            ("device", "file") => (through_host, true),
            _ => continue,
        };
        touched += hop.bytes * accesses;
        stored += if is_stored { hop.bytes } else { 0 };
    }
    let metric = "accesses to host memory for a byte to the disk";
    run.value(case, metric, "1", touched as f64 / stored as f64)?;
    Ok(())
}

/// An engine through which a history of `versions` checkpoints goes down and up in each round; `next` is the first version of the
/// next round.
struct TierRounds {
    name: &'static str,
    direct_io: DirectIo,
    engine: Engine,
    device: Device,
    field: Memory,
    back: Memory,
    content: Vec<u8>,
    versions: u64,
    next: u64,
}

impl TierRounds {
    fn new(
        device: &Device,
        folder: &std::path::Path,
        caches: &Caches,
        checkpoint: usize,
        versions: u64,
    ) -> Result<Self> {
        // For a host cache alone, the application's checkpoints are in host memory, too.
        let host = open(Choice::Host)?;
        let device = if caches.device > 0 { device } else { &host };
        let engine = Engine::builder(device)
            .device_cache(caches.device * checkpoint)
            .host_cache(caches.host * checkpoint)
            .scratch(folder)
            .direct_io(caches.direct_io)
            .after_restore(AfterRestore::Discard)
            .flush(Flush::Eager)
            .build()?;
        let mut content = vec![0; checkpoint];
        fill(&mut content, 0);
        let (field, back) = (device.alloc(checkpoint)?, device.alloc(checkpoint)?);
        device
            .stream()?
            .write(&content, &mut field.lend_mut(0..checkpoint)?)?;
        Ok(Self {
            name: caches.name,
            direct_io: caches.direct_io,
            engine,
            device: device.clone(),
            field,
            back,
            content,
            versions,
            next: 0,
        })
    }

    fn metrics(&self) -> Metrics {
        self.engine.metrics()
    }

    /// Moves a history down until all of it is on the disk, and up again from the first version on. Returns the times of both.
    fn round(&mut self) -> Result<(Timings, Timings)> {
        let versions = self.next..self.next + self.versions;
        self.next = versions.end;
        let stream = self.device.stream()?;
        self.engine.hint(versions.clone());
        let down = measure(|| {
            for version in versions.clone() {
                stream.write(&version.to_le_bytes(), &mut self.field.lend_mut(0..8)?)?;
                stream.synchronize()?;
                self.engine
                    .checkpoint(version, &[Region::from(&self.field)])?;
            }
            Ok(self.engine.wait()?)
        })?;
        let up = measure(|| {
            self.engine.hints().prefetch_start();
            for version in versions {
                self.engine
                    .restore(version, &mut [RegionMut::from(&self.back)])?;
                self.check(version)?;
            }
            Ok(())
        })?;
        Ok((down, up))
    }

    fn check(&self, version: u64) -> Result<()> {
        let stream = self.device.stream()?;
        let mut bytes = [0; 8];
        stream.read(&self.back.lend(0..8)?, &mut bytes)?;
        ensure!(
            version.to_le_bytes() == bytes,
            "version {version} came back as another"
        );
        let length = self.content.len();
        for at in (LOOKED_AT..length).step_by(length / 64 + LOOKED_AT) {
            stream.read(&self.back.lend(at..at + 8)?, &mut bytes)?;
            ensure!(
                self.content[at..at + 8] == bytes,
                "version {version} came back otherwise"
            );
        }
        Ok(())
    }
}
