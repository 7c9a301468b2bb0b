//! Managed memory: advice on where its bytes should lie, and moves to there ahead of use.

use std::fmt;
use std::ops::Range;

use crate::advice::{Advice, RangeAttribute};
use crate::backend::{Mark, MarkKind};
use crate::error::{Invalid, Result, not_cuda};
use crate::info::{Kind, Place};
use crate::memory::Memory;
use crate::stream::Stream;

/// For managed memory alone; what else there is has its place for good.
impl Memory {
    /// Tells the driver how these bytes will be used. It applies to whole pages of the system, changes no content,
    /// and asks for no loan.
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

    /// Where these bytes are advised to lie; `None` if nowhere, or not all in one place.
    ///
    /// # Errors
    ///
    /// Those of [`advise`](Self::advise).
    pub fn preferred_location(&self, range: Range<usize>) -> Result<Option<Place>> {
        self.range_attribute(&range, RangeAttribute::PreferredLocation)
    }

    /// Where these bytes were last prefetched to; `None` if nowhere, or not all to one place. They may
    /// have moved since, to the side that touched them.
    ///
    /// # Errors
    ///
    /// Those of [`advise`](Self::advise).
    pub fn last_prefetch(&self, range: Range<usize>) -> Result<Option<Place>> {
        self.range_attribute(&range, RangeAttribute::LastPrefetch)
    }

    /// The same bytes, as copies reach them from the other side: from [`Place::Host`], as memory is that
    /// [`alloc_managed`](crate::Device::alloc_managed) returns, the processor touches them; from
    /// [`Place::Device`] the device does, as a kernel would, at its own memory's speed where they lie there. Loans of
    /// both exclude one another: they are the same bytes.
    ///
    /// # Errors
    ///
    /// Those of [`advise`](Self::advise).
    pub fn seen_from(&self, place: Place) -> Result<Self> {
        self.managed(&(0..self.len()), "a copy from either side")?;
        Ok(self.with_place(place))
    }

    fn range_attribute(&self, range: &Range<usize>, what: RangeAttribute) -> Result<Option<Place>> {
        let (address, len) = self.managed(range, "a question for its place")?;
        // SAFETY: the range lies in managed memory, which `self` keeps alive.
        unsafe { self.device().backend().range_attribute(address, len, what) }
    }

    /// Address and length of a range of managed memory.
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
    /// Moves bytes of managed memory to one side, after the work that was given to the stream before
    /// (`cuMemPrefetchAsync`). Bytes that have no memory behind them yet get it there. No content changes, and it asks for
    /// no loan: a thread that touches the bytes meanwhile waits for the driver.
    ///
    /// Towards the host the driver may do the work, or part of it, before the call returns.
    ///
    /// # Errors
    ///
    /// [`Invalid::OtherDevice`]; those of [`Memory::advise`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) if
    /// there is too little for so many bytes on that side.
    pub fn prefetch(&self, memory: &Memory, range: Range<usize>, to: Place) -> Result<Migration> {
        let (address, len) = memory.managed(&range, "a prefetch")?;
        if !memory.device().is_same(self.device()) {
            return Err(Invalid::OtherDevice.into());
        }
        let mut migration = Migration {
            memory: memory.clone(),
            mark: None,
        };
        // SAFETY: the range lies in managed memory, which `migration` keeps until the move is done: it waits for the
        // mark when it is dropped, and if there is none, the stream is waited for below.
        let enqueued = unsafe { self.queue().prefetch(address, len, to) };
        let marked = enqueued.and_then(|()| self.queue().record(MarkKind::End));
        migration.mark = Some(marked.inspect_err(|_| {
            // Success and a lost device both mean that nothing runs any more.
            let _ = self.queue().synchronize();
        })?);
        Ok(migration)
    }
}

/// A move of managed bytes in flight. It keeps the memory alive.
///
/// Dropping it waits for the move. Forgetting it leaks the memory, which is safe.
#[must_use = "dropping a migration waits for it"]
pub struct Migration {
    memory: Memory,
    mark: Option<Box<dyn Mark>>,
}

impl Migration {
    /// The memory whose bytes move.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether the move is over, well or not, so that [`wait`](Self::wait) returns at once.
    pub fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and nothing runs on it any more.
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
            // Either way nothing moves afterwards; a dropped migration reports no result.
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
