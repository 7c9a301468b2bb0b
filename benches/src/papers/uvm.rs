//! UVM with advice within its memory limit (HPDC'23 §5.2.2): the history is in managed memory, and advice tells the driver the place of
//! each version.
//!
//! As in the paper, a version that is written or hinted is advised to the device and prefetched there, and a version that leaves is
//! advised to the host and prefetched there. Each direction has its own stream, and the device has the whole history mapped (accessed
//! by). A window counts the bytes on the device: no prefetch goes beyond the device cache's size until a version was consumed. The limit
//! could also be kept by filling the rest of the device's memory. The driver would then choose the pages that leave, least recently used
//! first, at a fault and in the caller's time. UVM would be slower only because it got no advice.
//!
//! The baseline is kinder to UVM than the paper. All pages exist before the measurement, as the engine's pinned memory does. Room for
//! the next writes is moved to the device ahead. Versions that are read without a hint are read over the bus, and move nothing out. The
//! host may hold all of the history, so no byte goes to the disk; the engine is compared with as much host memory and no disk
//! (`Approach::TierflowInMemory` of the experiment). The costs that remain belong to UVM: a page is on one side only, so a flush gives the
//! copy on the device up, a wait for flushes leaves no version on the device, and consumed versions are moved to the host like others.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tierflow_device::{Advice, Device, Kind, Memory, Place, Stream};
use tierflow_engine::{AfterRestore, Version};
use tierflow_sim::{Op, Workload};

use window::{In, Window, WindowStep};

mod window;

/// A history in managed memory. Two threads move it, one in each direction.
pub(crate) struct Uvm {
    shared: Arc<UvmState>,
    /// The stream of the application's copies.
    stream: Stream,
    threads: Vec<JoinHandle<()>>,
    discard: bool,
    distances: (u64, u64),
}

/// The state of a history, which callers and its two threads share.
struct UvmState {
    state: Mutex<State>,
    /// Notified when a move or a copy ended, or a call waits for room.
    changed: Condvar,
    memory: Memory,
    /// The moves to the host, and those to the device.
    moved: Mutex<[Moved; 2]>,
}

/// The bytes of all moves in one direction, and the time that they took.
#[derive(Debug, Default, Clone, Copy)]
struct Moved {
    bytes: u64,
    time: Duration,
}

struct State {
    window: Window,
    closing: bool,
    failed: Option<tierflow_device::Error>,
}

/// Returns the bytes of managed memory for this workload's versions.
pub(crate) fn length_of(workload: &Workload) -> u64 {
    Window::length_of(workload.ops.iter().filter_map(|op| match op {
        Op::Checkpoint { bytes, .. } => Some(*bytes),
        _ => None,
    }))
}

impl Uvm {
    /// Makes an empty history in the memory that `managed` allocates, with at most `limit` bytes on the device. All pages are on the host,
    /// and the device has them mapped.
    pub(crate) fn new(
        device: &Device,
        limit: u64,
        workload: &Workload,
        managed: impl FnOnce(usize) -> Result<Memory>,
    ) -> Result<Self> {
        if device.info().kind != Kind::Cuda {
            bail!(
                "UVM with advice needs a GPU: {} has none",
                device.info().name
            );
        }
        let length = length_of(workload);
        let memory = managed(length as usize)?;
        let all = 0..memory.len();
        memory.advise(all.clone(), Advice::AccessedByDevice)?;
        memory.advise(all.clone(), Advice::PreferredLocation(Place::Host))?;
        let stream = device.stream()?;
        stream.prefetch(&memory, all, Place::Host)?.wait()?;
        let shared = Arc::new(UvmState {
            state: Mutex::new(State {
                window: Window::new(length, limit),
                closing: false,
                failed: None,
            }),
            changed: Condvar::new(),
            // The device makes the application's copies.
            memory: memory.seen_from(Place::Device)?,
            moved: Mutex::default(),
        });
        // From here on, dropping the history ends the threads.
        let mut uvm = Self {
            shared,
            stream,
            threads: Vec::new(),
            discard: workload.after_restore == AfterRestore::Discard,
            distances: (0, 0),
        };
        for work in [UvmState::move_out, UvmState::move_in] {
            let (shared, stream) = (Arc::clone(&uvm.shared), device.stream()?);
            let thread = std::thread::Builder::new().name("uvm".to_owned());
            uvm.threads
                .push(thread.spawn(move || work(&shared, &stream))?);
        }
        Ok(uvm)
    }

    pub(crate) fn checkpoint(&self, version: Version, from: &Memory, bytes: u64) -> Result<()> {
        let turn = self.turn(|window| window.write(version, bytes))?;
        let (range, missing) = parts(turn);
        let memory = &self.shared.memory;
        let moved = match missing.is_empty() {
            true => None,
            false => {
                let place = Advice::PreferredLocation(Place::Device);
                memory.advise(missing.clone(), place)?;
                Some(self.stream.prefetch(memory, missing, Place::Device)?)
            }
        };
        let copy = (from.lend(0..bytes as usize)?, memory.lend_mut(range)?);
        self.stream.copy_all([copy])?;
        // The move has ended, as the copy came after it.
        drop(moved);
        self.shared.tell(|window| window.written(version));
        Ok(())
    }

    pub(crate) fn restore(&mut self, version: Version, to: &Memory, bytes: u64) -> Result<()> {
        self.distances.0 = self.shared.state.lock().window.distance(version);
        self.distances.1 += self.distances.0;
        let (range, _) = parts(self.turn(|window| window.read(version))?);
        let range = range.start..range.start + bytes as usize;
        let len = bytes as usize;
        let copy = (self.shared.memory.lend(range)?, to.lend_mut(0..len)?);
        self.stream.copy_all([copy])?;
        self.shared
            .tell(|window| window.was_read(version, self.discard));
        Ok(())
    }

    /// Returns the prefetch distance at the last restore, and the sum over all restores.
    pub(crate) fn distances(&self) -> (u64, u64) {
        self.distances
    }

    /// Returns the rates of moves to the host and to the device, in bytes/s of the time of the moves. A direction without moves is left out.
    pub(crate) fn migration(&self) -> Vec<(&'static str, f64)> {
        let names = ["migration to the host", "migration to the device"];
        let moved = names.into_iter().zip(*self.shared.moved.lock());
        let moved = moved.filter(|(_, moved)| moved.bytes > 0);
        let rate = |moved: Moved| moved.bytes as f64 / moved.time.as_secs_f64().max(1e-9);
        moved.map(|(name, moved)| (name, rate(moved))).collect()
    }

    pub(crate) fn hint(&self, versions: &[Version]) {
        self.shared.tell(|window| window.hint(versions));
    }

    pub(crate) fn prefetch_start(&self) {
        self.shared.tell(Window::prefetch_start);
    }

    pub(crate) fn discard(&self, version: Version) -> Result<()> {
        self.turn(|window| Ok(when(window.discard(version))))
            .map(drop)
    }

    /// Returns the bytes on the device.
    #[cfg(test)]
    pub(crate) fn resident(&self) -> u64 {
        self.shared.state.lock().window.resident()
    }

    /// Waits until all of the history is on the host, which is the lowest tier here.
    pub(crate) fn wait(&self) -> Result<()> {
        self.turn(|window| Ok(when(window.drain()))).map(drop)
    }

    /// Calls `ask` until it is the caller's turn, and sleeps meanwhile. Returns the step.
    fn turn(&self, mut ask: impl FnMut(&mut Window) -> Result<WindowStep>) -> Result<WindowStep> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(anyhow!(error.clone()).context("moving managed memory"));
            }
            let turn = ask(&mut state.window)?;
            // The request may be work for the threads that move bytes.
            self.shared.changed.notify_all();
            if turn != WindowStep::Later {
                return Ok(turn);
            }
            self.shared.changed.wait(&mut state);
        }
    }
}

impl Drop for Uvm {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The callers have got the thread's error.
            let _ = thread.join();
        }
    }
}

impl UvmState {
    fn tell(&self, what: impl FnOnce(&mut Window)) {
        what(&mut self.state.lock().window);
        self.changed.notify_all();
    }

    fn move_out(&self, stream: &Stream) {
        self.work(
            Window::next_out,
            |out| self.bring(stream, &out.range, Place::Host),
            |window, out| window.left(out),
        );
    }

    fn move_in(&self, stream: &Stream) {
        self.work(
            Window::next_in,
            |what| {
                let (In::Version(_, range) | In::Ahead(range)) = what;
                self.bring(stream, range, Place::Device)
            },
            |window, what| window.came(what),
        );
    }

    fn bring(&self, stream: &Stream, range: &Range<u64>, to: Place) -> tierflow_device::Result<()> {
        let range = bytes(range);
        let (begun, len) = (Instant::now(), range.len() as u64);
        self.memory
            .advise(range.clone(), Advice::PreferredLocation(to))?;
        stream.prefetch(&self.memory, range, to)?.wait()?;
        let moved = &mut self.moved.lock()[usize::from(to == Place::Device)];
        moved.bytes += len;
        moved.time += begun.elapsed();
        Ok(())
    }

    /// Runs one of the two threads: moves bytes while there are moves, sleeps otherwise, and ends when the history is closed.
    fn work<T>(
        &self,
        next: impl Fn(&mut Window) -> Option<T>,
        act: impl Fn(&T) -> tierflow_device::Result<()>,
        done: impl Fn(&mut Window, &T),
    ) {
        let mut state = self.state.lock();
        while !state.closing && state.failed.is_none() {
            let wanted = state.window.wanted();
            let what = next(&mut state.window);
            if state.window.wanted() != wanted {
                // The search for a move may have made a move for the other thread.
                self.changed.notify_all();
            }
            let Some(what) = what else {
                self.changed.wait(&mut state);
                continue;
            };
            match MutexGuard::unlocked(&mut state, || act(&what)) {
                Ok(()) => done(&mut state.window, &what),
                Err(error) => state.failed = Some(error),
            }
            self.changed.notify_all();
        }
    }
}

/// Returns the caller's bytes, and the bytes that have to be moved to the device first.
fn parts(turn: WindowStep) -> (Range<usize>, Range<usize>) {
    match turn {
        WindowStep::Near { range, missing } => (bytes(&range), bytes(&missing)),
        WindowStep::Far(range) => (bytes(&range), 0..0),
        WindowStep::Later => (0..0, 0..0),
    }
}

fn bytes(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Returns a turn without bytes if it is `now`, else [`WindowStep::Later`].
fn when(now: bool) -> WindowStep {
    match now {
        true => WindowStep::Far(0..0),
        false => WindowStep::Later,
    }
}
