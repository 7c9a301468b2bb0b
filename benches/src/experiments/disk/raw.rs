//! Direct I/O without an engine: threads, each with one request under way, on a file that has all its blocks.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use tierflow_device::{Choice, HostReservation, open};

use crate::experiments::Run;
use crate::processor::{Took, measure};
use crate::threads::on_threads;

/// Linux's flag for direct I/O, but for some processors that are not measured here.
const O_DIRECT: i32 = 0o40000;
const REQUESTS: [usize; 3] = [1 << 20, 4 << 20, 16 << 20];
/// Memory that is read and written, over and over: as much as a host cache has, and more than a processor's caches hold.
const MEMORY: usize = super::HOST_CACHE;

/// Threads, and bytes of a request.
type Shape = (usize, usize);

/// See the module.
pub(super) struct Raw {
    file: File,
    bytes: u64,
    memory: HostReservation,
    best: [Shape; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Down,
    Up,
}

impl Raw {
    pub(super) fn new(folder: &Path, bytes: u64) -> Result<Self> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(O_DIRECT);
        let file = options.open(folder.join("raw")).with_context(|| {
            format!(
                "{} has no direct I/O to compare with: name another folder by TIERFLOW_STORE",
                folder.display()
            )
        })?;
        let memory = open(Choice::Host)?.reserve_host(MEMORY)?;
        super::fill(memory.memory().lend_mut(0..MEMORY)?.bytes_mut()?);
        let raw = Self {
            file,
            bytes,
            memory,
            best: [(4, 4 << 20); 2],
        };
        raw.write()?;
        Ok(raw)
    }

    /// Finds what suits the disk best, each way.
    pub(super) fn calibrate(&mut self, run: &mut Run) -> Result<()> {
        for (at, way) in [Way::Down, Way::Up].into_iter().enumerate() {
            let mut best = 0.0;
            for threads in [1, 2, 4] {
                for request in REQUESTS {
                    let took = self.run((threads, request), way)?;
                    let rate = took.rate(self.bytes);
                    let case = format!("by=raw, threads={threads}, request={request}");
                    let name = if way == Way::Down { "down" } else { "up" };
                    run.value(&case, &format!("bandwidth {name}, once"), "bytes/s", rate)?;
                    if rate > best {
                        best = rate;
                        self.best[at] = (threads, request);
                    }
                }
            }
        }
        Ok(())
    }

    /// What was found to suit the disk best: down, up.
    pub(super) fn best(&self, way: usize) -> String {
        let (threads, request) = self.best[way];
        format!("threads={threads}, request={request}")
    }

    pub(super) fn write(&self) -> Result<Took> {
        self.run(self.best[0], Way::Down)
    }

    pub(super) fn read(&self) -> Result<Took> {
        self.run(self.best[1], Way::Up)
    }

    fn run(&self, (threads, request): Shape, way: Way) -> Result<Took> {
        let next = AtomicU64::new(0);
        let work = || -> Result<()> {
            loop {
                let at = next.fetch_add(request as u64, Ordering::Relaxed);
                if at >= self.bytes {
                    return Ok(());
                }
                let start = at as usize % MEMORY;
                let mut memory = self.memory.memory().lend_mut(start..start + request)?;
                let memory = memory.bytes_mut()?;
                match way {
                    Way::Down => self.file.write_all_at(memory, at)?,
                    Way::Up => self.file.read_exact_at(memory, at)?,
                }
            }
        };
        measure(|| on_threads(threads, |_| work()))
    }
}
