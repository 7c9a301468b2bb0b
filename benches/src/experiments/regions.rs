//! Checkpoints of very many regions, compared with one region of the same bytes: the time for which they block, and the rate to a disk
//! and back, compared with the disk's raw direct I/O.
//!
//! `TIERFLOW_STORE` names the folder whose disk is measured. The default is the folder for temporary files.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use tierflow_device::{Choice, Device, Memory, open};
use tierflow_engine::{Engine, Region, RegionMut};

use super::raw::Raw;
use super::{Run, measured_folder};
use crate::random::unit;
use crate::report::{Spread, ratios};

/// Regions of a checkpoint. A quick run has a twentieth.
const COUNT: usize = 10_000;
/// Goal: the least bandwidth of many regions, divided by that of raw I/O in the same round.
const SHARE_GOAL: f64 = 0.85;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let device = open(Choice::Auto)?;
    let folder = measured_folder()?;
    let count = if run.is_quick() { COUNT / 20 } else { COUNT };
    for is_odd in [false, true] {
        let case = ManyRegions::new(&device, count, is_odd)?;
        if !is_odd {
            to_disk(run, &device, &case, folder.path())?;
        }
        for is_near in [true, false] {
            blocked(run, &device, &case, is_near)?;
        }
    }
    Ok(())
}

/// Regions of 4 KiB to 1 MiB, with gaps between them. Each order of magnitude has the same number of regions.
struct ManyRegions {
    name: String,
    memory: Memory,
    back: Memory,
    /// The first byte and the length of each region.
    regions: Vec<(usize, usize)>,
    total: usize,
}

impl ManyRegions {
    fn new(device: &Device, count: usize, is_odd: bool) -> Result<Self> {
        let mut number = 1_u64;
        let mut at = 0;
        let mut regions = Vec::with_capacity(count);
        for _ in 0..count {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let length = 4096.0 * 256.0_f64.powf(unit(number));
            let length = length as usize / 16 * 16 + if is_odd { number as usize % 16 } else { 0 };
            regions.push((at, length));
            at += length
                + if is_odd {
                    1 + (number >> 5) as usize % 50
                } else {
                    64
                };
        }
        let total = regions.iter().map(|(_, length)| length).sum();
        let (memory, back) = (device.alloc(at)?, device.alloc(at)?);
        let stream = device.stream()?;
        let content: Vec<u8> = (0..at).map(|byte| ((byte * 31) >> 7) as u8).collect();
        stream.write(&content, &mut memory.lend_mut(0..at)?)?;
        stream.fill(&mut back.lend_mut(0..at)?, 0)?;
        Ok(Self {
            name: format!(
                "regions={count}, at={}",
                if is_odd { "odd" } else { "16-byte" }
            ),
            memory,
            back,
            regions,
            total,
        })
    }

    fn many(&self) -> Vec<Region<'_>> {
        let ranges = self.regions.iter().map(|(at, length)| *at..at + length);
        ranges
            .map(|range| Region::Memory(&self.memory, range))
            .collect()
    }

    fn many_back(&self) -> Vec<RegionMut<'_>> {
        let ranges = self.regions.iter().map(|(at, length)| *at..at + length);
        ranges
            .map(|range| RegionMut::Memory(&self.back, range))
            .collect()
    }

    fn check(&self, device: &Device) -> Result<()> {
        let stream = device.stream()?;
        let length = self.memory.len();
        let (mut one, mut other) = (vec![0; length], vec![0; length]);
        stream.read(&self.memory.lend(0..length)?, &mut one)?;
        stream.read(&self.back.lend(0..length)?, &mut other)?;
        for (at, length) in &self.regions {
            let range = *at..at + length;
            ensure!(
                one[range.clone()] == other[range],
                "a region came back as another"
            );
        }
        Ok(())
    }
}

/// Measures the time for which a checkpoint into the first cache and a restore from it block: within the device's memory if `is_near`,
/// else between the device's and the host's memory.
fn blocked(run: &mut Run, device: &Device, case: &ManyRegions, is_near: bool) -> Result<()> {
    let rounds = if run.is_quick() { 5 } else { 21 };
    let cache = 2 * case.total + (64 << 20);
    let builder = Engine::builder(device);
    let engine = match is_near {
        true => builder.device_cache(cache),
        false => builder.host_cache(cache),
    };
    let engine = engine.build()?;
    let mut times: [Vec<f64>; 4] = Default::default();
    let one = || Region::Memory(&case.memory, 0..case.total);
    for round in 0..rounds + 3 {
        if round == 3 {
            // After this round, the cache's pages are allocated and the kernel is loaded.
            times = Default::default();
        }
        let (many, mut back) = (case.many(), case.many_back());
        times[0].push(timed(|| Ok(engine.checkpoint(2 * round, &many)?))?);
        times[1].push(timed(|| Ok(engine.restore(2 * round, &mut back)?))?);
        if round == 0 {
            case.check(device)?;
        }
        engine.discard(2 * round)?;
        let mut back = [RegionMut::Memory(&case.back, 0..case.total)];
        times[2].push(timed(|| Ok(engine.checkpoint(2 * round + 1, &[one()])?))?);
        times[3].push(timed(|| Ok(engine.restore(2 * round + 1, &mut back)?))?);
        engine.discard(2 * round + 1)?;
    }
    for (way, many, one) in [("checkpoint", 0, 2), ("restore", 1, 3)] {
        let cache = if is_near { "device" } else { "host" };
        let named = format!(
            "{}, cache={cache}, bytes={}, way={way}",
            case.name, case.total
        );
        run.samples(&named, "blocked as one region", "s", &times[one])?;
        let alone = Spread::of(&times[one])?.median;
        run.samples(&named, "blocked", "s", &times[many])?
            .against(alone);
    }
    Ok(())
}

/// Measures several versions to the disk, and the last version back by an engine that has it on the disk only.
fn to_disk(run: &mut Run, device: &Device, case: &ManyRegions, folder: &Path) -> Result<()> {
    let (rounds, versions) = if run.is_quick() { (2, 2) } else { (7, 3) };
    let mut raw = Raw::new(run, folder, case.total as u64, true)?;
    raw.calibrate(run)?;
    // Rates of raw I/O, of one region, and of many regions.
    let (mut saves, mut restores): ([Vec<f64>; 3], [Vec<f64>; 3]) = Default::default();
    let (mut pieces, mut anew) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let rate = |bytes: usize, time: f64| bytes as f64 / time;
        let took = raw.write()?;
        saves[0].push(took.rate(took.written));
        let took = raw.write_new(folder)?;
        anew.push(took.rate(took.written));
        let took = raw.read()?;
        restores[0].push(took.rate(took.read));
        for is_many in [false, true] {
            let by = 1 + usize::from(is_many);
            let regions = match is_many {
                true => case.many(),
                false => vec![Region::Memory(&case.memory, 0..case.total)],
            };
            let directory = folder.join(format!("kept-{round}-{by}"));
            let cache = 2 * case.total + (64 << 20);
            let builder = || {
                Engine::builder(device)
                    .host_cache(cache)
                    .node_local(&directory)
            };
            let engine = builder().build()?;
            // The first checkpoint touches and pins the pages of the cache.
            engine.checkpoint(0, &regions)?;
            engine.checkpoint(1, &regions)?;
            engine.wait()?;
            let time = timed(|| {
                for version in 2..2 + versions {
                    engine.checkpoint(version, &regions)?;
                }
                Ok(engine.wait()?)
            })?;
            saves[by].push(rate(versions as usize * case.total, time));
            drop(engine);
            if is_many {
                pieces.extend(extents(&directory));
            }
            let engine = builder().build()?;
            let mut back = match is_many {
                true => case.many_back(),
                false => vec![RegionMut::Memory(&case.back, 0..case.total)],
            };
            let time = timed(|| Ok(engine.restore(1 + versions, &mut back)?))?;
            restores[by].push(rate(case.total, time));
            if is_many {
                case.check(device)?;
            }
            drop(engine);
            std::fs::remove_dir_all(&directory)?;
        }
    }
    for (way, rates) in [("save", &saves), ("restore", &restores)] {
        let named = format!("{}, bytes={}, way={way}", case.name, case.total);
        let names = ["by=raw", "by=engine as one region", "by=engine"];
        for (by, rates) in names.iter().zip(rates) {
            run.samples(&format!("{named}, {by}"), "bandwidth", "bytes/s", rates)?;
        }
        let shares = ratios(&rates[2], &rates[0]);
        let named = format!("{named}, by=engine");
        run.samples(&named, "share of raw I/O in the same round", "1", &shares)?
            .against(SHARE_GOAL);
    }
    let shares = ratios(&saves[2], &anew);
    let named = format!("{}, bytes={}, way=save", case.name, case.total);
    let by_raw = format!("{named}, by=raw, new file");
    run.samples(&by_raw, "bandwidth", "bytes/s", &anew)?;
    let metric = "share of raw I/O to a new file in the same round";
    run.samples(&format!("{named}, by=engine"), metric, "1", &shares)?
        .against(SHARE_GOAL);
    if !pieces.is_empty() {
        let named = format!("{}, bytes={}", case.name, case.total);
        run.samples(&named, "runs of blocks of a version's file", "1", &pieces)?;
    }
    Ok(())
}

/// Returns the number of runs of blocks of each file of at least 1 MiB, by `filefrag` (e2fsprogs); empty if it is not installed.
fn extents(directory: &Path) -> Vec<f64> {
    let files = std::fs::read_dir(directory.join("rank-0")).into_iter();
    let files = files.flatten().flatten().map(|entry| entry.path());
    let large = files.filter(|file| file.metadata().is_ok_and(|is| is.len() >= 1 << 20));
    let told = large.filter_map(|file| {
        let output = Command::new("filefrag").arg(file).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let (_, count) = text.rsplit_once(": ")?;
        count.split_whitespace().next()?.parse().ok()
    });
    told.collect()
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}
