//! The ends of a copy: a piece on a tier, the application's regions, or bytes of the engine's own. Offsets are those in the
//! version.

use super::direct::Direct;
use super::medium::{Level, Medium, medium, to_usize};
use super::regions::{Sink, Source};
use crate::plan::Piece;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{Device, Memory, Place, ReadLoan, Stream, Transfer, WriteLoan};
use tierflow_store::Storage;

/// The stream of a copy: the caller's, or the lane's own, which is made when it is first needed.
pub(super) struct Streams<'l> {
    pub(super) device: &'l Device,
    pub(super) own: &'l mut Option<Arc<Stream>>,
    pub(super) theirs: Option<&'l Stream>,
}

impl Streams<'_> {
    pub(super) fn get(&mut self) -> Result<&Stream> {
        match (self.theirs, &mut self.own) {
            (Some(theirs), _) => Ok(theirs),
            (None, Some(own)) => Ok(own),
            (None, empty) => Ok(empty.insert(Arc::new(self.device.stream()?))),
        }
    }
}

/// Where bytes of a version come from.
pub(super) trait Origin {
    /// Lends these bytes where they are, if that is memory.
    fn lend(&self, _bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        None
    }

    /// Whether it is this end that copies into such memory.
    fn fills(&self, memory: &WriteLoan) -> bool;

    /// Fills memory with the bytes from `at` on.
    fn fill(&self, at: u64, memory: WriteLoan, streams: &mut Streams<'_>) -> Result<()>;

    /// Begins to [`fill`](Self::fill) memory, if a device can do that alone; else it is filled when this returns.
    fn begin_fill(
        &self,
        at: u64,
        memory: WriteLoan,
        streams: &mut Streams<'_>,
    ) -> Result<Option<Transfer>> {
        self.fill(at, memory, streams).map(|()| None)
    }

    /// Whether it can begin so, and is reached in the same way wherever bytes lie in it.
    fn is_on_device(&self) -> bool {
        false
    }

    /// The ways between a device and the file that it is, if it is one, and where there the bytes from `at` on are.
    fn direct(&self, _at: u64) -> Option<(Arc<Direct>, u64)> {
        None
    }

    /// Bytes before `at` that are read with it.
    fn before(&self, _at: u64) -> u64 {
        0
    }

    /// Bytes that are read to have `length` of them: whole blocks, of storage.
    fn whole(&self, length: u64) -> u64 {
        length
    }
}

/// Where they go to.
pub(super) trait Destination {
    /// Lends the room for these bytes, if that is memory.
    fn lend_mut(&mut self, _bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        None
    }

    /// Whether it is this end that copies out of such memory.
    fn takes(&self, memory: &ReadLoan) -> bool;

    /// Takes the bytes from `at` on.
    fn take(&mut self, at: u64, memory: ReadLoan, streams: &mut Streams<'_>) -> Result<()>;

    /// Begins to [`take`](Self::take) bytes, if a device can do that alone; else they are taken when this returns.
    fn begin_take(
        &mut self,
        at: u64,
        memory: ReadLoan,
        streams: &mut Streams<'_>,
    ) -> Result<Option<Transfer>> {
        self.take(at, memory, streams).map(|()| None)
    }

    /// Whether it can begin so, and is reached in the same way wherever bytes lie in it.
    fn is_on_device(&self) -> bool {
        false
    }

    /// The ways between a device and the file that it is, if it is one, and where there the bytes from `at` on are to be.
    fn direct(&self, _at: u64) -> Option<(Arc<Direct>, u64)> {
        None
    }

    /// Bytes that are written to have `length` of them there: whole blocks, of storage.
    fn whole(&self, length: u64) -> u64 {
        length
    }
}

/// A piece of a version on the medium where it lies, or is to lie.
#[derive(Clone, Copy)]
pub(crate) struct Lying<'a> {
    pub(super) medium: &'a Medium,
    pub(super) piece: &'a Piece,
}

impl<'a> Lying<'a> {
    pub(super) fn on(tiers: &'a [Level], piece: &'a Piece) -> Self {
        let medium = medium(tiers, piece);
        Self { medium, piece }
    }

    /// All bytes of the version that lie there.
    pub(super) fn all(&self) -> Range<u64> {
        self.piece.start..self.piece.start + self.piece.place.size
    }

    /// Where on the medium bytes of the version are.
    pub(super) fn at(&self, bytes: Range<u64>) -> Range<u64> {
        let (start, offset) = (self.piece.start, self.piece.place.offset);
        bytes.start - start + offset..bytes.end - start + offset
    }

    fn from(&self, at: u64) -> u64 {
        self.at(at..at).start
    }

    /// Lends so many bytes of memory from `at` on.
    fn lent(&self, at: u64, length: usize) -> Result<ReadLoan> {
        self.medium.lend(self.at(at..at + length as u64))
    }

    fn lent_mut(&self, at: u64, length: usize) -> Result<WriteLoan> {
        self.medium.lend_mut(self.at(at..at + length as u64))
    }
}

impl Origin for Lying<'_> {
    fn lend(&self, bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        let at = self.at(bytes);
        self.medium.is_memory().then(|| self.medium.lend(at))
    }

    fn fills(&self, memory: &WriteLoan) -> bool {
        self.medium.is_memory() || memory.host_accessible()
    }

    fn fill(&self, at: u64, mut memory: WriteLoan, streams: &mut Streams<'_>) -> Result<()> {
        let from = self.from(at);
        match self.medium {
            Medium::Storage(storage, _) => Ok(storage.read_at(from, memory.bytes_mut()?)?),
            // It knows the fastest way out of it.
            Medium::Host(arena) => {
                Ok(arena.copy_out(streams.get()?, to_usize(from..from).start, memory)?)
            }
            Medium::Device(_) | Medium::Peers(_) => {
                let source = self.lent(at, memory.len())?;
                Ok(streams.get()?.copy_all([(source, memory)])?)
            }
            Medium::DurableTier(_) => Err(whole_only()),
        }
    }

    fn begin_fill(
        &self,
        at: u64,
        memory: WriteLoan,
        streams: &mut Streams<'_>,
    ) -> Result<Option<Transfer>> {
        if !Origin::is_on_device(self) {
            return self.fill(at, memory, streams).map(|()| None);
        }
        let source = self.lent(at, memory.len())?;
        Ok(Some(streams.get()?.copy(source, memory)))
    }

    fn is_on_device(&self) -> bool {
        matches!(self.medium, Medium::Device(_) | Medium::Peers(_))
    }

    fn direct(&self, at: u64) -> Option<(Arc<Direct>, u64)> {
        let direct = self.medium.direct()?;
        Some((Arc::clone(direct), self.from(at)))
    }

    fn before(&self, at: u64) -> u64 {
        let storage = self.medium.storage();
        storage.map_or(0, |storage| {
            (at - self.piece.start) % storage.alignment() as u64
        })
    }

    fn whole(&self, length: u64) -> u64 {
        let storage = self.medium.storage();
        storage.map_or(length, |storage| padded(&**storage, length))
    }
}

impl Destination for Lying<'_> {
    fn lend_mut(&mut self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        let at = self.at(bytes);
        self.medium.is_memory().then(|| self.medium.lend_mut(at))
    }

    fn takes(&self, memory: &ReadLoan) -> bool {
        match self.medium {
            Medium::Host(_) => true,
            // What the host holds, it copies.
            Medium::Device(_) | Medium::Peers(_) => memory.place() != Place::Host,
            Medium::Storage(..) | Medium::DurableTier(_) => memory.host_accessible(),
        }
    }

    fn take(&mut self, at: u64, memory: ReadLoan, streams: &mut Streams<'_>) -> Result<()> {
        let to = self.from(at);
        match self.medium {
            Medium::Storage(storage, _) => Ok(storage.write_at(to, memory.bytes()?)?),
            // It knows the fastest way into it.
            Medium::Host(arena) => {
                Ok(arena.copy_in(streams.get()?, memory, to_usize(to..to).start)?)
            }
            Medium::Device(_) | Medium::Peers(_) => {
                let target = self.lent_mut(at, memory.len())?;
                Ok(streams.get()?.copy_all([(memory, target)])?)
            }
            Medium::DurableTier(_) => Err(whole_only()),
        }
    }

    fn begin_take(
        &mut self,
        at: u64,
        memory: ReadLoan,
        streams: &mut Streams<'_>,
    ) -> Result<Option<Transfer>> {
        if !Origin::is_on_device(self) {
            return self.take(at, memory, streams).map(|()| None);
        }
        let target = self.lent_mut(at, memory.len())?;
        Ok(Some(streams.get()?.copy(memory, target)))
    }

    fn is_on_device(&self) -> bool {
        Origin::is_on_device(self)
    }

    fn direct(&self, at: u64) -> Option<(Arc<Direct>, u64)> {
        Origin::direct(self, at)
    }

    fn whole(&self, length: u64) -> u64 {
        Origin::whole(self, length)
    }
}

impl Origin for Source<'_, '_> {
    fn fills(&self, _: &WriteLoan) -> bool {
        true
    }

    fn fill(&self, at: u64, memory: WriteLoan, streams: &mut Streams<'_>) -> Result<()> {
        self.copy_to([(at, memory)], streams.get()?)
    }
}

impl Destination for Sink<'_, '_> {
    fn lend_mut(&mut self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        self.lend(bytes)
    }

    fn takes(&self, _: &ReadLoan) -> bool {
        true
    }

    fn take(&mut self, at: u64, memory: ReadLoan, streams: &mut Streams<'_>) -> Result<()> {
        self.copy_from([(at, memory)], streams.get()?)
    }
}

/// Bytes of the engine's own: those of a version from `start` on.
pub(super) struct Held<B> {
    pub(super) start: u64,
    pub(super) bytes: B,
}

impl<B> Held<B> {
    fn range(&self, at: u64, length: usize) -> Range<usize> {
        let from = (at - self.start) as usize;
        from..from + length
    }
}

impl Origin for Held<&[u8]> {
    fn fills(&self, memory: &WriteLoan) -> bool {
        memory.host_accessible()
    }

    fn fill(&self, at: u64, mut memory: WriteLoan, _: &mut Streams<'_>) -> Result<()> {
        let into = memory.bytes_mut()?;
        into.copy_from_slice(&self.bytes[self.range(at, into.len())]);
        Ok(())
    }
}

impl Destination for Held<&mut [u8]> {
    fn takes(&self, memory: &ReadLoan) -> bool {
        memory.host_accessible()
    }

    fn take(&mut self, at: u64, memory: ReadLoan, _: &mut Streams<'_>) -> Result<()> {
        let from = memory.bytes()?;
        let to = self.range(at, from.len());
        self.bytes[to].copy_from_slice(from);
        Ok(())
    }
}

impl Held<&Memory> {
    fn bytes(&self, bytes: Range<u64>) -> Range<usize> {
        to_usize(bytes.start - self.start..bytes.end - self.start)
    }
}

impl Origin for Held<&Memory> {
    fn lend(&self, bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        Some(Ok(self.bytes.lend(self.bytes(bytes)).ok()?))
    }

    fn fills(&self, _: &WriteLoan) -> bool {
        true
    }

    fn fill(&self, at: u64, memory: WriteLoan, streams: &mut Streams<'_>) -> Result<()> {
        let bytes = self.bytes(at..at + memory.len() as u64);
        Ok(streams
            .get()?
            .copy_all([(self.bytes.lend(bytes)?, memory)])?)
    }
}

impl Destination for Held<&Memory> {
    fn lend_mut(&mut self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        Some(Ok(self.bytes.lend_mut(self.bytes(bytes)).ok()?))
    }

    fn takes(&self, memory: &ReadLoan) -> bool {
        memory.place() != Place::Host
    }

    fn take(&mut self, at: u64, memory: ReadLoan, streams: &mut Streams<'_>) -> Result<()> {
        let bytes = self.bytes(at..at + memory.len() as u64);
        Ok(streams
            .get()?
            .copy_all([(memory, self.bytes.lend_mut(bytes)?)])?)
    }
}

/// `length` rounded up to whole blocks. Places are reserved in whole blocks, so the bytes behind are the copy's own.
pub(super) fn padded(storage: &dyn Storage, length: u64) -> u64 {
    length.next_multiple_of(storage.alignment() as u64)
}

/// Copies that lie under their versions' numbers go as a whole, by `durable`.
fn whole_only() -> Error {
    Error::Internal {
        what: "a part of a copy that goes as a whole",
    }
}
