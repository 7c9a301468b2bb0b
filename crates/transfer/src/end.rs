//! The two ends of a copy. Offsets `at` are offsets in the version.

use crate::record::{SourceRecord, TargetRecord};
use crate::route::MediumKind;
use crate::{Error, FailedEnd, Result, ScratchPlace, StreamChoice, TransferError};
use std::ops::Range;
use tierflow_device::{ReadLoan, Transfer, WriteLoan};
use tierflow_store::guarded;

/// The end from which bytes come.
///
/// An end that lends no memory copies the bytes itself, into memory that the other end lends.
pub trait Source: Sync {
    /// Returns the kind of the medium.
    fn kind(&self) -> MediumKind;

    /// Returns true if this end can copy to memory that only a device reaches.
    fn reaches_device(&self) -> bool {
        self.kind().is_on_device() || self.kind() == MediumKind::Pinned
    }

    /// Returns the bytes of a block. Storage is read in whole blocks.
    fn block(&self) -> u64 {
        1
    }

    /// Returns the bytes between the start of a block and `at`, which are read together with the bytes from `at` on.
    fn before(&self, _at: u64) -> u64 {
        0
    }

    /// Lends the bytes in place; `None` if they are not contiguous memory. Fails if another loan conflicts.
    fn lend(&self, _bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        None
    }

    /// Fills `into` with the bytes from `at` on, and waits until they are there. A [record](Self::record) has no parts.
    ///
    /// # Errors
    /// The error of this end; [`Error::PartOfRecord`] for a record.
    fn read(&self, at: u64, into: WriteLoan, _stream: &mut StreamChoice<'_>) -> Result<()> {
        let bytes = into.len() as u64;
        Err(Error::PartOfRecord { at, bytes })
    }

    /// Starts filling `into`. Returns the transfer if a device continues alone, `None` if `into` is full.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn begin_read(
        &self,
        at: u64,
        into: WriteLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        self.read(at, into, stream).map(|()| None)
    }

    /// Returns the place of the byte `at` if this end is scratch storage.
    fn scratch(&self, _at: u64) -> Option<ScratchPlace<'_>> {
        None
    }

    /// Returns the record if this end is one. Records are copied as a whole.
    fn record(&self) -> Option<&dyn SourceRecord> {
        None
    }
}

/// The end to which bytes go.
pub trait Target: Send {
    /// Returns the kind of the medium.
    fn kind(&self) -> MediumKind;

    /// Returns true if this end can copy from memory that only a device reaches.
    fn reaches_device(&self) -> bool {
        self.kind().is_on_device() || self.kind() == MediumKind::Pinned
    }

    /// Returns the bytes of a block. Storage is written in whole blocks. A copy may overwrite the bytes behind its range, up to the
    /// end of the block.
    fn block(&self) -> u64 {
        1
    }

    /// Lends the memory for these bytes; `None` if it is not contiguous memory. Fails if another loan conflicts.
    fn lend_mut(&mut self, _bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        None
    }

    /// Writes the bytes from `at` on, and waits until they are written. A [record](Self::record) has no parts.
    ///
    /// # Errors
    /// The error of this end; [`Error::PartOfRecord`] for a record.
    fn write(&mut self, at: u64, from: ReadLoan, _stream: &mut StreamChoice<'_>) -> Result<()> {
        let bytes = from.len() as u64;
        Err(Error::PartOfRecord { at, bytes })
    }

    /// Starts writing. Returns the transfer if a device continues alone, `None` if the bytes are written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn begin_write(
        &mut self,
        at: u64,
        from: ReadLoan,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        self.write(at, from, stream).map(|()| None)
    }

    /// Returns the place of the byte `at` if this end is scratch storage.
    fn scratch(&self, _at: u64) -> Option<ScratchPlace<'_>> {
        None
    }

    /// Returns the record if this end is one.
    fn record(&self) -> Option<&dyn TargetRecord> {
        None
    }
}

/// Calls an end of a copy. An error or a panic of the end is its failure.
pub(crate) fn call<T>(
    end: FailedEnd,
    call: impl FnOnce() -> Result<T>,
) -> std::result::Result<T, TransferError> {
    let called = guarded("copying a version", || Ok(call()));
    let called = called.map_err(Error::from).flatten();
    called.map_err(|error| TransferError::of(end, error))
}
