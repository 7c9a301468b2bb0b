//! Media, and spans of versions on them.

use crate::under_way::settle;
use crate::{Error, MediumKind, Result, ScratchMedium, ScratchPlace, Source, StreamChoice, Target};
use std::fmt::Debug;
use std::ops::Range;
use tierflow_device::{ReadLoan, Transfer, WriteLoan};
use tierflow_tier_alloc::{Gate, Pass, Transferring};

/// The bytes of a tier, addressed by offsets: an arena, memory of peers, scratch storage.
pub trait Medium: Debug + Send + Sync {
    /// Returns the kind, which tells how the bytes are reached.
    fn kind(&self) -> MediumKind;

    /// Returns the capacity in bytes; `None` if only a file system limits it.
    fn capacity(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes of a block.
    fn block(&self) -> u64 {
        1
    }

    /// Lends bytes for reading; `None` if the medium is not memory.
    fn lend(&self, _bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        None
    }

    /// Lends bytes for writing; `None` if the medium is not memory. Waits until the bytes are usable.
    fn lend_mut(&self, _bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        None
    }

    /// Starts filling `into` with the bytes from `offset` on. Returns the transfer if a device continues alone, `None` if `into` is
    /// full. By default, the device copies lent memory; a medium that lends none implements this.
    ///
    /// # Errors
    /// The error of the medium; [`Error::NoMemory`] by default if it lends no memory.
    fn begin_read(
        &self,
        offset: u64,
        into: WriteLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        let from = self.lend(offset..offset + into.len() as u64);
        let from = from.ok_or(Error::NoMemory)??;
        Ok(Some(stream.get()?.copy(from, into)))
    }

    /// Starts writing bytes at `offset`. Returns the transfer if a device continues alone, `None` if the bytes are written.
    ///
    /// # Errors
    /// The error of the medium; [`Error::NoMemory`] by default if it lends no memory.
    fn begin_write(
        &self,
        offset: u64,
        from: ReadLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        let into = self.lend_mut(offset..offset + from.len() as u64);
        let into = into.ok_or(Error::NoMemory)??;
        Ok(Some(stream.get()?.copy(from, into)))
    }

    /// Returns the scratch storage if the medium is one.
    fn scratch(&self) -> Option<&ScratchMedium> {
        None
    }

    /// Returns the gate that holds back background work of the medium during copies.
    fn gate(&self) -> Option<&Gate> {
        None
    }

    /// Notifies the medium that a flush into these bytes is under way, until the guard is dropped.
    fn flushed_into(&self, _bytes: Range<u64>) -> Option<Transferring<'_>> {
        None
    }

    /// Notifies the medium that a prefetch out of it is under way, until the guard is dropped.
    fn fetched_from(&self) -> Option<Pass<'_>> {
        self.gate().map(Gate::enter_transfer)
    }
}

/// Bytes of a version on a medium.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The medium.
    pub medium: &'a dyn Medium,
    /// Offset of the first byte in the version.
    pub start: u64,
    /// Offset of the first byte on the medium.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Span<'_> {
    /// Returns all bytes of the span, as offsets in the version.
    #[must_use]
    pub fn all(&self) -> Range<u64> {
        self.start..self.start + self.bytes
    }

    /// Returns the offset on the medium of byte `at` of the version.
    #[must_use]
    pub fn offset_of(&self, at: u64) -> u64 {
        at - self.start + self.offset
    }

    fn on_medium(&self, bytes: Range<u64>) -> Range<u64> {
        self.offset_of(bytes.start)..self.offset_of(bytes.end)
    }
}

impl Source for Span<'_> {
    fn kind(&self) -> MediumKind {
        self.medium.kind()
    }

    fn block(&self) -> u64 {
        self.medium.block()
    }

    fn before(&self, at: u64) -> u64 {
        (at - self.start) % self.medium.block()
    }

    fn lend(&self, bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        self.medium.lend(self.on_medium(bytes))
    }

    fn read(&self, at: u64, into: WriteLoan, stream: &mut StreamChoice<'_>) -> Result<()> {
        settle(self.begin_read(at, into, stream)?)
    }

    fn begin_read(
        &self,
        at: u64,
        into: WriteLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        self.medium.begin_read(self.offset_of(at), into, stream)
    }

    fn scratch(&self, at: u64) -> Option<ScratchPlace<'_>> {
        Some(ScratchPlace {
            medium: self.medium.scratch()?,
            offset: self.offset_of(at),
        })
    }
}

impl Target for Span<'_> {
    fn kind(&self) -> MediumKind {
        self.medium.kind()
    }

    fn block(&self) -> u64 {
        self.medium.block()
    }

    fn lend_mut(&mut self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        self.medium.lend_mut(self.on_medium(bytes))
    }

    fn write(&mut self, at: u64, from: ReadLoan, stream: &mut StreamChoice<'_>) -> Result<()> {
        settle(self.begin_write(at, from, stream)?)
    }

    fn begin_write(
        &mut self,
        at: u64,
        from: ReadLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        self.medium.begin_write(self.offset_of(at), from, stream)
    }

    fn scratch(&self, at: u64) -> Option<ScratchPlace<'_>> {
        Source::scratch(self, at)
    }
}
