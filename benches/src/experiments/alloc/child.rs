//! Processes that do something at the same time: this binary, started again, told what to do on standard input and
//! answering on standard output, one line of JSON each.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tierflow_device::{Device, HostReservation, Memory, Pinned};
use tierflow_tier_alloc::{DeviceArena, DeviceGrowth, HostArena, HostGrowth, PinTurns};

use super::passes::{Load, Passes, device_growth, passes};
use crate::machine::device_of;
use crate::process::{Process, say};

/// A task of a child, with the memory that it keeps from the steps before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Device memory, all of it usable, by the strategy of this name.
    Device { bytes: usize, growth: String },
    /// Host memory touched by one thread, and kept.
    Touch { bytes: usize },
    /// Memory that was touched last is pinned, as a whole, and given back when all are done: by one process at a time, if there is
    /// a file to lock meanwhile (HiPC'22 §IV-A, "serialized registration").
    Pin { lock: Option<PathBuf> },
    /// Host memory pinned by one call of the driver's.
    DirectPin { bytes: usize },
    /// A host arena in pieces, until all is pinned.
    Pieces { bytes: usize },
    /// Both passes of an application.
    Passes(Box<Load>),
    /// Gives back what the steps before left.
    Free,
}

/// A child's answer. Times are since the Unix epoch, so that those of several processes can be compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    pub(super) bytes: usize,
    pub(super) passes: Option<Passes>,
    /// The part that was not obtained, if any.
    pub(super) note: Option<String>,
}

/// Children that are ready.
pub(super) struct Family(Vec<Process>);

impl Family {
    /// Starts so many processes and waits until each has opened the device.
    pub(super) fn start(count: usize) -> Result<Self> {
        let children = (0..count).map(|index| Process::start("alloc", &index));
        let mut family = Self(children.collect::<Result<_>>()?);
        family.all(&Task::Free)?;
        Ok(family)
    }

    /// Has all of them do this at the same time, and waits for all.
    pub(super) fn all(&mut self, task: &Task) -> Result<Vec<Done>> {
        let order = serde_json::to_string(task)?;
        for process in &mut self.0 {
            process.tell(&order)?;
        }
        let answers = self.0.iter().map(|process| {
            let answer: Result<Done, String> = serde_json::from_str(&process.hear()?)?;
            answer.map_err(|error| anyhow::anyhow!("a child process failed: {error}"))
        });
        answers.collect()
    }
}

/// Bytes per second of all together, from the first one's begin to the last one's end.
pub(super) fn aggregate(done: &[Done]) -> Result<f64> {
    let begun = done.iter().map(|done| done.begun).min();
    let ended = done.iter().map(|done| done.ended).max();
    let (begun, ended) = begun.zip(ended).context("no process did anything")?;
    let bytes: usize = done.iter().map(|done| done.bytes).sum();
    Ok(bytes as f64 / ended.saturating_sub(begun).as_secs_f64().max(1e-9))
}

/// Bytes per second of each, on average.
pub(super) fn each(done: &[Done]) -> f64 {
    let rate = |done: &Done| {
        let took = done.ended.saturating_sub(done.begun).as_secs_f64();
        done.bytes as f64 / took.max(1e-9)
    };
    done.iter().map(rate).sum::<f64>() / done.len().max(1) as f64
}

/// Runs the child of this number, which chooses its GPU: carries out tasks until there are no more.
///
/// # Errors
/// When the device cannot be opened, or the parent is gone.
pub(crate) fn child(index: usize) -> Result<()> {
    let device = device_of(index)?;
    // The cost of a first stream is not measured.
    drop(device.stream()?);
    let mut held = ChildMemory::default();
    for line in std::io::stdin().lines() {
        let task: Task = serde_json::from_str(&line?)?;
        let answer = held
            .act(&device, task)
            .map_err(|error| format!("{error:#}"));
        say(&serde_json::to_string(&answer)?)?;
    }
    Ok(())
}

/// The memory that a child keeps between steps.
#[derive(Default)]
struct ChildMemory {
    touched: Option<HostReservation>,
    memory: Option<Memory>,
    device_arena: Option<DeviceArena>,
    host_arena: Option<HostArena>,
}

impl ChildMemory {
    fn act(&mut self, device: &Device, task: Task) -> Result<Done> {
        let begun = SystemTime::now();
        let mut note = None;
        let mut found = None;
        let bytes = match task {
            Task::Free => {
                *self = Self::default();
                0
            }
            Task::Device { bytes, growth } => {
                let growth: DeviceGrowth = device_growth(&growth)?;
                let arena = DeviceArena::start(device, bytes, growth)?;
                arena.wait_usable(arena.capacity())?;
                let capacity = arena.capacity();
                self.device_arena = Some(arena);
                capacity
            }
            Task::Touch { bytes } => {
                let reservation = device.reserve_host(bytes)?;
                reservation.touch(0..bytes)?;
                self.touched = Some(reservation);
                bytes
            }
            Task::Pin { lock } => {
                let Some(reservation) = &self.touched else {
                    bail!("nothing was touched");
                };
                let turns = lock.map(|path| PinTurns::open(&path)).transpose()?;
                let len = reservation.memory().len();
                let pin = || reservation.pin(0..len);
                match turns.map_or_else(pin, |turns| turns.take(pin))? {
                    Pinned::Yes => len,
                    Pinned::No(why) => {
                        note = Some(why.to_string());
                        0
                    }
                }
            }
            Task::DirectPin { bytes } => {
                let (memory, pinned) = device.alloc_pinned(bytes)?;
                self.memory = Some(memory);
                if let Pinned::No(why) = pinned {
                    note = Some(why.to_string());
                }
                bytes
            }
            Task::Pieces { bytes } => {
                let arena = HostArena::start(device, bytes, HostGrowth::default())?;
                arena.wait_grown();
                let report = arena.report();
                note = report.why_unpinned.map(|why| why.to_string());
                self.host_arena = Some(arena);
                report.pinned
            }
            Task::Passes(load) => {
                found = Some(passes(device, &load)?);
                load.sizes.iter().sum()
            }
        };
        let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH);
        Ok(Done {
            begun: since_epoch(begun)?,
            ended: since_epoch(SystemTime::now())?,
            bytes,
            passes: found,
            note,
        })
    }
}
