//! The rates of this machine's links, measured the way the engine uses them: the hardware that is given to the simulator.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_device::{Device, HostReservation, Kind, Memory, Stream};
use tierflow_sim::{Hardware, Hop, Link, Tier, UNLIMITED};
use tierflow_store::{Scratch, Storage};

use super::{Scale, scratch};
use crate::experiments::Run;
use crate::report::Spread;
use crate::threads::on_threads;

/// Requests at a time between main memory and storage, as the engine makes them: parts of one transfer.
const STORAGE_WORKERS: usize = 4;

/// Bytes of one request to storage, as the engine makes them.
const PIECE: usize = 16 << 20;

/// Time for which each rate is measured.
const SPAN: Duration = Duration::from_millis(1500);

/// Time for which writes to storage are measured if histories have the paper's size. A disk is faster in a first burst than afterwards.
const WRITING: Duration = Duration::from_secs(4);

/// The directions of a way between two memories.
#[derive(Debug, Clone, Copy)]
struct Rates {
    down: f64,
    up: f64,
    both: f64,
}

impl Rates {
    /// Returns the link of these rates. Both directions together count at least as much as one alone, as a lower rate is noise.
    fn link(self) -> Link {
        let together = self.both.max(self.down).max(self.up) as u64;
        let link = Link {
            down: self.down as u64,
            up: self.up as u64,
            ..Link::own(1)
        };
        link.together(together)
    }
}

/// Measures the bandwidths and latencies of this machine under caches of this scale.
pub(super) fn hardware(run: &mut Run, device: &Device, scale: &Scale) -> Result<Hardware> {
    let span = if run.is_quick() { SPAN / 30 } else { SPAN };
    let copy = within_device(device, scale)?;
    let call = latency(device)?;
    let pcie = between_device_and_host(device, scale, span)?;
    let disk = between_host_and_storage(device, span)?;
    let case = format!("calibration on {}", device.info().name);
    run.value(&case, "copy within the device", "bytes/s", copy)?;
    run.value(&case, "least time of a call", "ns", call)?;
    for (way, rates) in [("device and host", pcie), ("host and storage", disk)] {
        let directions = [("down", rates.down), ("up", rates.up), ("both", rates.both)];
        for (direction, rate) in directions {
            run.value(
                &case,
                &format!("between {way}, {direction}"),
                "bytes/s",
                rate,
            )?;
        }
    }
    let call = call as u64;
    let hop = |link: Link, latency| Hop::over(link, latency);
    Ok(Hardware::new()
        .tier(
            Tier::new("device", scale.device),
            hop(Link::own(copy as u64), call),
        )
        .tier(Tier::new("host", scale.host), hop(pcie.link(), call))
        .tier(Tier::new("file", UNLIMITED), hop(disk.link(), 50_000)))
}

fn median(times: impl Iterator<Item = Result<f64>>) -> Result<f64> {
    Ok(Spread::of(&times.collect::<Result<Vec<_>>>()?)?.median)
}

/// Returns the ns of a copy of a few bytes.
fn latency(device: &Device) -> Result<f64> {
    let (memory, stream) = (device.alloc(8192)?, device.stream()?);
    let times = (0..200).map(|_| {
        let begun = Instant::now();
        stream.copy_all([(memory.lend(0..8)?, memory.lend_mut(4096..4104)?)])?;
        Ok(begun.elapsed().as_nanos() as f64)
    });
    median(times)
}

/// Returns the bytes/s of the copies that an application makes between pauses, without the least time of a call.
fn within_device(device: &Device, scale: &Scale) -> Result<f64> {
    let length = scale.version as usize;
    let (from, to, stream) = (
        device.alloc(length)?,
        device.alloc(length)?,
        device.stream()?,
    );
    stream.fill(&mut from.lend_mut(0..length)?, 1)?;
    stream.fill(&mut to.lend_mut(0..length)?, 2)?;
    let least = latency(device)?;
    let times = (0..60).map(|_| {
        std::thread::sleep(scale.interval);
        let begun = Instant::now();
        stream.copy_all([(from.lend(0..length)?, to.lend_mut(0..length)?)])?;
        Ok((begun.elapsed().as_nanos() as f64 - least).max(1.0))
    });
    Ok(length as f64 * 1e9 / median(times)?)
}

/// Allocates host memory that is touched, and pinned if possible.
fn host_memory(device: &Device, length: usize) -> Result<HostReservation> {
    let memory = device.reserve_host(length.next_multiple_of(HostReservation::GRANULARITY))?;
    memory.memory().lend_mut(0..length)?.bytes_mut()?.fill(1);
    // Memory that cannot be pinned is slower, which the measured rates show.
    let _ = memory.pin(0..memory.memory().len())?;
    Ok(memory)
}

fn between_device_and_host(device: &Device, scale: &Scale, span: Duration) -> Result<Rates> {
    let length = scale.version as usize;
    let near = [device.alloc(length)?, device.alloc(length)?];
    let far = [host_memory(device, length)?, host_memory(device, length)?];
    for memory in &near {
        device.stream()?.fill(&mut memory.lend_mut(0..length)?, 1)?;
    }
    let copy = |from: &Memory, to: &Memory, stream: &Stream| -> Result<usize> {
        stream.copy_all([(from.lend(0..length)?, to.lend_mut(0..length)?)])?;
        Ok(length)
    };
    let streams = [device.stream()?, device.stream()?];
    let down = || copy(&near[0], far[0].memory(), &streams[0]);
    let up = || copy(far[1].memory(), &near[1], &streams[1]);
    Ok(Rates {
        down: rate(&[&down], span)?,
        up: rate(&[&up], span)?,
        both: rate(&[&down, &up], span)?,
    })
}

/// Measures the rates between host memory and storage. Writes go to places that were never written before, as those of a new engine
/// do. Reads read the written bytes.
fn between_host_and_storage(device: &Device, span: Duration) -> Result<Rates> {
    let file = Scratch::open(&scratch())?;
    let buffers = (0..2 * STORAGE_WORKERS).map(|_| host_memory(device, PIECE));
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    let (written, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let place = |index: usize| (index * PIECE) as u64;
    let write = |buffer: &HostReservation| -> Result<usize> {
        let next = written.fetch_add(1, Ordering::Relaxed);
        file.write_at(place(next), buffer.memory().lend(0..PIECE)?.bytes()?)?;
        Ok(PIECE)
    };
    let (writers, readers) = buffers.split_at(STORAGE_WORKERS);
    let writes: Vec<_> = writers.iter().map(|buffer| move || write(buffer)).collect();
    let writes: Vec<&Work<'_>> = writes.iter().map(|work| work as _).collect();
    let writing = match device.info().kind {
        Kind::Cuda => WRITING,
        _ => span,
    };
    let down = rate(&writes, writing)?;
    let there = written.load(Ordering::Relaxed);
    let read = |buffer: &HostReservation| -> Result<usize> {
        let next = read.fetch_add(1, Ordering::Relaxed) % there.max(1);
        let mut loan = buffer.memory().lend_mut(0..PIECE)?;
        file.read_at(place(next), loan.bytes_mut()?)?;
        Ok(PIECE)
    };
    let reads: Vec<_> = readers.iter().map(|buffer| move || read(buffer)).collect();
    let reads: Vec<&Work<'_>> = reads.iter().map(|work| work as _).collect();
    let all: Vec<_> = writes.iter().chain(&reads).copied().collect();
    Ok(Rates {
        down,
        up: rate(&reads, span)?,
        both: rate(&all, span)?,
    })
}

/// A function that moves bytes and returns their number.
type Work<'a> = dyn Fn() -> Result<usize> + Sync + 'a;

/// Returns the bytes/s of all works together. Each is repeated in a thread of its own for `span`.
fn rate(works: &[&Work<'_>], span: Duration) -> Result<f64> {
    let start = Barrier::new(works.len());
    let repeat = |work: &Work<'_>| -> Result<f64> {
        start.wait();
        let begun = Instant::now();
        let mut bytes = 0;
        while begun.elapsed() < span {
            bytes += work()?;
        }
        Ok(bytes as f64 / begun.elapsed().as_secs_f64())
    };
    Ok(on_threads(works, |work| repeat(work))?.iter().sum())
}
