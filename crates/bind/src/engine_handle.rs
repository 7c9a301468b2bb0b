//! An engine, what its calls share, and how it ends.

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
use crate::statistics::Statistics;
use crate::streams::{DeviceStreams, Order};
use crate::until::Until;

/// The engines of this process. A fork has none of them.
static OPEN: PerProcess<Mutex<Vec<Weak<EngineHandle>>>> = PerProcess::new();

/// Calls of a language around the end of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// Runs what may wait: without the lock of an interpreter, say.
    pub detached: fn(&mut (dyn FnMut() + Send)),
    /// Tells which versions were lost when an engine ended that was not closed.
    pub lost: fn(&Failure),
    /// Tells what a start found.
    pub started: fn(&Engine),
    /// The ranks of a group can still send each other messages when the process ends.
    pub ranks_meet_at_end: bool,
}

impl Default for Door {
    /// Losses are errors in the log.
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
/// The engine was closed: everything was durable then.
const CLOSED: u8 = 1;
/// The engine was ended, and the caller knows what was lost.
const ENDED: u8 = 2;

/// An engine that is ended when this is dropped: without a word if it was closed before, or nothing is lost.
#[derive(Debug)]
pub struct OpenEngine {
    /// There until it is dropped.
    engine: Option<Engine>,
    state: AtomicU8,
    process: OwnerProcess,
    door: Door,
    /// True if redundancy is made in calls of the application alone.
    is_driven: bool,
    /// The place of its statistics once it ends.
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
        // Slots that were lent beyond the end may have been committed since; ranks that meet in calls meet no more.
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

/// An engine and what its calls share. Slots hold it, too.
#[derive(Debug)]
pub struct EngineHandle {
    /// The engine itself.
    pub engine: OpenEngine,
    /// Where its fastest memory is.
    pub device: Device,
    /// Its streams.
    pub streams: DeviceStreams,
    closing_patience: Duration,
    /// Redundancy passes by functions of the application's.
    passes_by_group: bool,
    /// The beginning of the log's lines in a group.
    _lines: Option<Arc<String>>,
    /// A value that outlives the engine, such as the group that it calls: the last field.
    _beside: Option<Arc<dyn Any + Send + Sync>>,
}

impl Borrow<Engine> for EngineHandle {
    fn borrow(&self) -> &Engine {
        &self.engine
    }
}

impl EngineHandle {
    /// Opens an engine as the options say.
    ///
    /// # Errors
    /// Errors of the options, of the device, and of building the engine.
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

    /// Returns true if its fastest memory is a GPU's.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        self.streams.is_cuda()
    }

    /// A call behind the work given to the stream of this handle; 0 for all work given to the device.
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

    /// Returns what was measured, what cannot be read and what was lost, as a JSON document.
    #[must_use]
    pub fn statistics(&self) -> String {
        self.engine.statistics.text(&self.engine)
    }

    /// The process that opened it, if that is another one.
    #[must_use]
    pub fn other_process(&self) -> Option<u32> {
        let owner = self.engine.process;
        (!owner.is_current()).then(|| owner.id())
    }

    /// How long its end waits, if nothing else is said.
    #[must_use]
    pub fn closing_patience(&self) -> Duration {
        self.closing_patience
    }

    /// Waits for all versions, and lets the ranks protect them where that is done in calls alone: also after the wait failed, as the
    /// other ranks count on it.
    ///
    /// # Errors
    /// Errors of waiting, then errors of protecting.
    pub fn wait(&self, until: Until<'_>) -> tierflow_engine::Result<()> {
        let waited = until.of(&self.engine).wait();
        self.protect_after(waited)
    }

    /// Makes redundancy with the other ranks in this call, if it is made in calls alone: also after `done` failed.
    ///
    /// # Errors
    /// The error of `done`, then errors of protecting.
    pub fn protect_after<E: From<Error>>(&self, done: Result<(), E>) -> Result<(), E> {
        let protected = match self.engine.is_driven {
            true => self.engine.protect(),
            false => Ok(()),
        };
        done.and(protected.map_err(E::from))
    }

    /// Waits until what was taken in is durable, if that outlives the engine; what a suspension gave up is not waited for. The
    /// engine ends when the last one that holds it lets go of it. Closing it again does nothing.
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

    /// Returns true if redundancy passes by the functions of the group, which cannot be called once the process ends: an MPI that
    /// was finalized.
    pub fn passes_by_group(&self) -> bool {
        self.passes_by_group
    }

    /// Closes the engine for good.
    ///
    /// # Errors
    /// [`Error::Lost`] names the versions that were not durable by then. They are gone when the last one that holds the engine lets
    /// go of it, which is not told again.
    pub fn end(&self, until: Until<'_>) -> tierflow_engine::Result<()> {
        let ended = self.settle(until);
        if let Err(error) = &ended {
            self.engine.warn_of_lost(Some(error));
            self.engine.state.store(ENDED, Ordering::Release);
        }
        ended
    }

    /// Has the version that can be durable in so long become so, or the one that is asked for: see [`Engine::suspend`].
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

/// Longer than any job runs: no clock tells much longer times.
const LONGEST_JOB: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A suspension, which does not keep its engine open: see [`tierflow_engine::Suspension`].
#[derive(Debug)]
pub struct Suspension {
    engine: Weak<EngineHandle>,
    deadline: Instant,
    /// The version that is durable, or will be.
    pub version: Option<Version>,
    /// The newest version that was held.
    pub newest: Option<Version>,
    /// How long it takes, if that is known.
    pub expected: Option<Duration>,
}

impl Suspension {
    /// Waits until the version is durable, until the deadline at most. Returns whether it is.
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

/// Writes to the log the versions that a start found, and what of the storage cannot be used.
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

/// Writes to the log what a start found: that an engine is open and what is `held`, in words, and what of the storage cannot be used.
pub fn log_start(held: &str, damage: impl Iterator<Item = String>) {
    tracing::info!("{held}");
    let all: Vec<String> = damage.collect();
    if !all.is_empty() {
        tracing::warn!("not all of the storage can be used: {}", all.join("; "));
    }
}

/// Ends all engines of this process that are still there, each within its closing patience, or until it is interrupted. What is lost by
/// that is told by [`Door::lost`], and what a suspension gave up by the log. An engine whose redundancy passes by the functions of a
/// group that cannot meet any more is not waited for.
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
