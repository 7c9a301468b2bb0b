//! The size of an experiment on this machine. The paper's size is 256 checkpoints of 128 MiB for each GPU, 4 GiB of device cache and
//! 32 GiB of host cache.

use std::time::Duration;

use anyhow::Result;
use tierflow_device::{Choice, Device, HostReservation, Kind, Pinned, open};

use super::passes::Load;
use crate::experiments::Run;

pub(super) const MIB: usize = 1 << 20;
pub(super) const PAPER_CHECKPOINT: usize = 128 * MIB;
pub(super) const PAPER_COUNT: usize = 256;

/// Bytes of the host cache over those of the device cache: 32 GiB to 4 GiB.
pub(super) const HOST_TO_DEVICE: usize = 8;

#[derive(Debug)]
pub(super) struct AllocScale {
    pub(super) device: Device,
    /// Bytes of one checkpoint.
    pub(super) checkpoint: usize,
    /// Checkpoints of one pass: of the goals, and of the sweeps, which have many.
    pub(super) count: usize,
    pub(super) sweep_count: usize,
    /// Checkpoints of the longest pass: twice as many if there is memory for them.
    pub(super) longest: usize,
    /// Milliseconds of computing between two checkpoints.
    pub(super) intervals: Vec<u64>,
    /// Processes at a time.
    pub(super) processes: Vec<usize>,
    /// Bytes that each of several processes allocates if only the allocation is measured.
    pub(super) share: usize,
    /// The same for memory that is pinned: without a driver, no more than the process may lock.
    pub(super) pinnable: usize,
}

/// Returns the value of a result that is no error. An error becomes a row of the report and does not end it.
pub(super) fn tolerate<T>(run: &mut Run, what: &str, found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => {
            eprintln!("  FAILED: {what}: {error:#}");
            run.value(&format!("failed={what}"), "failures", "1", 1.0)?;
            Ok(None)
        }
    }
}

/// Returns the most bytes that the system lets a process lock, up to `bytes`.
fn lockable(bytes: usize) -> Result<usize> {
    let device = open(Choice::Host)?;
    let mut bytes = bytes;
    loop {
        let (_, pinned) = device.alloc_pinned(bytes)?;
        if pinned == Pinned::Yes || bytes <= HostReservation::GRANULARITY {
            return Ok(bytes);
        }
        bytes = (bytes / 2).next_multiple_of(HostReservation::GRANULARITY);
    }
}

impl AllocScale {
    pub(super) fn of_this_machine(quick: bool) -> Result<Self> {
        let device = open(Choice::Auto)?;
        let gpu = device.info().kind == Kind::Cuda;
        let (checkpoint, count, sweep_count, share) = match (gpu, quick) {
            (true, false) => (PAPER_CHECKPOINT, PAPER_COUNT, 32, 4096 * MIB),
            (true, true) => (PAPER_CHECKPOINT, 32, 8, 512 * MIB),
            (false, false) => (4 * MIB, 128, 32, 256 * MIB),
            (false, true) => (MIB, 16, 8, 32 * MIB),
        };
        let intervals = if quick {
            vec![5, 10]
        } else {
            vec![5, 10, 20, 30, 60]
        };
        let cores = std::thread::available_parallelism()?.get();
        let most = if quick { 2 } else { 8 };
        let processes = [1, 2, 4, 8]
            .into_iter()
            .filter(|&processes| processes <= most.min(cores.max(2)))
            .collect();
        // All memory of an experiment may take three fifths of the available memory.
        let available = available_bytes().unwrap_or(u64::MAX) / 5 * 3;
        let fits = usize::try_from(available).unwrap_or(usize::MAX);
        let longest = (2 * count).min(fits / checkpoint).max(HOST_TO_DEVICE);
        let count = count.min(longest);
        let share = share.min(fits / most / MIB * MIB).max(2 * MIB);
        let pinnable = if gpu { share } else { lockable(share)? };
        Ok(Self {
            device,
            checkpoint,
            count,
            sweep_count: sweep_count.min(count),
            longest,
            intervals,
            processes,
            share,
            pinnable,
        })
    }

    /// Reports the size of the experiment beside the paper's size.
    pub(super) fn report(&self, run: &mut Run) -> Result<()> {
        let paper = (PAPER_COUNT * PAPER_CHECKPOINT) as f64;
        for (case, count) in [("goals", self.count), ("sweeps", self.sweep_count)] {
            let case = format!("size={case}");
            run.value(
                &case,
                "size of a checkpoint",
                "bytes",
                self.checkpoint as f64,
            )?
            .against(PAPER_CHECKPOINT as f64);
            run.value(
                &case,
                "host cache",
                "bytes",
                (count * self.checkpoint) as f64,
            )?
            .against(paper);
        }
        Ok(())
    }

    /// Returns the load of `count` checkpoints with a cold host cache that holds them all. `strategy` has those of the device and of the
    /// host; `interval` is in ms.
    pub(super) fn load(&self, count: usize, strategy: (&str, &str), interval: u64) -> Load {
        let bytes = count * self.checkpoint;
        Load {
            sizes: vec![self.checkpoint; count],
            interval: Duration::from_millis(interval),
            device_bytes: bytes / HOST_TO_DEVICE,
            host_bytes: bytes,
            device: strategy.0.to_owned(),
            host: strategy.1.to_owned(),
            warm: false,
        }
    }

    pub(super) fn is_gpu(&self) -> bool {
        self.device.info().kind == Kind::Cuda
    }
}

/// Returns the bytes of main memory that are available.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
