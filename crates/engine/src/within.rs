//! Calls that wait no longer than they are told to, and what is waited for of single versions.

use crate::deadline::{Deadline, Interrupt};
use crate::error::versions_text;
use crate::in_place::{ConsumeSlot, ProduceSlot};
use crate::plan::{Event, Ticket};
use crate::run::{Grant, Pieces, Shared, SourceRegions, TargetRegions, TierContext, work_until};
use crate::{Engine, Error, Region, RegionMut, Result, Version};
use std::ops::Range;
use std::time::{Duration, Instant};
use tierflow_device::Stream;

/// An engine whose calls wait so long at most, even for storage that hangs: see [`Engine::within`].
#[derive(Debug, Clone, Copy)]
pub struct Within<'engine> {
    pub(crate) engine: &'engine Engine,
    patience: Duration,
    interrupt: Option<Interrupt<'engine>>,
}

impl Engine {
    /// The calls that may have to wait for room, for bytes or for storage, each for so long at most: [`Error::TimedOut`](crate::Error::TimedOut)
    /// says that it was too short. The engine goes on, and so may the caller. [`Duration::MAX`] is for ever.
    ///
    /// What goes straight to storage or comes from there passes through a buffer in host memory and another thread, which is
    /// stopped between two blocks when the time is over; dropping the engine waits for it as it does for its own.
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// # use tierflow_engine::{Engine, Error, Region};
    /// # use std::time::Duration;
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// # let engine = Engine::builder(&device).host_cache(1 << 20).build()?;
    /// let state = [0_u8; 4096];
    /// let patience = Duration::from_millis(100);
    /// match engine.within(patience).checkpoint(1, &[Region::from(&state[..])]) {
    ///     Err(Error::TimedOut { .. }) => { /* go on without it */ }
    ///     taken_in => taken_in?,
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn within(&self, patience: Duration) -> Within<'_> {
        Within {
            engine: self,
            patience,
            interrupt: None,
        }
    }

    /// Ends the engine once every version taken in lies on the lowest tier, where that outlives the engine, and is
    /// [protected](Engine::protect); after [`Engine::suspend`], once the version chosen there does. Dropping it ends it, too, without
    /// waiting. In both cases a warning ([`tracing`]) names the versions that are lost and that no error names.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) names the versions that were not durable although nothing moved for the
    /// [`closing_patience`](crate::EngineBuilder::closing_patience), and why: the engine is ended nevertheless. To be able to do
    /// something about it, call [`Within::settle`] before.
    pub fn close(mut self) -> Result<()> {
        let settled = self.while_moving(self.patience, |within| within.wait_settled());
        let settled = settled.and(self.protect_if_driven());
        settled.map_err(|cause| {
            let error = self.lost(cause);
            self.has_named_lost = matches!(error, Error::Lost { .. });
            error
        })
    }

    /// Names the versions that end with the engine although it has storage that outlives it.
    pub(crate) fn warn_of_lost(&self) {
        let lost = match self.has_named_lost || !self.shared.lasts() {
            true => Vec::new(),
            false => self.not_durable(),
        };
        if !lost.is_empty() {
            let versions = versions_text(&lost);
            tracing::warn!("{versions} lost, as the engine ended before that was durable");
        }
    }

    /// Protects with the other ranks where that is done in calls alone: also after an error, as the others count on this call.
    fn protect_if_driven(&self) -> Result<()> {
        match self.is_driven() {
            true => self.protect(),
            false => Ok(()),
        }
    }

    /// The versions that would be lost if the engine ended now, in ascending order: held, and not [durable](Engine::is_durable).
    /// An engine that has taken no version in loses none: the versions that it found stay where they are.
    #[must_use]
    pub fn not_durable(&self) -> Vec<Version> {
        let mut versions = match self.at_home() {
            Ok(()) if self.shared.has_begun() => self.versions(),
            _ => Vec::new(),
        };
        versions.retain(|version| !self.is_durable(*version));
        versions
    }

    /// The error of an engine that ends though it [could not settle](Within::settle): it names the versions that are lost by that,
    /// if there are any.
    #[must_use]
    pub fn lost(&self, cause: Error) -> Error {
        let given_up = |version: &Version| match self.shared.suspended_for() {
            Some(chosen) => *version != chosen,
            None => false,
        };
        let mut versions = self.not_durable();
        versions.retain(|version| !given_up(version));
        match versions.is_empty() {
            true => cause,
            false => Error::Lost {
                versions,
                cause: Box::new(cause),
            },
        }
    }

    /// Withdraws the hints of these versions, or all hints given so far: the application will do something else. Hints given
    /// after this count. Several users of one engine each name the versions that they hinted.
    pub fn forget_hints(&self, versions: Option<&[Version]>) {
        if self.at_home().is_ok() {
            self.shared.forget_hints(versions);
        }
    }

    /// Reserves `count` consecutive numbers for new versions: above those that versions of this engine have or had, that hints
    /// name, and that other calls of this method returned. So several users of one engine choose numbers that never meet.
    ///
    /// # Errors
    ///
    /// [`Error::NoNumbers`] if so many numbers are not left below [`Version::MAX`].
    pub fn reserve(&self, count: u64) -> Result<Range<Version>> {
        self.at_home()?;
        let reserved = self.shared.reserve(count);
        reserved.ok_or(Error::NoNumbers { count })
    }

    /// Whether `version`, and every version that it builds upon, lies on the lowest tier, whole, and others keep [redundancy](crate::EngineBuilder::redundancy) of them if
    /// that is on the node: where it outlives the engine, it is there to stay.
    #[must_use]
    pub fn is_durable(&self, version: Version) -> bool {
        let is_settled = self.shared.lock().plan().is_settled(version);
        let chain = self.to_protect(Some(version));
        is_settled && chain.into_iter().all(|version| self.is_protected(version))
    }

    /// Waits until `version`, and every version that it builds upon, lies on the lowest tier, as [`Engine::wait`] does for all.
    ///
    /// # Errors
    /// [`Error::Unknown`](crate::Error::Unknown) and [`Error::Discarded`](crate::Error::Discarded), also if it is discarded meanwhile; [`Error::Stalled`](crate::Error::Stalled) if it cannot get
    /// there.
    pub fn wait_version(&self, version: Version) -> Result<()> {
        self.wait_for_version(version, Deadline::default())
    }

    fn wait_for_version(&self, version: Version, deadline: Deadline) -> Result<()> {
        let wait = |ticket| Event::Wait {
            ticket,
            version: Some(version),
        };
        self.ask((version, 0), deadline, wait)?;
        self.wait_protected(&self.to_protect(Some(version)), deadline)
    }
}

impl Engine {
    /// Writes a checkpoint to storage, and reports it. `None` at the deadline: it is reported as not taken in once it is over.
    pub(crate) fn write_until(
        &self,
        deadline: Instant,
        ticket: Ticket,
        version: Version,
        (grant, regions): (&Grant, &[Region<'_>]),
        stream: Option<&Stream>,
    ) -> Result<Option<()>> {
        let pieces = grant.pieces.clone();
        let places = pieces.clone();
        let report = move |shared: &Shared, ok, is_wanted| {
            shared.end_write(version, &places, is_wanted);
            shared.tell(Event::Written { ticket, ok });
        };
        let too_late = report.clone();
        let collected = self
            .shared
            .with_context(|context| context.collect(&SourceRegions::new(regions), stream));
        let written = collected.and_then(|bytes| {
            let work = move |shared: &Shared, stop| {
                let regions = [Region::from(bytes.as_slice())];
                shared.with_any_context(|context| {
                    context.stop_by(Some(stop));
                    let pieces = pieces.as_slice();
                    let to = Pieces { version, pieces };
                    shared.copy_in(context, &SourceRegions::new(&regions), to, None)
                })
            };
            let too_late = move |shared: &Shared| too_late(shared, false, false);
            work_until(&self.shared, deadline, work, too_late)
        });
        match written {
            Ok(None) => Ok(None),
            Ok(Some(written)) => {
                report(&self.shared, written.is_ok(), true);
                written.map(Some)
            }
            Err(error) => {
                report(&self.shared, false, true);
                Err(error)
            }
        }
    }

    /// Reads a version of `size` bytes from storage, and reports it. `None` at the deadline: it is reported as not read once it is
    /// over.
    pub(crate) fn read_until(
        &self,
        deadline: Instant,
        ticket: Ticket,
        (version, size): (Version, u64),
        (grant, sink): (Grant, &mut TargetRegions<'_, '_>),
        stream: Option<&Stream>,
    ) -> Result<Option<()>> {
        let read = self.fetch_until(deadline, ticket, (version, size), grant);
        let given = match read {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => {
                let give = |context: &mut TierContext| Ok(context.give(sink, 0, &bytes, stream)?);
                self.shared.with_context(give)
            }
            Err(error) => Err(error),
        };
        let ok = given.is_ok() && sink.is_whole();
        self.shared.tell(Event::Read { ticket, ok });
        given.map(Some)
    }

    /// Reads a version of `size` bytes from storage. `None` at the deadline: it is reported as not read once it is over.
    pub(crate) fn fetch_until(
        &self,
        deadline: Instant,
        ticket: Ticket,
        (version, size): (Version, u64),
        grant: Grant,
    ) -> Result<Option<Vec<u8>>> {
        let work = move |shared: &Shared, stop| {
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
            let mut whole = [RegionMut::from(bytes.as_mut_slice())];
            let sink = &mut TargetRegions::whole(&mut whole);
            shared.with_any_context(|context| {
                context.stop_by(Some(stop));
                shared.copy_out(context, version, &grant, (sink, None))
            })?;
            Ok(bytes)
        };
        let too_late = move |shared: &Shared| shared.tell(Event::Read { ticket, ok: false });
        work_until(&self.shared, deadline, work, too_late)?.transpose()
    }
}

impl<'engine> Within<'engine> {
    pub(crate) fn deadline(&self) -> Deadline<'engine> {
        Deadline::after(self.patience).unless(self.interrupt)
    }

    /// Stops waiting for room or for bytes when `interrupt` says so: it is asked every 50 ms, and may look after signals, say. The
    /// call keeps its place in the queue meanwhile, and ends with [`Error::Interrupted`](crate::Error::Interrupted). A copy that has
    /// begun still has the whole time.
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// # use tierflow_engine::{Engine, Error, Region};
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # use std::time::Duration;
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// # let engine = Engine::builder(&device).host_cache(1 << 20).build()?;
    /// static STOPPED: AtomicBool = AtomicBool::new(false);
    /// let is_stopped = || STOPPED.load(Ordering::Relaxed);
    /// let call = engine.within(Duration::MAX).unless(&is_stopped);
    /// match call.checkpoint(1, &[Region::from(&[0_u8; 4096][..])]) {
    ///     Err(Error::Interrupted) => { /* it was not taken in */ }
    ///     taken_in => taken_in?,
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn unless<'call>(self, interrupt: &'call (dyn Fn() -> bool + Sync)) -> Within<'call>
    where
        'engine: 'call,
    {
        Within {
            interrupt: Some(Interrupt(interrupt)),
            ..self
        }
    }

    /// [`Engine::checkpoint`].
    ///
    /// # Errors
    /// As [`Engine::checkpoint`]; [`Error::TimedOut`](crate::Error::TimedOut): the version was not taken in. Its number is free once what was
    /// begun with storage has ended.
    pub fn checkpoint(&self, version: Version, regions: &[Region<'_>]) -> Result<()> {
        let deadline = self.deadline();
        self.engine.write(version, regions, None, deadline)
    }

    /// [`Engine::checkpoint_on`].
    ///
    /// # Errors
    /// As [`Within::checkpoint`].
    pub fn checkpoint_on(
        &self,
        stream: &Stream,
        version: Version,
        regions: &[Region<'_>],
    ) -> Result<()> {
        let deadline = self.deadline();
        self.engine.write(version, regions, Some(stream), deadline)
    }

    /// [`Engine::restore`].
    ///
    /// # Errors
    /// As [`Engine::restore`]; [`Error::TimedOut`](crate::Error::TimedOut): the regions are as they were, the version is held and not consumed.
    pub fn restore(&self, version: Version, regions: &mut [RegionMut<'_>]) -> Result<()> {
        let deadline = self.deadline();
        self.engine.read(version, regions, None, deadline)
    }

    /// [`Engine::restore_on`].
    ///
    /// # Errors
    /// As [`Within::restore`].
    pub fn restore_on(
        &self,
        stream: &Stream,
        version: Version,
        regions: &mut [RegionMut<'_>],
    ) -> Result<()> {
        let deadline = self.deadline();
        self.engine.read(version, regions, Some(stream), deadline)
    }

    /// [`Engine::produce`].
    ///
    /// # Errors
    /// As [`Engine::produce`]; [`Error::TimedOut`](crate::Error::TimedOut): the number is free.
    pub fn produce(&self, version: Version, size: usize) -> Result<ProduceSlot<'engine>> {
        let deadline = self.deadline();
        self.engine.lend_room(version, size, deadline)
    }

    /// [`Engine::consume`].
    ///
    /// # Errors
    /// As [`Engine::consume`]; [`Error::TimedOut`](crate::Error::TimedOut): the version is held and not consumed.
    pub fn consume(&self, version: Version) -> Result<ConsumeSlot<'engine>> {
        let deadline = self.deadline();
        self.engine.lend_version(version, deadline)
    }

    /// [`Engine::wait_version`].
    ///
    /// # Errors
    /// As [`Engine::wait_version`]; [`Error::TimedOut`](crate::Error::TimedOut): the version is still on its way.
    pub fn wait_version(&self, version: Version) -> Result<()> {
        let deadline = self.deadline();
        self.engine.wait_for_version(version, deadline)
    }

    /// [`Engine::wait_for`].
    ///
    /// # Errors
    /// As [`Engine::wait_for`].
    pub fn wait(&self) -> Result<()> {
        self.engine.wait_until(self.deadline())
    }

    /// Waits as [`Engine::close`] does, and leaves the engine open: if it fails, mend what is wrong and settle again.
    ///
    /// # Errors
    /// As [`Engine::wait_for`].
    pub fn settle(&self) -> Result<()> {
        let waited = self.wait_settled();
        waited.and(self.engine.protect_if_driven())
    }

    /// Waits until what is to outlive the engine lies on the lowest tier.
    fn wait_settled(&self) -> Result<()> {
        let engine = self.engine;
        engine.at_home()?;
        let lowest = engine.shared.tiers.last();
        match lowest.and_then(|tier| tier.medium.kept()) {
            None => Ok(()),
            Some(_) => match engine.shared.suspended_for() {
                Some(version) => self.wait_suspended(version),
                None if !engine.shared.has_begun() => Ok(()),
                None => self.wait(),
            },
        }
    }

    /// Waits for the version of a suspension, and leaves it suspended.
    fn wait_suspended(&self, version: Version) -> Result<()> {
        let deadline = self.deadline();
        if self.engine.is_durable(version) || self.engine.restore_size(version).is_err() {
            return Ok(());
        }
        let by = deadline.at().unwrap_or_else(Instant::now);
        match self.engine.suspend_to(version, by)?.wait_until(deadline)? {
            true => Ok(()),
            false => Err(deadline.passed()),
        }
    }
}
