//! The call of a slot, with a reference to its engine.

use crate::plan::{Event, Place, Ticket};
use crate::region::RegionMut;
use crate::run::{Grant, TargetRegions};
use crate::{Engine, Error, Result, Version};
use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;
use tierflow_device::{Access, Error as DeviceError, ReadLoan, Stream};

/// The slot's reference to its engine, borrowed or owned.
#[derive(Clone)]
pub(super) enum EngineRef<'engine> {
    Borrowed(&'engine Engine),
    Owned(Arc<dyn Borrow<Engine> + Send + Sync>),
}

impl Deref for EngineRef<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        match self {
            Self::Borrowed(engine) => engine,
            Self::Owned(owner) => (**owner).borrow(),
        }
    }
}

impl std::fmt::Debug for EngineRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// A call that the plan has answered with a place of the version.
#[derive(Debug, Clone)]
pub(super) struct SlotCall<'engine> {
    pub(super) engine: EngineRef<'engine>,
    pub(super) version: Version,
    pub(super) ticket: Ticket,
    pub(super) place: Place,
}

impl SlotCall<'_> {
    /// Returns the same call with a reference to its engine through `owner`.
    pub(super) fn owned<O>(&self, owner: Arc<O>) -> Result<SlotCall<'static>>
    where
        O: Borrow<Engine> + Send + Sync + 'static,
    {
        if !std::ptr::eq((*owner).borrow(), &*self.engine) {
            return Err(Error::OtherEngine {
                version: self.version,
            });
        }
        Ok(SlotCall {
            engine: EngineRef::Owned(owner),
            version: self.version,
            ticket: self.ticket,
            place: self.place,
        })
    }

    /// Gives the loan back behind the work given to `stream` so far. Waits for that work if the driver records no event, for example for want
    /// of memory.
    ///
    /// # Errors
    /// [`Error::Device`]. The call ends without effect on a lost device, on which nothing runs any more. Otherwise the bytes stay lent
    /// for good, as nobody knows when the work ends.
    pub(super) fn end_after(&self, stream: &Stream, access: Access, loan: ReadLoan) -> Result<()> {
        let error = match stream.record() {
            Ok(ends) => {
                self.engine
                    .shared
                    .pending
                    .note(&self.place, access, ends, loan);
                return Ok(());
            }
            Err(error) => error,
        };
        if let DeviceError::Lost { .. } = error {
            drop(loan);
            match access {
                Access::Write => self.given_up(),
                Access::Read => self.read(false),
            }
            return Err(error.into());
        }
        stream.synchronize().map_err(|_| {
            tracing::error!("the bytes of a slot stay lent for good, as the driver cannot tell when a stream is done with them: {error}");
            std::mem::forget(loan);
            error.into()
        })
    }

    /// Ends a loan. A fork leaves it, as a thread that does not exist there may hold the lock of the memory's loans.
    pub(super) fn end<L>(&self, loan: L) {
        match self.engine.at_home() {
            Ok(()) => drop(loan),
            Err(_) => std::mem::forget(loan),
        }
    }

    /// Reports that the bytes are written, or given up if `ok` is false. `at_ns` is the present time.
    pub(super) fn written(&self, at_ns: u64, ok: bool) {
        if self.engine.at_home().is_err() {
            return;
        }
        let ticket = self.ticket;
        let written = Event::Written { ticket, ok };
        self.engine.shared.tell_at(at_ns, written);
    }

    /// Reports that the bytes are given up.
    pub(super) fn given_up(&self) {
        self.written(self.engine.shared.now_ns(), false);
    }

    pub(super) fn read(&self, ok: bool) {
        if self.engine.at_home().is_err() {
            return;
        }
        let ticket = self.ticket;
        self.engine.shared.tell(Event::Read { ticket, ok });
    }

    /// Returns the cached bytes, or a copy of them in newly allocated memory.
    pub(super) fn read_loan(&self, is_cached: bool, size: u64, grant: &Grant) -> Result<ReadLoan> {
        let (shared, place) = (&self.engine.shared, &self.place);
        for piece in &grant.pieces {
            shared.pending.settle(&piece.place, Access::Read);
        }
        if is_cached {
            let media = &shared.tiers[place.tier.0].medium;
            return media.lend(place.offset..place.offset + place.size);
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let memory = shared.device.alloc(size)?;
        let mut regions = [RegionMut::from(&memory)];
        let sink = &mut TargetRegions::whole(&mut regions);
        self.engine.copy_out(self.version, grant, sink, None)?;
        Ok(memory.lend(0..size)?)
    }

    /// Returns a copy of the stored bytes in newly allocated memory, or `None` at the deadline.
    pub(super) fn read_until(
        &self,
        deadline: Instant,
        size: u64,
        grant: Grant,
    ) -> Result<Option<ReadLoan>> {
        let shared = &self.engine.shared;
        for piece in &grant.pieces {
            shared.pending.settle(&piece.place, Access::Read);
        }
        let (engine, version) = (&*self.engine, self.version);
        let parts = engine.fetch_until(deadline, self.ticket, version, size, grant, None)?;
        let Some((_, bytes)) = parts.and_then(|mut parts| parts.pop()) else {
            return Ok(None);
        };
        let memory = shared.device.alloc(bytes.len())?;
        let mut regions = [RegionMut::from(&memory)];
        let sink = &mut TargetRegions::whole(&mut regions);
        shared.with_context(|context| Ok(context.give(sink, 0, &bytes, None)?))?;
        Ok(Some(memory.lend(0..bytes.len())?))
    }
}
