//! UVM with advice within its memory limit (HPDC'23 §5.2.2): the history lies in managed memory, and the driver is told where.
//!
//! As the paper has it: a version that is written or hinted is advised to lie on the device and prefetched there, one
//! that leaves is advised to lie on the host and prefetched there, on streams of their own; the device has all of it
//! mapped (accessed by); a window counts the bytes on the device, and no prefetch goes beyond the device cache's size until something was
//! consumed. The window is what keeps to the limit. The other way, to fill the device's memory with something
//! else until only the limit is left, would let the driver choose what goes, by its own least recently used, at a fault and in
//! the caller's time: it would be slower, and would punish UVM for advice that was not given.
//!
//! Kinder than the paper: all pages are there before the clock starts, as the engine's pinned memory is; room for what will be
//! written is moved to the device ahead; what is read without a hint is read from afar, at the bus's speed, and pushes nothing
//! out; and the host may hold all of the history, so no byte goes to the disk. Beside it runs the engine with as much host memory
//! and no disk (`Approach::TierflowInMemory` of the experiment). What stays dear is UVM's own: a page lies on one side only, so to flush is to give up,
//! to wait for flushes is to have nothing on the device, and what was consumed is moved to the host like the rest.

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

/// A history in managed memory. Two threads move it, one each way.
pub(crate) struct Uvm {
    shared: Arc<UvmState>,
    /// The application's copies.
    stream: Stream,
    threads: Vec<JoinHandle<()>>,
    discard: bool,
    distances: (u64, u64),
}

/// The memory of a baseline, which callers and its two threads share.
struct UvmState {
    state: Mutex<State>,
    /// Something moved, came to rest, or is wanted.
    changed: Condvar,
    memory: Memory,
    /// Moves to the host, and to the device.
    moved: Mutex<[Moved; 2]>,
}

/// The bytes of all moves one way, and the time that they took.
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

/// Bytes of managed memory for this workload's versions.
pub(crate) fn length_of(workload: &Workload) -> u64 {
    Window::length_of(workload.ops.iter().filter_map(|op| match op {
        Op::Checkpoint { bytes, .. } => Some(*bytes),
        _ => None,
    }))
}

impl Uvm {
    /// Makes an empty history in the memory that `managed` allocates, with at most `limit` bytes on the device. Its pages are on the host,
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
            // Copies of the application's are the device's.
            memory: memory.seen_from(Place::Device)?,
            moved: Mutex::default(),
        });
        // From here on dropping it ends the threads.
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
        // The move is over: the copy came after it.
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

    /// The prefetch distance at the last restore, and of all restores in sum.
    pub(crate) fn distances(&self) -> (u64, u64) {
        self.distances
    }

    /// The rates of moves to the host and to the device, in bytes/s of their own time; a way without moves is left out.
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

    /// Bytes on the device.
    #[cfg(test)]
    pub(crate) fn resident(&self) -> u64 {
        self.shared.state.lock().window.resident()
    }

    /// Waits until all of it lies on the host, which is the lowest tier here.
    pub(crate) fn wait(&self) -> Result<()> {
        self.turn(|window| Ok(when(window.drain()))).map(drop)
    }

    /// Asks until it is the caller's turn.
    fn turn(&self, mut ask: impl FnMut(&mut Window) -> Result<WindowStep>) -> Result<WindowStep> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(anyhow!(error.clone()).context("moving managed memory"));
            }
            let turn = ask(&mut state.window)?;
            // The request may be work for others.
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
            // The thread's error was told to the callers.
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

    /// Does what there is to do until it is closed, and sleeps when there is nothing.
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
                // To look for work has made work for the other.
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

/// The caller's bytes, and those that have to be moved to the device first.
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

/// A turn that has no bytes.
fn when(now: bool) -> WindowStep {
    match now {
        true => WindowStep::Far(0..0),
        false => WindowStep::Later,
    }
}
