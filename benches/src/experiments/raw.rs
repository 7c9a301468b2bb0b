//! Direct I/O without an engine, for comparison: threads, each with one request under way in memory of huge pages, over a file whose
//! blocks are all allocated.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use tierflow_device::{Choice, HostReservation, open};

use super::Run;
use crate::processor::{Timings, measure};
use crate::random::fill;
use crate::threads::on_threads;

/// Linux's flag for direct I/O on the processors that are measured here; others have another number.
const O_DIRECT: i32 = 0o40000;
const REQUESTS: [usize; 3] = [1 << 20, 4 << 20, 16 << 20];
/// Bytes of memory that is read and written repeatedly: as many as a small host cache has, and more than a processor's caches hold. A
/// quick run has an eighth.
const MEMORY: usize = 512 << 20;
/// Most bytes of a try of a shape.
const TRIED: u64 = 1 << 30;

/// Number of threads, and bytes of each thread's requests.
type RawShape = (usize, usize);

/// A file, and the memory that is written to it and read from it.
pub(super) struct Raw {
    file: File,
    bytes: u64,
    memory: Arc<HostReservation>,
    best: [RawShape; 2],
    /// True if a round of writes ends with `fdatasync`.
    lasts: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Down,
    Up,
}

impl Raw {
    /// Makes a file in `folder` of `bytes`, rounded up to whole requests. With `lasts`, a round of writes ends with `fdatasync`.
    pub(super) fn new(run: &Run, folder: &Path, bytes: u64, lasts: bool) -> Result<Self> {
        let file = create(&folder.join("raw"))?;
        let length = if run.is_quick() { MEMORY / 8 } else { MEMORY };
        let memory = open(Choice::Host)?.reserve_host(length)?;
        fill(memory.memory().lend_mut(0..length)?.bytes_mut()?, 0);
        let raw = Self {
            file,
            bytes: bytes.next_multiple_of(REQUESTS[2] as u64),
            memory: Arc::new(memory),
            best: [(4, 4 << 20); 2],
            lasts,
        };
        raw.write()?;
        Ok(raw)
    }

    /// Finds the fastest shape in each direction by one try of each shape. A quick run tries only the shapes of four threads.
    pub(super) fn calibrate(&mut self, run: &mut Run) -> Result<()> {
        for (at, way) in [Direction::Down, Direction::Up].into_iter().enumerate() {
            let mut best = 0.0;
            let threads: &[usize] = if run.is_quick() { &[4] } else { &[1, 2, 4] };
            for &threads in threads {
                for request in REQUESTS {
                    let bytes = self.bytes.min(TRIED);
                    let took = self.run((threads, request), way, bytes)?;
                    let rate = took.rate(bytes);
                    let case = format!("by=raw, threads={threads}, request={request}");
                    let name = if way == Direction::Down { "down" } else { "up" };
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

    /// Returns the fastest shape of a direction: 0 is down, 1 is up.
    pub(super) fn best(&self, way: usize) -> String {
        let (threads, request) = self.best[way];
        format!("threads={threads}, request={request}")
    }

    pub(super) fn write(&self) -> Result<Timings> {
        self.run(self.best[0], Direction::Down, self.bytes)
    }

    /// Writes as many bytes to a new file, for which the file system has to find room. A version is written so if no earlier version was
    /// given up.
    pub(super) fn write_new(&self, folder: &Path) -> Result<Timings> {
        let path = folder.join("raw-new");
        let took = measure(|| {
            let raw = Self {
                file: create(&path)?,
                memory: Arc::clone(&self.memory),
                ..*self
            };
            raw.run(raw.best[0], Direction::Down, raw.bytes).map(drop)
        });
        std::fs::remove_file(&path)?;
        took
    }

    pub(super) fn read(&self) -> Result<Timings> {
        self.run(self.best[1], Direction::Up, self.bytes)
    }

    fn run(&self, (threads, request): RawShape, way: Direction, bytes: u64) -> Result<Timings> {
        let next = AtomicU64::new(0);
        // Each thread has its own part of the memory, so that two requests never use the same bytes.
        let part = self.memory.memory().len() / threads / request * request;
        let work = |thread: usize| -> Result<()> {
            for round in 0_usize.. {
                let at = next.fetch_add(request as u64, Ordering::Relaxed);
                if at >= bytes {
                    return Ok(());
                }
                let start = thread * part + round * request % part;
                let mut memory = self.memory.memory().lend_mut(start..start + request)?;
                let memory = memory.bytes_mut()?;
                match way {
                    Direction::Down => self.file.write_all_at(memory, at)?,
                    Direction::Up => self.file.read_exact_at(memory, at)?,
                }
            }
            Ok(())
        };
        measure(|| {
            on_threads(0..threads, work)?;
            match (way, self.lasts) {
                (Direction::Down, true) => Ok(self.file.sync_data()?),
                _ => Ok(()),
            }
        })
    }
}

fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(O_DIRECT);
    options.open(path).with_context(|| {
        format!(
            "{} has no direct I/O to compare with: name another folder by TIERFLOW_STORE",
            path.display()
        )
    })
}
