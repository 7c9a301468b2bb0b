//! The engine of a door: its handle, which calls and slots share, and its end.

use std::any::Any;
use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierflow_device::{Device, OwnerProcess};
use tierflow_engine::{Engine, Error, Version};

use crate::failure::{Failure, Outcome, Status};
use crate::logger::lines_of_rank;
use crate::options::Options;
use crate::process::PerProcess;
use crate::slot::Retries;
use crate::statistics::Statistics;
use crate::streams::{DeviceStreams, Order};
use crate::until::Until;

/// The engines that this process opened. A fork has none of them.
static OPEN: PerProcess<Mutex<Vec<Weak<EngineHandle>>>> = PerProcess::new();

/// Functions of a language that an engine calls, mostly when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// Calls a function that may wait, for example without the lock of an interpreter.
    pub detached: fn(&mut (dyn FnMut() + Send)),
    /// Reports the versions that were lost when an engine ended without being closed.
    pub lost: fn(&Failure),
    /// Reports the versions and the damage that an engine found when it was opened.
    pub started: fn(&Engine),
    /// True if the ranks of a group can still send each other messages when the process ends.
    pub ranks_meet_at_end: bool,
}

impl Default for Door {
    /// Makes a door that writes losses and starts to the log.
    fn default() -> Self {
        Self {
            detached: |run| run(),
            lost: |failure| tracing::error!("{failure}"),
            started: log_engine,
            ranks_meet_at_end: false,
        }
    }
}

/// The engine is open.
const OPENED: u8 = 0;
/// The engine was closed: every version was durable then.
const CLOSED: u8 = 1;
/// The engine was ended, and the caller knows the lost versions.
const ENDED: u8 = 2;

/// An engine. Dropping it ends the engine, and reports versions that are lost by that.
#[derive(Debug)]
pub struct OpenEngine {
    /// `Some` until this value is dropped.
    engine: Option<Engine>,
    state: AtomicU8,
    process: OwnerProcess,
    door: Door,
    /// True if only calls of the application make redundancy, and nothing does in the background.
    is_driven: bool,
    /// The engine's statistics, and the file for them.
    statistics: Statistics,
}

impl Deref for OpenEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        match &self.engine {
            Some(engine) => engine,
            None => unreachable!("only dropping takes it"),
        }
    }
}

impl Drop for OpenEngine {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else {
            return;
        };
        if !self.process.is_current() {
            // The engine is the parent's.
            std::mem::forget(engine);
            return;
        }
        let state = *self.state.get_mut();
        // After `close`, slots that were still lent may have been committed, so the engine is closed again. But ranks that meet only in
        // calls meet no more.
        let is_over = state == ENDED || (state == CLOSED && self.is_driven);
        let (mut engine, mut ended) = (Some(engine), Ok(()));
        (self.door.detached)(&mut || {
            if let Some(engine) = engine.take() {
                if state != CLOSED {
                    self.statistics.leave(&engine);
                }
                match is_over {
                    true => drop(engine),
                    false => ended = engine.close(),
                }
            }
        });
        if let Err(error @ Error::Lost { .. }) = ended {
            (self.door.lost)(&error.into());
        }
    }
}

/// An engine and the values that its calls share. Calls and slots hold it.
#[derive(Debug)]
pub struct EngineHandle {
    /// The engine itself.
    pub engine: OpenEngine,
    /// The device of the engine's fastest memory.
    pub device: Device,
    /// The streams of the device.
    pub streams: DeviceStreams,
    /// Slots that were dropped and have not ended yet.
    pub(crate) late_slots: Arc<Retries>,
    closing_patience: Duration,
    /// True if redundancy passes between the ranks by functions of the application.
    passes_by_group: bool,
    /// The beginning of the log's lines in a group.
    _lines: Option<Arc<String>>,
    /// A value that outlives the engine, such as the group that it calls. The last field is dropped last.
    _beside: Option<Arc<dyn Any + Send + Sync>>,
}

impl Borrow<Engine> for EngineHandle {
    fn borrow(&self) -> &Engine {
        &self.engine
    }
}

impl EngineHandle {
    /// Opens an engine with these options.
    ///
    /// # Errors
    /// `Argument` if the options do not fit together; the errors of opening the device and of building the engine.
    pub fn open(options: Options, door: Door) -> Outcome<Arc<Self>> {
        let (closing_patience, beside) = (options.closing_patience(), options.beside.clone());
        let passes_by_group = options.redundancy.is_some() && options.exchange.is_none();
        let transport = options.ranks.transport.as_deref();
        let is_driven = passes_by_group && transport.is_some_and(|way| !way.is_concurrent());
        let lines = lines_of_rank(options.ranks.rank, options.ranks.ranks);
        let statistics = Statistics::new(&options);
        let (device, engine) = options.build()?;
        (door.started)(&engine);
        let handle = Arc::new(Self {
            engine: OpenEngine {
                engine: Some(engine),
                state: AtomicU8::new(OPENED),
                process: OwnerProcess::current(),
                door,
                is_driven,
                statistics,
            },
            streams: DeviceStreams::new(device.clone()),
            device,
            late_slots: Arc::default(),
            closing_patience,
            passes_by_group,
            _lines: lines,
            _beside: beside,
        });
        let mut open = OPEN.get().lock();
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&handle));
        Ok(handle)
    }

    /// Returns true if the engine's device is a GPU.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        self.streams.is_cuda()
    }

    /// Orders a call after the work given to the stream with this handle; 0 stands for all work given to the device.
    ///
    /// # Errors
    /// As [`Order::after`] and [`Order::behind_all_work`].
    ///
    /// # Safety
    /// As [`Order::after`].
    #[allow(unsafe_code, reason = "applications name their streams by handles")]
    pub unsafe fn behind(&self, handle: u64) -> Outcome<Order<'_>> {
        if handle == 0 {
            return Order::behind_all_work(&self.streams);
        }
        let mut order = Order::new(&self.streams);
        // SAFETY: the caller's promise.
        unsafe { order.after(handle) }?;
        Ok(order)
    }

    /// Returns the measurements, the damage and the losses as a JSON document.
    #[must_use]
    pub fn statistics(&self) -> String {
        self.engine.statistics.text(&self.engine)
    }

    /// Returns the number of the process that opened the engine, if it is another process.
    #[must_use]
    pub fn other_process(&self) -> Option<u32> {
        let owner = self.engine.process;
        (!owner.is_current()).then(|| owner.id())
    }

    /// Returns the time that the engine's end waits for storage by default.
    #[must_use]
    pub fn closing_patience(&self) -> Duration {
        self.closing_patience
    }

    /// Waits for the end of slots that were dropped while a CUDA graph was captured, within the closing patience.
    pub fn wait_for_dropped_slots(&self) {
        self.late_slots.wait(self.closing_patience);
    }

    /// Waits until all versions are on the lowest tier. Then makes redundancy as [`Self::protect_after`] does, even if the wait failed, as the
    /// other ranks wait for this one.
    ///
    /// # Errors
    /// The errors of [`Call::wait`](tierflow_engine::Call::wait), else those of [`Engine::protect`].
    pub fn wait(&self, until: Until<'_>) -> tierflow_engine::Result<()> {
        let waited = until.of(&self.engine).wait();
        self.protect_after(waited)
    }

    /// Makes redundancy with the other ranks in this call, if only calls make it. Makes it even if `done` is an error.
    ///
    /// # Errors
    /// The error of `done`, else those of [`Engine::protect`].
    pub fn protect_after<E: From<Error>>(&self, done: Result<(), E>) -> Result<(), E> {
        let protected = match self.engine.is_driven {
            true => self.engine.protect(),
            false => Ok(()),
        };
        done.and(protected.map_err(E::from))
    }

    /// Waits until the versions taken in are durable, if they outlive the engine. Does not wait for versions that a suspension gave up. The
    /// engine ends when its last holder drops it. A second call does nothing.
    ///
    /// # Errors
    /// The causes of [`Call::settle`](tierflow_engine::Call::settle): the engine stays open, and may be closed again.
    pub fn close(&self, until: Until<'_>) -> tierflow_engine::Result<()> {
        self.settle(until).map_err(|error| match error {
            Error::Lost { cause, .. } => *cause,
            error => error,
        })
    }

    fn settle(&self, until: Until<'_>) -> tierflow_engine::Result<()> {
        if self.engine.state.load(Ordering::Acquire) == OPENED {
            let settled = until.of(&self.engine).settle();
            self.engine.statistics.leave(&self.engine);
            settled?;
            self.engine.state.store(CLOSED, Ordering::Release);
        }
        Ok(())
    }

    /// Returns true if redundancy passes by functions of the group, which may be unusable once the process ends, such as those of an MPI
    /// that was finalized.
    pub fn passes_by_group(&self) -> bool {
        self.passes_by_group
    }

    /// Closes the engine for good.
    ///
    /// # Errors
    /// [`Error::Lost`] names the versions that were not durable in time. The last holder loses them when it drops the engine, without a
    /// second report.
    pub fn end(&self, until: Until<'_>) -> tierflow_engine::Result<()> {
        let ended = self.settle(until);
        if let Err(error) = &ended {
            self.engine.warn_of_lost(Some(error));
            self.engine.state.store(ENDED, Ordering::Release);
        }
        ended
    }

    /// Makes the newest version durable that can be durable within `patience`, or `version` if it is given: see [`Engine::suspend`].
    ///
    /// # Errors
    /// As [`Engine::suspend`].
    pub fn suspend(
        self: &Arc<Self>,
        version: Option<Version>,
        patience: Duration,
    ) -> tierflow_engine::Result<Suspension> {
        let deadline = Instant::now() + patience.min(LONGEST_JOB);
        let suspended = self.engine.suspend(version, deadline)?;
        Ok(Suspension {
            version: suspended.version(),
            newest: suspended.newest(),
            expected: suspended.expected(),
            engine: Arc::downgrade(self),
            deadline,
        })
    }
}

/// A time that no job exceeds. Clocks cannot tell much longer times.
const LONGEST_JOB: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A suspension that does not keep its engine open: see [`tierflow_engine::Suspension`].
#[derive(Debug)]
pub struct Suspension {
    engine: Weak<EngineHandle>,
    deadline: Instant,
    /// The version that is durable, or will be.
    pub version: Option<Version>,
    /// The newest version that was held.
    pub newest: Option<Version>,
    /// The time until the version is durable, if it is known.
    pub expected: Option<Duration>,
}

impl Suspension {
    /// Waits until the version is durable, until the deadline at most. Returns true if the version is durable.
    ///
    /// # Errors
    /// As [`tierflow_engine::Suspension::wait_unless`]; `Closed` if the engine is.
    pub fn wait(&self, interrupt: &(dyn Fn() -> bool + Sync)) -> Outcome<bool> {
        let Some(version) = self.version else {
            return Ok(false);
        };
        let closed = || Failure::new(Status::Closed, "the engine is closed: build another one");
        let handle = self.engine.upgrade().ok_or_else(closed)?;
        let suspended = handle.engine.suspend(Some(version), self.deadline)?;
        Ok(suspended.wait_unless(interrupt)?)
    }
}

/// Writes to the log the versions that an engine found when it was opened, and the damage of its storage.
fn log_engine(engine: &Engine) {
    let versions = engine.versions();
    let held = match versions.last() {
        Some(newest) => format!(
            "opened; versions held: {}, the newest {newest}",
            versions.len()
        ),
        None => "opened without versions".to_owned(),
    };
    log_start(&held, engine.damage().iter().map(ToString::to_string));
}

/// Writes to the log that an engine was opened: `held` describes the versions that it holds, and `damage` the storage that it cannot use.
pub fn log_start(held: &str, damage: impl Iterator<Item = String>) {
    tracing::info!("{held}");
    let all: Vec<String> = damage.collect();
    if !all.is_empty() {
        tracing::warn!("not all of the storage can be used: {}", all.join("; "));
    }
}

/// Ends all engines of this process that are still open, each within its closing patience, or until `interrupt` returns true.
/// [`Door::lost`] reports the versions that are lost, and the log names those that a suspension gave up. An engine whose redundancy passes
/// by functions of a group is not waited for if the ranks cannot meet any more.
pub fn end_of_process(interrupt: Option<&(dyn Fn() -> bool + Sync)>) {
    let open = std::mem::take(&mut *OPEN.get().lock());
    for handle in open.iter().filter_map(Weak::upgrade) {
        let door = handle.engine.door;
        let can_wait = door.ranks_meet_at_end || !handle.passes_by_group;
        let mut ended = Ok(());
        (door.detached)(&mut || {
            if can_wait {
                let patience = handle.closing_patience;
                ended = handle.end(Until {
                    patience,
                    interrupt,
                });
            } else if handle.engine.process.is_current() {
                handle.engine.statistics.leave(&handle.engine);
            }
        });
        if let Err(error @ Error::Lost { .. }) = ended {
            (door.lost)(&error.into());
        }
        handle.engine.warn_of_lost(None);
    }
}
