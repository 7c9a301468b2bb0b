//! Suspension: a job has to end soon, and the newest version that can be durable by then becomes durable.

use crate::blocked::CallKind;
use crate::deadline::{Deadline, Interrupt};
use crate::plan::Refusal;
use crate::run::{Answer, SuspendChoice, SuspendTicket};
use crate::{Engine, Error, Result, Version};
use std::time::{Duration, Instant};

/// The version that will be durable when a job has to end: see [`Engine::suspend`].
#[must_use = "it says what will be durable; wait for it before the job goes"]
pub struct Suspension<'engine> {
    engine: &'engine Engine,
    version: Option<Version>,
    newest: Option<Version>,
    expected: Option<Duration>,
    asked: Option<SuspendTicket>,
    deadline: Instant,
}

impl Engine {
    /// Makes the version `to` durable, or without `to` the newest version that can be durable by `deadline`, when the job has to
    /// end. Returns that version at once. [`Suspension::wait`] waits for it; then end the process. An ordinary restart continues
    /// elsewhere.
    ///
    /// The version goes directly from its tier to the lowest one, and nothing else moves: the engine drops prefetches, flushes
    /// under way or waiting, and copies of other versions. The choice depends on sizes, on transfers under way, and on the
    /// throughput of past flushes to the lowest tier and to a tier that feeds it, where the most recent ones count most. Before the
    /// first flush, the choice is the newest version, and no time is predicted. Other users of the storage may change the
    /// throughput: choose a deadline some time before the last moment.
    ///
    /// If versions are [durable in order](crate::EngineBuilder::durable_in_order), or are stored as differences, all
    /// versions before the chosen one become durable, too. Each rank of a group chooses for itself: agree on the least
    /// of their versions, and suspend to that on all, even if it cannot be durable in time.
    ///
    /// If the deadline is past, the choice is the newest durable version.
    ///
    /// If the job need not end after all, continue: once the version is durable, the next checkpoint, restore or wait resumes all
    /// that was dropped. [`Engine::close`] waits only for the chosen version.
    ///
    /// # Errors
    /// [`Error::NothingLasts`] if the engine has no durable tier; [`Error::Unknown`] and [`Error::Discarded`] for `to`;
    /// [`Error::OtherProcess`].
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
    /// let suspension = engine.suspend(None, Instant::now() + Duration::from_secs(60))?;
    /// println!("{:?} will be durable in {:?}", suspension.version(), suspension.expected());
    /// assert!(suspension.wait()?);
    /// # drop(engine);
    /// # let _ = std::fs::remove_dir_all(directory);
    /// # Ok(()) }
    /// ```
    pub fn suspend(&self, to: Option<Version>, deadline: Instant) -> Result<Suspension<'_>> {
        if let Some(version) = to {
            self.check_held(version)?;
        }
        self.at_home()?;
        self.outlasts("suspend")?;
        let newest = self.latest(None);
        let SuspendChoice {
            version,
            expected,
            asked,
        } = self.shared.suspend(to, deadline);
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

    /// Returns the time that `version` needs to become durable if the job is [suspended](Engine::suspend) for it now. Returns zero
    /// if the version is durable, and `None` before a flush to the lowest tier has shown its throughput.
    ///
    /// # Errors
    /// [`Error::NothingLasts`] if the engine has no durable tier; [`Error::Unknown`] and [`Error::Discarded`] for `version`.
    pub fn time_to_durable(&self, version: Version) -> Result<Option<Duration>> {
        self.outlasts("time_to_durable")?;
        self.check_held(version)?;
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
    /// Returns the version that is or will be durable, and from which another run continues. `None` if no version can be durable in
    /// time.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Returns the newest version held. If it is newer than [`version`](Self::version), it cannot be durable in time, and is lost.
    #[must_use]
    pub fn newest(&self) -> Option<Version> {
        self.newest
    }

    /// Returns the predicted time from the call to the version's durability; zero if the version is durable already. `None` if no
    /// version can be durable, or if no throughput is known.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        self.expected
    }

    /// Waits until the version is durable, at most until the deadline. Returns true if the version is durable, and false if it is
    /// not or if there is none.
    ///
    /// # Errors
    /// [`Error::Stalled`] if the version cannot reach the lowest tier; [`Error::Discarded`] if it was discarded
    /// meanwhile; [`Error::Storage`] if it is on the nodes alone, and [redundancy](crate::EngineBuilder::redundancy) protects
    /// nothing any more.
    pub fn wait(self) -> Result<bool> {
        let deadline = Deadline::by(self.deadline);
        self.wait_until(deadline)
    }

    /// As [`Suspension::wait`]; also stops waiting when `interrupt` returns true. Calls it every 50 ms.
    ///
    /// # Errors
    /// As [`Suspension::wait`]; [`Error::Interrupted`] if `interrupt` returned true.
    pub fn wait_unless(self, interrupt: &(dyn Fn() -> bool + Sync)) -> Result<bool> {
        let deadline = Deadline::by(self.deadline).unless(Some(Interrupt(interrupt)));
        self.wait_until(deadline)
    }

    pub(crate) fn wait_until(self, deadline: Deadline<'_>) -> Result<bool> {
        let (Some(version), Some(asked)) = (self.version, self.asked) else {
            return Ok(false);
        };
        let engine = self.engine;
        let clock = engine.shared.blocked.begin(CallKind::Wait);
        let waited = match engine.shared.await_suspended(asked, deadline) {
            Some(Answer::Done(Err(refusal))) => match engine.is_durable(version) {
                // Another suspension replaced this one after the version became durable.
                true if matches!(refusal, Refusal::Stalled { .. }) => Ok(()),
                _ => Err(engine.refused(version, 0, refusal)),
            },
            Some(_) => engine.wait_protected(&engine.to_protect(Some(version)), deadline),
            None if engine.is_durable(version) => Ok(()),
            None => Err(deadline.passed()),
        };
        let waited = match waited {
            Err(Error::TimedOut { .. }) => Ok(false),
            waited => waited.map(|()| true),
        };
        if waited.is_ok() {
            clock.done(0);
        }
        waited
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
