//! Checkpoints and restores in place: the engine lends parts of the cache.

mod call;

use crate::blocked::{CallClock, CallKind, Cause};
use crate::deadline::{Awaited, Deadline};
use crate::plan::{Event, Piece, Place, TierId};
use crate::run::{Medium, NewVersion, PlanGuard};
use crate::{Call, Engine, Error, Result, Version};
use call::{EngineRef, SlotCall};
use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;
use tierflow_device::{Access, ReadLoan, Stream, WriteLoan};

impl<'a> ProduceSlot<'a> {
    /// Lends `size` bytes of the fastest tier: see [`Call::produce`].
    pub(crate) fn lend(call: Call<'a>, version: Version, size: u64) -> Result<Self> {
        let (engine, deadline) = (call.engine, call.deadline(Awaited::Loan(version)));
        let clock = engine.shared.blocked.begin(CallKind::Produce);
        lending(engine)?;
        engine.is_free(version)?;
        let asked = |ticket| Event::Produce {
            ticket,
            version,
            size,
        };
        let (ticket, grant) = engine.ask(clock.last_ns(), version, size, deadline, asked)?;
        let pieces = grant.map(|grant| grant.pieces).unwrap_or_default();
        let [Piece { place, .. }] = *pieces else {
            return Err(Error::NoMemoryTier);
        };
        let call = SlotCall {
            engine: EngineRef::Borrowed(engine),
            version,
            ticket,
            place,
        };
        // An earlier version with this number may have had names, or no bytes.
        engine
            .shared
            .note(None, &mut NewVersion::plain(version, size));
        engine.shared.pending.settle(&place, Access::Write);
        let media = &engine.shared.tiers[place.tier.0].medium;
        match media.lend_mut(place.offset..place.offset + place.size) {
            Ok(loan) => {
                clock.lent();
                Ok(Self {
                    loan: Some(loan),
                    call,
                })
            }
            Err(error) => {
                call.given_up();
                Err(error)
            }
        }
    }
}

impl<'a> ConsumeSlot<'a> {
    /// Lends the cached copy of `version`: see [`Call::consume`].
    pub(crate) fn lend(call: Call<'a>, version: Version) -> Result<Self> {
        let (engine, deadline) = (call.engine, call.deadline(Awaited::Loan(version)));
        let mut clock = engine.shared.blocked.begin(CallKind::Consume);
        lending(engine)?;
        let lend = || match engine.locked_size(deadline, version)? {
            (0, _) => Err(Error::Empty { version }),
            (size, core) => Self::lend_once(engine, core, version, size, deadline, &mut clock),
        };
        let slot = engine.shared.read_sound(version, lend)?;
        clock.done(slot.len() as u64);
        Ok(slot)
    }

    /// Lends the version once, from the copies that the plan chooses now.
    fn lend_once(
        engine: &'a Engine,
        core: PlanGuard<'_>,
        version: Version,
        size: u64,
        deadline: Deadline,
        clock: &mut CallClock<'_>,
    ) -> Result<Self> {
        let asked = |ticket| Event::Consume { ticket, version };
        let (ticket, grant) =
            engine.ask_at_home(Some(core), clock.last_ns(), version, size, deadline, asked)?;
        let Some(grant) = grant else {
            return Err(Error::NoMemoryTier);
        };
        let cached = cached(&grant.pieces);
        let first = grant.pieces.first().map(|piece| piece.place);
        let place = cached.or(first).ok_or(Error::NoMemoryTier)?;
        let call = SlotCall {
            engine: EngineRef::Borrowed(engine),
            version,
            ticket,
            place,
        };
        let is_cached = cached.is_some();
        let granted = engine.moment();
        let copied = (!is_cached).then(|| engine.shared.cause_of_copy(&grant));
        if copied.is_some() {
            clock.part(Cause::Plan);
        }
        let until = deadline.at();
        let loan = match until.filter(|_| engine.shared.reaches_storage(&grant)) {
            Some(at) if !is_cached => call.read_until(at, size, grant),
            _ => call.read_loan(is_cached, size, &grant).map(Some),
        };
        if let Some(cause) = copied {
            clock.part(cause);
        }
        engine.copied("consume", version, size, granted);
        match loan {
            // The thread reports the read to the plan when the read is over.
            Ok(None) => Err(deadline.passed()),
            Ok(Some(loan)) => Ok(Self {
                loan: Some(loan),
                call,
                is_cached,
            }),
            Err(error) => {
                call.read(false);
                Err(error)
            }
        }
    }
}

/// Checks that the fastest tier is memory that can be lent.
fn lending(engine: &Engine) -> Result<()> {
    match engine.shared.tiers.first().map(|tier| &tier.medium) {
        Some(Medium::Device(_) | Medium::Host(_)) => Ok(()),
        _ => Err(Error::NoMemoryTier),
    }
}

/// Returns the place of a version that is in one piece on the fastest tier; `None` for other versions.
fn cached(pieces: &[Piece]) -> Option<Place> {
    match pieces {
        [Piece { place, .. }] if place.tier == TierId::FASTEST => Some(*place),
        _ => None,
    }
}

/// Bytes of the cache that will become a checkpoint: see [`Call::produce`].
///
/// On a GPU, streams write the bytes at [`address`](WriteLoan::address); on the host back end they are a slice. The
/// slot dereferences to its loan for reading. Writing goes through the slot's methods, so that it keeps its loan.
///
/// ```
/// # use tierflow_engine::Engine;
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// let engine = Engine::builder(&device).device_cache(1 << 20).build()?;
/// let mut slot = engine.call().produce(7, 1000)?;
/// slot.bytes_mut()?.fill(42);
/// slot.commit();
/// let slot = engine.call().consume(7)?;
/// assert_eq!(slot.bytes()?, [42; 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Committing consumes the slot, and its bytes cannot be reached any more:
///
/// ```compile_fail,E0382
/// # use tierflow_engine::Engine;
/// # fn f(engine: &Engine) -> tierflow_engine::Result<()> {
/// let mut slot = engine.call().produce(7, 1000)?;
/// slot.commit();
/// slot.bytes_mut()?.fill(42);
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0505
/// # use tierflow_engine::Engine;
/// # fn f(engine: &Engine) -> tierflow_engine::Result<()> {
/// let mut slot = engine.call().produce(7, 1000)?;
/// let bytes = slot.bytes_mut()?;
/// slot.commit();
/// bytes.fill(42);
/// # Ok(()) }
/// ```
///
/// A slot lends its own bytes, for its own life. The memory around them, with other versions, cannot be reached through
/// it:
///
/// ```compile_fail,E0624
/// # use tierflow_engine::Engine;
/// # fn f(engine: &Engine) -> tierflow_engine::Result<()> {
/// let slot = engine.call().produce(7, 1000)?;
/// let cache = slot.memory().clone();
/// # Ok(()) }
/// ```
///
/// No slot outlives its engine:
///
/// ```compile_fail,E0505
/// # use tierflow_engine::Engine;
/// # fn f(engine: Engine) -> tierflow_engine::Result<()> {
/// let slot = engine.call().produce(7, 1000)?;
/// drop(engine);
/// slot.commit();
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping the slot gives its room up; commit it"]
pub struct ProduceSlot<'engine> {
    /// `None` once the slot is given back.
    loan: Option<WriteLoan>,
    call: SlotCall<'engine>,
}

impl ProduceSlot<'_> {
    /// Returns the version that the bytes will become.
    #[must_use]
    pub fn version(&self) -> Version {
        self.call.version
    }

    /// Returns the same slot, which holds its engine through `owner` instead of borrowing it, for programs that cannot
    /// keep a borrow.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tierflow_engine::{Engine, ProduceSlot};
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// let engine = Arc::new(Engine::builder(&device).device_cache(1 << 20).build()?);
    /// let slot: ProduceSlot<'static> = engine.call().produce(7, 1000)?.owned(Arc::clone(&engine))?;
    /// drop(engine);
    /// slot.commit();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OtherEngine`] if `owner` does not own the slot's engine; then the slot is given up.
    pub fn owned<O>(mut self, owner: Arc<O>) -> Result<ProduceSlot<'static>>
    where
        O: Borrow<Engine> + Send + Sync + 'static,
    {
        let call = self.call.owned(owner)?;
        Ok(ProduceSlot {
            loan: self.loan.take(),
            call,
        })
    }

    /// Returns the bytes, in place.
    ///
    /// # Errors
    /// [`Error::Device`] if only the device can write them.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        Ok(self.loan_mut()?.bytes_mut()?)
    }

    /// Sets every byte to `byte`, and waits.
    ///
    /// # Errors
    /// [`Error::Device`], as [`Stream::fill`].
    pub fn fill(&mut self, stream: &Stream, byte: u8) -> Result<()> {
        Ok(stream.fill(self.loan_mut()?, byte)?)
    }

    /// Copies `source`, which is as long as the slot, and waits.
    ///
    /// # Errors
    /// [`Error::Device`], as [`Stream::copy_now`].
    pub fn copy_from(&mut self, stream: &Stream, source: &ReadLoan) -> Result<()> {
        Ok(stream.copy_now(source, self.loan_mut()?)?)
    }

    fn loan_mut(&mut self) -> Result<&mut WriteLoan> {
        self.loan.as_mut().ok_or(Error::NoMemoryTier)
    }

    /// Makes the bytes the checkpoint. Copies nothing and takes microseconds for any size. All writes to the bytes must be over.
    /// Use [`ProduceSlot::commit_after`] if a stream still writes.
    pub fn commit(mut self) {
        if self.call.engine.at_home().is_err() {
            return;
        }
        let engine = self.call.engine.clone();
        let clock = engine.shared.blocked.begin(CallKind::Produce);
        drop(self.loan.take());
        self.taken_in(clock);
    }

    /// Makes the bytes the checkpoint as soon as the work given to `stream` so far has written them. Returns at once:
    /// the flush of the version, its restore, and every other access to these bytes wait for that work.
    ///
    /// # Errors
    /// [`Error::Device`] if the stream's device failed. The version is not accepted then. If the driver tells neither that the work is over
    /// nor that the device is lost, the memory stays lent for good.
    pub fn commit_after(mut self, stream: &Stream) -> Result<()> {
        self.call.engine.at_home()?;
        let engine = self.call.engine.clone();
        let clock = engine.shared.blocked.begin(CallKind::Produce);
        if let Some(loan) = self.loan.take() {
            let loan = loan.into_read();
            self.call.end_after(stream, Access::Write, loan)?;
        }
        self.taken_in(clock);
        Ok(())
    }

    /// Gives the memory up as soon as the work given to `stream` so far is over, as that work may still write to the memory.
    /// Returns at once: the next user of the memory waits for the work.
    ///
    /// # Errors
    /// [`Error::Device`] if the stream's device failed. The memory is given up nevertheless, but for the exception of
    /// [`ProduceSlot::commit_after`].
    pub fn give_up_after(mut self, stream: &Stream) -> Result<()> {
        self.call.engine.at_home()?;
        if let Some(loan) = self.loan.take() {
            let loan = loan.into_read();
            self.call.end_after(stream, Access::Write, loan)?;
            self.call.given_up();
        }
        Ok(())
    }

    fn taken_in(&self, clock: CallClock<'_>) {
        let begun = self.call.engine.moment();
        self.call.written(clock.last_ns(), true);
        let bytes = self.call.place.size;
        self.call
            .engine
            .copied("produce", self.call.version, bytes, begun);
        clock.done(bytes);
    }
}

impl Drop for ProduceSlot<'_> {
    fn drop(&mut self) {
        // A committed slot has no loan.
        if let Some(loan) = self.loan.take() {
            self.call.end(loan);
            self.call.given_up();
        }
    }
}

impl Deref for ProduceSlot<'_> {
    type Target = WriteLoan;

    fn deref(&self) -> &WriteLoan {
        match &self.loan {
            Some(loan) => loan,
            None => unreachable!("only what consumes the slot takes its loan"),
        }
    }
}

/// The cached copy of a version, lent for reading: see [`Call::consume`]. Dropping the slot counts the version as consumed.
///
/// ```compile_fail,E0596
/// # use tierflow_engine::Engine;
/// # fn f(engine: &Engine) -> tierflow_engine::Result<()> {
/// let slot = engine.call().consume(7)?;
/// slot.bytes()?.fill(42);
/// # Ok(()) }
/// ```
///
/// The memory that contains the bytes cannot be reached either:
///
/// ```compile_fail,E0624
/// # use tierflow_engine::Engine;
/// # fn f(engine: &Engine) -> tierflow_engine::Result<()> {
/// let slot = engine.call().consume(7)?;
/// slot.memory().lend_mut(slot.range());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping the slot counts the version as consumed"]
pub struct ConsumeSlot<'engine> {
    /// `None` once the slot is given back.
    loan: Option<ReadLoan>,
    call: SlotCall<'engine>,
    is_cached: bool,
}

impl ConsumeSlot<'_> {
    /// Returns the version of the bytes.
    #[must_use]
    pub fn version(&self) -> Version {
        self.call.version
    }

    /// Returns the same slot, which holds its engine through `owner` instead of borrowing it: see
    /// [`ProduceSlot::owned`].
    ///
    /// # Errors
    /// [`Error::OtherEngine`] if `owner` does not own the slot's engine; then the slot is given back, and the version
    /// is not consumed.
    pub fn owned<O>(mut self, owner: Arc<O>) -> Result<ConsumeSlot<'static>>
    where
        O: Borrow<Engine> + Send + Sync + 'static,
    {
        let (is_cached, call) = (self.is_cached, self.call.owned(owner));
        match call {
            Ok(call) => Ok(ConsumeSlot {
                loan: self.loan.take(),
                call,
                is_cached,
            }),
            Err(error) => {
                self.give_back();
                Err(error)
            }
        }
    }

    /// Returns true if the bytes are in the cache, and false if they are a copy because the cache had no free memory.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Gives the bytes back, and counts the version as consumed, as soon as the work given to `stream` so far is over.
    /// Returns at once: later writes to the bytes wait for that work.
    ///
    /// # Errors
    /// [`Error::Device`] if the stream's device failed. The version is not consumed then. The bytes stay lent in the case of
    /// [`ProduceSlot::commit_after`].
    pub fn finish_after(self, stream: &Stream) -> Result<()> {
        self.end_after(stream, true)
    }

    /// As [`ConsumeSlot::finish_after`], but leaves the version unconsumed.
    ///
    /// # Errors
    /// As [`ConsumeSlot::finish_after`].
    pub fn give_back_after(self, stream: &Stream) -> Result<()> {
        self.end_after(stream, false)
    }

    fn end_after(mut self, stream: &Stream, is_consumed: bool) -> Result<()> {
        self.call.engine.at_home()?;
        if let Some(loan) = self.loan.take() {
            self.call.end_after(stream, Access::Read, loan)?;
        }
        self.call.read(is_consumed);
        Ok(())
    }

    /// Gives the bytes back and leaves the version unconsumed.
    pub fn give_back(mut self) {
        if let Some(loan) = self.loan.take() {
            self.call.end(loan);
            self.call.read(false);
        }
    }
}

impl Drop for ConsumeSlot<'_> {
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            self.call.end(loan);
            self.call.read(true);
        }
    }
}

impl Deref for ConsumeSlot<'_> {
    type Target = ReadLoan;

    fn deref(&self) -> &ReadLoan {
        match &self.loan {
            Some(loan) => loan,
            None => unreachable!("only what consumes the slot takes its loan"),
        }
    }
}
