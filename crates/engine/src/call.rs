//! A call of an engine: the options, such as the stream and the deadline, and the verb that does the work.

mod ask;
mod until;

use crate::blocked::{CallClock, CallKind, Cause};
use crate::deadline::{Awaited, Deadline, Interrupt};
use crate::plan::Event;
use crate::region::{self, Region, RegionMut};
use crate::run::{NewVersion, Pieces, PlanGuard, SourceRegions, TargetRegions, touch_to_write};
use crate::slot::{ConsumeSlot, ProduceSlot};
use crate::{Engine, Error, Result, Version};
use std::time::Duration;
use tierflow_device::{Access, Stream};

/// The options of a call of an engine: see [`Engine::call`]. The last method of a chain does the work.
///
/// ```
/// # fn main() -> tierflow_engine::Result<()> {
/// # use tierflow_engine::{Engine, Error, Region, RegionMut};
/// # use std::time::Duration;
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// # let engine = Engine::builder(&device).host_cache(1 << 20).build()?;
/// let stream = device.stream()?;
/// let mut state = [7_u8; 4096];
/// let soon = engine.call().on(&stream).within(Duration::from_millis(100));
/// match soon.checkpoint(1, &[Region::from(&state[..])]) {
///     Err(Error::TimedOut { .. }) => { /* go on without it */ }
///     taken_in => taken_in?,
/// }
/// soon.restore(1, &mut [RegionMut::from(&mut state[..])])?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "a call does nothing before its verb, such as `checkpoint`"]
pub struct Call<'a> {
    pub(crate) engine: &'a Engine,
    stream: Option<&'a Stream>,
    pub(crate) patience: Option<Duration>,
    interrupt: Option<Interrupt<'a>>,
    error: Option<f64>,
}

impl Engine {
    /// Starts a call. Without a deadline, the call waits without limit. Without a stream, it copies at once. With a stream, it
    /// copies after the stream's work so far. In both cases it returns when the bytes are copied.
    pub fn call(&self) -> Call<'_> {
        Call {
            engine: self,
            stream: None,
            patience: None,
            interrupt: None,
            error: None,
        }
    }

    /// As [`Call::checkpoint`].
    ///
    /// # Errors
    /// As [`Call::checkpoint`].
    pub fn checkpoint(&self, version: Version, regions: &[Region<'_>]) -> Result<()> {
        self.call().checkpoint(version, regions)
    }

    /// As [`Call::restore`].
    ///
    /// # Errors
    /// As [`Call::restore`].
    pub fn restore(&self, version: Version, regions: &mut [RegionMut<'_>]) -> Result<()> {
        self.call().restore(version, regions)
    }

    /// As [`Call::wait`].
    ///
    /// # Errors
    /// As [`Call::wait`].
    pub fn wait(&self) -> Result<()> {
        self.call().wait()
    }

    /// Returns the plan's lock if the version has `given` bytes.
    fn locked_for(
        &self,
        deadline: Deadline<'_>,
        version: Version,
        given: u64,
    ) -> Result<PlanGuard<'_>> {
        let (expected, core) = self.locked_size(deadline, version)?;
        match given == expected {
            true => Ok(core),
            false => Err(Error::SizeMismatch {
                version,
                expected,
                given,
            }),
        }
    }
}

impl<'a> Call<'a> {
    /// Orders the copy of the caller's memory after the work given to `stream` so far; `None` for no order. Calls that copy none of
    /// the caller's memory ignore the stream.
    pub fn on(self, stream: impl Into<Option<&'a Stream>>) -> Self {
        Self {
            stream: stream.into(),
            ..self
        }
    }

    /// Waits for room, for bytes and for storage no longer than `patience`, even if storage hangs. After that, the call returns
    /// [`Error::TimedOut`], and both the engine and the caller may go on. [`Duration::MAX`] means no limit.
    ///
    /// Bytes that go directly to storage, or come from there, pass through a buffer in host memory and another thread. The thread
    /// stops between two blocks when the time is over. Dropping the engine waits for that thread as for the engine's threads.
    ///
    /// The call always waits for copies between memories, and for the device's work before them: a kernel cannot be stopped while
    /// it may use the memory.
    pub fn within(self, patience: Duration) -> Self {
        Self {
            patience: Some(patience),
            ..self
        }
    }

    /// Stops waiting for room or for bytes when `interrupt` returns true, with [`Error::Interrupted`]. The engine calls `interrupt`
    /// every 50 ms, so it can check for signals, for example. As long as it returns false, the call keeps its place in the queue.
    /// `interrupt` does not stop a copy that has started: the copy ends as without it.
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// # use tierflow_engine::{Engine, Error, Region};
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// # let engine = Engine::builder(&device).host_cache(1 << 20).build()?;
    /// static STOPPED: AtomicBool = AtomicBool::new(false);
    /// let is_stopped = || STOPPED.load(Ordering::Relaxed);
    /// let call = engine.call().unless(&is_stopped);
    /// match call.checkpoint(1, &[Region::from(&[0_u8; 4096][..])]) {
    ///     Err(Error::Interrupted) => { /* it was not taken in */ }
    ///     taken_in => taken_in?,
    /// }
    /// # Ok(()) }
    /// ```
    pub fn unless(self, interrupt: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self {
            interrupt: Some(Interrupt(interrupt)),
            ..self
        }
    }

    /// Lets the values of this checkpoint come back changed by at most `error`, in the unit of the values, in each region to which
    /// [`Compression::within`](crate::Compression::within) gives a bound. `error` replaces that bound. All other regions come back
    /// unchanged, and so does everything in an engine without bounds. Calls other than [`Call::checkpoint`] ignore `error`.
    ///
    /// A wave that a computation multiplies by large numbers may need a small error, and another version of the wave a larger one:
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// # use tierflow_engine::{Bound, Compression, Element, Engine, Region, Value};
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// # let directory = tempfile::tempdir().unwrap();
    /// let how = Compression::lossless(Value::F32).within("wave", Bound::Relative(1e-6));
    /// let engine = Engine::builder(&device)
    ///     .host_cache(1 << 20)
    ///     .scratch(directory.path())
    ///     .compress(how)
    ///     .build()?;
    /// let wave = [0_u8; 4096];
    /// let wave = Region::from(&wave[..]).array("wave", Element::F32, &[1024]);
    /// engine.call().within_error(0.5).checkpoint(1, &[wave])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Call::checkpoint`] returns [`Error::NamedRegion`] if a region has a bound and `error` is not a finite number above 0.
    pub fn within_error(self, error: f64) -> Self {
        Self {
            error: Some(error),
            ..self
        }
    }

    /// Returns the deadline of the call's waits, counted from now.
    pub(crate) fn deadline(&self, of: Awaited) -> Deadline<'a> {
        let deadline = self
            .patience
            .map_or_else(Deadline::default, Deadline::after);
        deadline.unless(self.interrupt).of(of)
    }

    /// Stores the bytes of `regions`, one after the other, as `version`. A rank of a group may have no bytes. Returns as soon as
    /// the bytes are copied to the fastest tier that can hold them. The regions may be changed at once.
    ///
    /// # Errors
    /// [`Error::Region`], [`Error::NamedRegion`], [`Error::Empty`], [`Error::VersionUsed`], [`Error::TooLarge`]: correct the call.
    /// [`Error::NoRoom`]: restore or discard versions, then call again. [`Error::Device`], [`Error::Memory`], [`Error::Storage`]:
    /// the copy failed. In each case the version was not accepted, and its number is still free. [`Error::TimedOut`],
    /// [`Error::Interrupted`]: the version was not accepted. The number is free once transfers to storage that had started have
    /// ended.
    pub fn checkpoint(self, version: Version, regions: &[Region<'_>]) -> Result<()> {
        let shared = &self.engine.shared;
        let mut clock = shared.blocked.begin(CallKind::Checkpoint);
        let deadline = self.deadline(Awaited::Checkpoint(version));
        let size = region::total(regions)?;
        let layout = region::layout(version, regions)?;
        if let (Some(stage), Some(layout)) = (&shared.stage, &layout) {
            stage.check(version, layout, self.error)?;
        }
        let _span = tracing::debug_span!("checkpoint", version, size).entered();
        self.engine.is_free(version)?;
        let is_empty = size == 0 && shared.empties.are_allowed();
        let size = size.max(u64::from(is_empty));
        self.engine.at_home()?;
        let mut new = NewVersion {
            version,
            size,
            is_empty,
            layout,
            error: self.error,
        };
        let begun = self.engine.moment();
        if self.stream.is_none() && shared.write_at_once(&mut new, regions, &mut clock) {
            self.engine.copied("checkpoint", version, size, begun);
            clock.done(size);
            return Ok(());
        }
        let asked = |ticket| Event::Checkpoint {
            ticket,
            version,
            size,
        };
        // Other calls find the version while this one waits for room. A version that has bytes but no names looks the same before it is noted.
        let is_plain = !is_empty && new.layout.is_none();
        let core = (!is_plain).then(|| shared.lock());
        if let Some(core) = &core
            && core.plan().is_new(version)
        {
            shared.note(Some(core), &mut new);
        }
        let (ticket, grant) =
            self.engine
                .ask_at_home(core, clock.last_ns(), version, size, deadline, asked)?;
        let Some(grant) = grant else { return Ok(()) };
        if is_plain {
            shared.note(None, &mut new);
        }
        clock.part(Cause::Plan);
        for piece in &grant.pieces {
            shared.pending.settle(&piece.place, Access::Write);
        }
        let granted = self.engine.moment();
        let lowest = grant.pieces.iter().map(|piece| piece.place.tier).max();
        let copied = match deadline.at().filter(|_| shared.reaches_storage(&grant)) {
            Some(at) => {
                let copied = self.write_until(at, ticket, version, &grant, regions);
                clock.part(Cause::Storage);
                copied
            }
            None => {
                let copied = shared.with_context(|context| {
                    let pieces = grant.pieces.as_slice();
                    let to = Pieces { version, pieces };
                    context.write(shared, &SourceRegions::new(regions), to, self.stream)
                });
                let took_ns = clock.part(shared.cause_of_copy(&grant));
                shared.end_write(version, &grant.pieces, true);
                let ok = copied.is_ok();
                let written = Event::Written { ticket, ok };
                shared.tell_copied(clock.last_ns(), took_ns, written, grant.pieces);
                copied.map(Some)
            }
        };
        let copied = copied.and_then(|copied| copied.ok_or_else(|| deadline.passed()));
        self.engine.copied("checkpoint", version, size, granted);
        copied?;
        // A durable tier holds versions whole, so the lowest tier of the pieces has all of this one.
        lowest
            .into_iter()
            .for_each(|tier| shared.have_housekept(tier));
        clock.done(size);
        Ok(())
    }

    /// Restores `version` to `regions`, one after the other, and counts it as consumed.
    ///
    /// # Errors
    /// [`Error::Region`], [`Error::Unknown`], [`Error::Discarded`], [`Error::SizeMismatch`]: correct the call. [`Error::Device`],
    /// [`Error::Storage`]: the copy failed. The regions are unspecified, and the version is still held and unconsumed.
    /// [`Error::TimedOut`], [`Error::Interrupted`]: the regions are unchanged, and the version is held and unconsumed. If a copy
    /// turned out to be damaged and the call has no time limit, an interruption leaves the regions unspecified.
    pub fn restore(self, version: Version, regions: &mut [RegionMut<'_>]) -> Result<()> {
        let shared = &self.engine.shared;
        let mut clock = shared.blocked.begin(CallKind::Restore);
        let deadline = self.deadline(Awaited::Restore(version));
        let given = region::total_mut(&*regions)?;
        let _span = tracing::debug_span!("restore", version, size = given).entered();
        // With a stream, its work may still write to the regions.
        if self.stream.is_none() {
            touch_to_write(given, regions);
        }
        let mut core = self.engine.locked_for(deadline, version, given)?;
        let begun = self.engine.moment();
        if self.stream.is_none() && shared.read_at_once(&mut core, version, regions, &mut clock) {
            drop(core);
            self.engine.copied("restore", version, given, begun);
            clock.done(given);
            return Ok(());
        }
        let sink = TargetRegions::whole(regions);
        self.read_into(Some(core), version, given, sink, deadline, clock)
    }

    /// Restores these regions of `version`, in any order. The version stays held and unconsumed. A disk is read only for the blocks
    /// of these regions. A version that is stored as a difference is read as a whole.
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// # use tierflow_engine::{Engine, Region, RegionMut};
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// # let engine = Engine::builder(&device).host_cache(1 << 20).build()?;
    /// let (field, seed) = ([1_u8; 4096], [7_u8; 8]);
    /// let regions = [Region::from(&field[..]).named("field"), Region::from(&seed[..]).named("seed")];
    /// engine.checkpoint(1, &regions)?;
    /// let mut back = [0_u8; 8];
    /// engine.call().restore_regions(1, &mut [("seed", RegionMut::from(&mut back[..]))])?;
    /// assert_eq!(back, seed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NamedRegion`] if the version has no region of a name, or one of another length than the memory; otherwise as
    /// [`Call::restore`].
    pub fn restore_regions(
        self,
        version: Version,
        regions: &mut [(&str, RegionMut<'_>)],
    ) -> Result<()> {
        let clock = self.engine.shared.blocked.begin(CallKind::Restore);
        let deadline = self.deadline(Awaited::Restore(version));
        let layout = self.engine.regions_until(deadline, version)?;
        let targets = region::by_name(version, &layout, regions)?;
        let (starts, mut regions): (Vec<u64>, Vec<_>) = targets.into_iter().unzip();
        if regions.is_empty() {
            clock.done(0);
            return Ok(());
        }
        let size = layout.iter().map(|info| info.length).sum();
        let _span = tracing::debug_span!("restore", version, size).entered();
        let sink = TargetRegions::parts(&mut regions, &starts);
        self.read_into(None, version, size, sink, deadline, clock)
    }

    /// Lends `bytes` bytes of the fastest tier for the application to write. [`ProduceSlot::commit`] makes them the
    /// checkpoint `version`, without a copy. Dropping the slot gives them up instead.
    ///
    /// The fastest tier is the device cache. In an engine without one it is host memory, which kernels do not reach on
    /// every machine (see [`WriteLoan::place`](tierflow_device::WriteLoan::place)).
    ///
    /// Blocks while no memory is free, as [`Call::checkpoint`] does. A slot may be held for any time: no call waits for it, and its
    /// bytes count as in use. The slot's first content is unspecified.
    ///
    /// # Errors
    /// [`Error::NoMemoryTier`], [`Error::Empty`], [`Error::VersionUsed`], and [`Error::TooLarge`] for the fastest tier: correct the
    /// call. [`Error::NoRoom`] if the fastest tier is full of versions that must be kept: restore or discard some, or call
    /// [`Call::checkpoint`], which may use other tiers. [`Error::Memory`] if the tier's memory could not be allocated.
    /// [`Error::TimedOut`], [`Error::Interrupted`]: the number is free.
    pub fn produce(self, version: Version, bytes: usize) -> Result<ProduceSlot<'a>> {
        ProduceSlot::lend(self, version, bytes as u64)
    }

    /// Lends the cached copy of `version` for reading, and counts the version as consumed when the slot is dropped.
    ///
    /// A version on a slower tier is first copied to the fastest one. If the fastest tier has no free memory, the slot is a copy
    /// outside the cache ([`ConsumeSlot::is_cached`]), in newly allocated device memory, which takes time.
    ///
    /// # Errors
    /// [`Error::NoMemoryTier`], [`Error::Unknown`], [`Error::Discarded`], [`Error::Empty`]: correct the call. [`Error::Device`],
    /// [`Error::Storage`], [`Error::TimedOut`], [`Error::Interrupted`]: the version is still held and unconsumed.
    pub fn consume(self, version: Version) -> Result<ConsumeSlot<'a>> {
        ConsumeSlot::lend(self, version)
    }

    /// Waits until every version that was accepted before is on the lowest tier. If that tier outlives the engine, the versions are
    /// then durable.
    ///
    /// # Errors
    /// [`Error::Stalled`] if some versions cannot get there. [`Error::TimedOut`], [`Error::Interrupted`]: the versions are still on
    /// their way.
    pub fn wait(self) -> Result<()> {
        let (engine, version) = (self.engine, None);
        let clock = engine.shared.blocked.begin(CallKind::Wait);
        let deadline = self.deadline(Awaited::AllDurable);
        engine.at_home()?;
        // The wait does not include versions that are accepted later.
        let taken_in = engine.to_protect(version);
        let wait = |ticket| Event::Wait { ticket, version };
        engine.ask_at_home(None, clock.last_ns(), 0, 0, deadline, wait)?;
        engine.wait_protected(&taken_in, deadline)?;
        engine.list_found(deadline)?;
        clock.done(0);
        Ok(())
    }

    /// Waits until `version`, and every version that it builds upon, is on the lowest tier, as [`Call::wait`] does for all. When
    /// rank 0 of a group returns, readers of all ranks' pieces see the versions that the group found. With a patience of zero, the
    /// call skips that and answers by the present state.
    ///
    /// # Errors
    /// [`Error::Unknown`] and [`Error::Discarded`], also if the version is discarded meanwhile; [`Error::Stalled`] if the version
    /// cannot get there. [`Error::TimedOut`], [`Error::Interrupted`]: the version, or the list of found versions, is still on its
    /// way.
    pub fn wait_version(self, version: Version) -> Result<()> {
        let (engine, deadline) = (self.engine, self.deadline(Awaited::Durable(version)));
        let clock = engine.shared.blocked.begin(CallKind::Wait);
        let wait = |ticket| Event::Wait {
            ticket,
            version: Some(version),
        };
        engine.ask(clock.last_ns(), version, 0, deadline, wait)?;
        engine.wait_protected(&engine.to_protect(Some(version)), deadline)?;
        engine.list_found(deadline)?;
        clock.done(0);
        Ok(())
    }

    /// Reads a version of `size` bytes, or parts of it, to `sink`. Parts leave the version unconsumed. The caller may pass the
    /// plan's lock.
    fn read_into(
        self,
        mut core: Option<PlanGuard<'_>>,
        version: Version,
        size: u64,
        mut sink: TargetRegions<'_, '_>,
        deadline: Deadline,
        mut clock: CallClock<'_>,
    ) -> Result<()> {
        let shared = &self.engine.shared;
        let read = || self.read_once(core.take(), version, size, &mut sink, deadline, &mut clock);
        shared.read_sound(version, read)?;
        clock.done(sink.len());
        Ok(())
    }

    /// Reads the version once, from the copies that the plan chooses now.
    fn read_once(
        self,
        core: Option<PlanGuard<'_>>,
        version: Version,
        size: u64,
        sink: &mut TargetRegions<'_, '_>,
        deadline: Deadline,
        clock: &mut CallClock<'_>,
    ) -> Result<()> {
        let (engine, shared) = (self.engine, &self.engine.shared);
        // Another version may have the number since its size was read.
        let core = core.map_or_else(|| engine.locked_for(deadline, version, size), Ok)?;
        let asked = |ticket| Event::Restore { ticket, version };
        let (ticket, grant) =
            engine.ask_at_home(Some(core), clock.last_ns(), version, size, deadline, asked)?;
        let Some(grant) = grant else {
            return Ok(());
        };
        clock.part(Cause::Plan);
        for piece in &grant.pieces {
            shared.pending.settle(&piece.place, Access::Read);
        }
        let granted = engine.moment();
        let cause = shared.cause_of_copy(&grant);
        let copied = match deadline.at().filter(|_| shared.reaches_storage(&grant)) {
            Some(at) => {
                let copied = self.read_until(at, ticket, version, size, grant, sink);
                clock.part(cause);
                copied
            }
            None => {
                let copied = engine.copy_out(version, &grant, sink, self.stream);
                let took_ns = clock.part(cause);
                let ok = copied.is_ok() && sink.is_whole();
                let read = Event::Read { ticket, ok };
                shared.tell_copied(clock.last_ns(), took_ns, read, grant.pieces);
                copied.map(Some)
            }
        };
        let copied = copied.and_then(|copied| copied.ok_or_else(|| deadline.passed()));
        engine.copied("restore", version, sink.len(), granted);
        copied
    }
}
