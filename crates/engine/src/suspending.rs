//! A job that has to go at once: the newest version that can be durable by then is.

use crate::deadline::{Deadline, Interrupt};
use crate::plan::Refusal;
use crate::run::{Answer, Asked, Decided};
use crate::{Engine, Error, Result, Version};
use std::time::{Duration, Instant};

/// What will be durable when a job has to go: see [`Engine::suspend`].
#[must_use = "it says what will be durable; wait for it before the job goes"]
pub struct Suspension<'engine> {
    engine: &'engine Engine,
    version: Option<Version>,
    newest: Option<Version>,
    expected: Option<Duration>,
    asked: Option<Asked>,
    deadline: Instant,
}

impl Engine {
    /// The job has to go by `deadline`: has the newest version that can be durable by then become so, and says at once which
    /// one that is. [`Suspension::wait`] waits for it; then end the process. Going on elsewhere is an ordinary restart.
    ///
    /// The version goes straight from where it lies to the lowest tier, past those between, and nothing else moves:
    /// prefetches, flushes that are under way or waiting, and other versions' copies are dropped. The choice rests on sizes,
    /// on what is under way, and on the pace of what was flushed to the lowest tier so far, the most recent first; without
    /// any flush yet, it is the newest version, and nothing is promised. A pace is no promise of others who share the storage:
    /// name a deadline some time before the last moment.
    ///
    /// Where versions are [durable in order](crate::EngineBuilder::durable_in_order), or lie as differences, all before the one
    /// that is chosen become durable, too. Of the ranks of a group each looks for itself: agree on the least of their versions
    /// and tell all with [`Engine::suspend_to`].
    ///
    /// If the job need not go after all, go on: when a checkpoint, a restore or a wait is asked for and this version is
    /// durable, everything that was dropped begins again. [`Engine::close`] waits for the version
    /// that was chosen and for nothing that was dropped.
    ///
    /// # Errors
    /// [`Error::NothingLasts`] if nothing outlives the engine; [`Error::OtherProcess`].
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// # use tierflow_engine::{Engine, Region};
    /// # use std::time::{Duration, Instant};
    /// # let directory = std::env::temp_dir().join(format!("tierflow-suspend-{}", std::process::id()));
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// # let engine = Engine::builder(&device).host_cache(1 << 20).external(&directory).build()?;
    /// # let state = [0_u8; 4096];
    /// engine.checkpoint(7, &[Region::from(&state[..])])?;
    /// // The batch system says that this job has 60 s left.
    /// let suspension = engine.suspend(Instant::now() + Duration::from_secs(60))?;
    /// println!("{:?} will be durable in {:?}", suspension.version(), suspension.expected());
    /// assert!(suspension.wait()?);
    /// # drop(engine);
    /// # let _ = std::fs::remove_dir_all(directory);
    /// # Ok(()) }
    /// ```
    pub fn suspend(&self, deadline: Instant) -> Result<Suspension<'_>> {
        self.suspend_or_to(None, deadline)
    }

    /// [`Engine::suspend`] for this version, whether or not it can be durable in time: all ranks of a group that agreed on it.
    ///
    /// # Errors
    /// As [`Engine::suspend`]; [`Error::Unknown`], [`Error::Discarded`].
    pub fn suspend_to(&self, version: Version, deadline: Instant) -> Result<Suspension<'_>> {
        self.restore_size(version)?;
        self.suspend_or_to(Some(version), deadline)
    }

    fn suspend_or_to(&self, version: Option<Version>, deadline: Instant) -> Result<Suspension<'_>> {
        self.at_home()?;
        self.outlasts("suspend")?;
        let newest = self.latest(None);
        let Decided {
            version,
            expected,
            asked,
        } = self.shared.suspend(version, deadline);
        tracing::info!(?version, ?newest, ?expected, "suspended");
        Ok(Suspension {
            engine: self,
            version,
            newest,
            expected,
            asked,
            deadline,
        })
    }

    /// How long `version` needs to become durable, if the job is [suspended](Engine::suspend) for it now: nothing if it is.
    /// `None` while nothing was flushed to the lowest tier that tells its pace.
    ///
    /// # Errors
    /// [`Error::NothingLasts`], [`Error::Unknown`], [`Error::Discarded`].
    pub fn time_to_durable(&self, version: Version) -> Result<Option<Duration>> {
        self.outlasts("time_to_durable")?;
        self.restore_size(version)?;
        Ok(self.shared.time_to_durable(version))
    }

    fn outlasts(&self, what: &'static str) -> Result<()> {
        match self.shared.lasts() {
            true => Ok(()),
            false => Err(Error::NothingLasts { what }),
        }
    }
}

impl Suspension<'_> {
    /// The version that is durable, or will be; `None` if none can be in time. Another run goes on from it.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The newest version that was held: one that is newer than [`version`](Self::version) would be late, and is lost.
    #[must_use]
    pub fn newest(&self) -> Option<Version> {
        self.newest
    }

    /// How long it takes, from the call on; nothing if it is durable already. `None` if no version can be durable, or nothing
    /// was measured yet.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        self.expected
    }

    /// Waits until the version is durable, until the deadline at most. Whether it is: never if there is none.
    ///
    /// # Errors
    /// [`Error::Stalled`] if it cannot get there; [`Error::Discarded`] if it was discarded meanwhile.
    pub fn wait(self) -> Result<bool> {
        let deadline = Deadline::by(self.deadline);
        self.wait_until(deadline)
    }

    /// [`Suspension::wait`], which stops waiting when `interrupt` says so: it is asked every 50 ms.
    ///
    /// # Errors
    /// As [`Suspension::wait`]; [`Error::Interrupted`].
    pub fn wait_unless(self, interrupt: &(dyn Fn() -> bool + Sync)) -> Result<bool> {
        let deadline = Deadline::by(self.deadline).unless(Some(Interrupt(interrupt)));
        self.wait_until(deadline)
    }

    pub(crate) fn wait_until(self, deadline: Deadline<'_>) -> Result<bool> {
        let (Some(version), Some(asked)) = (self.version, self.asked) else {
            return Ok(false);
        };
        match self.engine.shared.await_suspended(asked, deadline) {
            Some(Answer::Done(Err(refusal))) => match self.engine.is_durable(version) {
                // Another suspension took its place when it was there.
                true if matches!(refusal, Refusal::Stalled { .. }) => Ok(true),
                _ => Err(self.engine.refused(version, 0, refusal)),
            },
            Some(_) => Ok(true),
            None if self.engine.is_durable(version) => Ok(true),
            None => match deadline.passed() {
                Error::TimedOut { .. } => Ok(false),
                interrupted => Err(interrupted),
            },
        }
    }
}

impl std::fmt::Debug for Suspension<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suspension")
            .field("version", &self.version)
            .field("newest", &self.newest)
            .field("expected", &self.expected)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
