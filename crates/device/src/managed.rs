//! Managed memory: advice, and prefetches to the host or the device.

use std::fmt;
use std::ops::Range;

use crate::advice::{Advice, RangeAttribute};
use crate::backend::{Mark, MarkKind};
use crate::error::{Invalid, Result, not_cuda};
use crate::info::{Kind, Place};
use crate::memory::Memory;
use crate::stream::Stream;

/// Methods for managed memory alone; other memory has a fixed place.
impl Memory {
    /// Tells the driver how the program will use these bytes. Applies to whole pages of the system, changes no content,
    /// and takes no loan.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end, [`Invalid::NotManaged`] for other memory;
    /// [`Invalid::OutOfBounds`], [`Invalid::Empty`]; [`Error::Unavailable`](crate::Error::Unavailable) if the GPU
    /// cannot share memory with the processor while it works.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<()> {
        let (address, len) = self.managed(&range, "advice")?;
        // SAFETY: the range lies in managed memory, which `self` keeps alive.
        unsafe { self.device().backend().advise(address, len, advice) }
    }

    /// Returns the place advised for these bytes; `None` if there is none, or not one for all.
    ///
    /// # Errors
    ///
    /// The errors of [`advise`](Self::advise).
    pub fn preferred_location(&self, range: Range<usize>) -> Result<Option<Place>> {
        self.range_attribute(&range, RangeAttribute::PreferredLocation)
    }

    /// Returns the place to which these bytes were last prefetched; `None` if there is none, or not one for all.
    /// Accesses may have moved the bytes since.
    ///
    /// # Errors
    ///
    /// The errors of [`advise`](Self::advise).
    pub fn last_prefetch(&self, range: Range<usize>) -> Result<Option<Place>> {
        self.range_attribute(&range, RangeAttribute::LastPrefetch)
    }

    /// Returns the same bytes, for copies from one side of the bus. From [`Place::Host`], as
    /// [`alloc_managed`](crate::Device::alloc_managed) returns memory, the processor accesses the bytes. From
    /// [`Place::Device`] the device accesses them as a kernel would, at the speed of its own memory if they lie there.
    /// Loans of both values exclude one another.
    ///
    /// # Errors
    ///
    /// The errors of [`advise`](Self::advise).
    pub fn seen_from(&self, place: Place) -> Result<Self> {
        self.managed(&(0..self.len()), "a copy from either side")?;
        Ok(self.with_place(place))
    }

    fn range_attribute(&self, range: &Range<usize>, what: RangeAttribute) -> Result<Option<Place>> {
        let (address, len) = self.managed(range, "a question for its place")?;
        // SAFETY: the range lies in managed memory, which `self` keeps alive.
        unsafe { self.device().backend().range_attribute(address, len, what) }
    }

    /// Checks the range, and returns its address and length.
    fn managed(&self, range: &Range<usize>, what: &'static str) -> Result<(u64, usize)> {
        if self.device().info().kind == Kind::Host {
            return Err(not_cuda("managed memory"));
        }
        if !self.is_managed() {
            return Err(Invalid::NotManaged { what }.into());
        }
        let len = self.len();
        if range.start > range.end || range.end > len {
            let range = range.clone();
            return Err(Invalid::OutOfBounds { range, len }.into());
        }
        if range.is_empty() {
            return Err(Invalid::Empty.into());
        }
        Ok((self.base() + range.start as u64, range.len()))
    }
}

impl Stream {
    /// Moves managed bytes to one side of the bus, after the stream's work so far (`cuMemPrefetchAsync`). Bytes that have
    /// no memory yet get memory there. Changes no content and takes no loan: a thread that accesses the bytes meanwhile
    /// waits for the driver.
    ///
    /// For moves to the host, the driver may do all or part of the work before the call returns.
    ///
    /// # Errors
    ///
    /// [`Invalid::OtherDevice`] if the memory is of another device; the errors of [`Memory::advise`];
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if that side has too little memory.
    pub fn prefetch(&self, memory: &Memory, range: Range<usize>, to: Place) -> Result<Migration> {
        let (address, len) = memory.managed(&range, "a prefetch")?;
        if !memory.device().is_same(self.device()) {
            return Err(Invalid::OtherDevice.into());
        }
        let mut migration = Migration {
            memory: memory.clone(),
            mark: None,
        };
        // SAFETY: the range lies in managed memory, which `migration` keeps until the move is done: dropping `migration`
        // waits for its mark. If there is no mark, the code below waits for the stream.
        let enqueued = unsafe { self.queue().prefetch(address, len, to) };
        let marked = enqueued.and_then(|()| self.queue().record(MarkKind::End));
        migration.mark = Some(marked.inspect_err(|_| {
            // Nothing runs any more after success or on a lost device.
            let _ = self.queue().synchronize();
        })?);
        Ok(migration)
    }
}

/// A move of managed bytes in flight. The migration keeps the memory alive.
///
/// Dropping it waits for the move. Forgetting it leaks the memory, which is safe.
#[must_use = "dropping a migration waits for it"]
pub struct Migration {
    memory: Memory,
    mark: Option<Box<dyn Mark>>,
}

impl Migration {
    /// Returns the memory whose bytes move.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns true if the move has ended, also by an error, so that [`wait`](Self::wait) returns at once.
    pub fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and runs nothing any more.
        self.mark
            .as_ref()
            .is_none_or(|mark| mark.is_done().unwrap_or(true))
    }

    /// Waits for the move, asleep rather than spinning.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the device failed.
    pub fn wait(mut self) -> Result<()> {
        self.mark.take().map_or(Ok(()), |mark| mark.synchronize())
    }
}

impl Drop for Migration {
    fn drop(&mut self) {
        if let Some(mark) = &self.mark {
            // Nothing moves after either result, and a dropped migration reports none.
            let _ = mark.synchronize();
        }
    }
}

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migration")
            .field("done", &self.is_done())
            .finish_non_exhaustive()
    }
}
