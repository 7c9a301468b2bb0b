//! Processes that work at the same time. Each is this binary, which reads tasks from standard input and writes answers to standard
//! output, one line of JSON each.

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
    /// Allocates device memory by the strategy of this name, until all of it is usable.
    Device { bytes: usize, growth: String },
    /// Touches host memory by one thread, and keeps it.
    Touch { bytes: usize },
    /// Pins the memory that was touched last, as a whole, and gives it back when all processes have pinned theirs. With a lock file, one
    /// process pins at a time (HiPC'22 §IV-A, "serialized registration").
    Pin { lock: Option<PathBuf> },
    /// Allocates pinned host memory by one call of the driver.
    DirectPin { bytes: usize },
    /// Grows a host arena in pieces, until all of it is pinned.
    Pieces { bytes: usize },
    /// Runs both passes of an application.
    Passes(Box<Load>),
    /// Gives back the memory of the earlier steps.
    Free,
}

/// A child's answer. Times are since the Unix epoch, so that those of several processes can be compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    pub(super) bytes: usize,
    pub(super) passes: Option<Passes>,
    /// A description of the part that could not be had, if any.
    pub(super) note: Option<String>,
}

/// Children that are ready.
pub(super) struct Family(Vec<Process>);

impl Family {
    /// Starts `count` processes and waits until each has opened the device.
    pub(super) fn start(count: usize) -> Result<Self> {
        let children = (0..count).map(|index| Process::start("alloc", &index));
        let mut family = Self(children.collect::<Result<_>>()?);
        family.all(&Task::Free)?;
        Ok(family)
    }

    /// Lets all children carry out a task at the same time, and waits for all.
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

/// Returns the bytes per second of all children together, from the first begin to the last end.
pub(super) fn aggregate(done: &[Done]) -> Result<f64> {
    let begun = done.iter().map(|done| done.begun).min();
    let ended = done.iter().map(|done| done.ended).max();
    let (begun, ended) = begun.zip(ended).context("no process did anything")?;
    let bytes: usize = done.iter().map(|done| done.bytes).sum();
    Ok(bytes as f64 / ended.saturating_sub(begun).as_secs_f64().max(1e-9))
}

/// Returns the mean bytes per second of a child.
pub(super) fn each(done: &[Done]) -> f64 {
    let rate = |done: &Done| {
        let took = done.ended.saturating_sub(done.begun).as_secs_f64();
        done.bytes as f64 / took.max(1e-9)
    };
    done.iter().map(rate).sum::<f64>() / done.len().max(1) as f64
}

/// Runs the child of this number, which chooses its GPU. Carries out tasks until there are no more.
///
/// # Errors
/// An error if the device cannot be opened, or the parent is gone.
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
