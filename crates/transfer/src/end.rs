//! The two ends of a copy. Offsets are those in the version.

use crate::record::{SourceRecord, TargetRecord};
use crate::route::MediumKind;
use crate::{Error, Result, ScratchPlace, StreamChoice};
use std::ops::Range;
use tierflow_device::{ReadLoan, Transfer, WriteLoan};

/// The end from which bytes come.
///
/// An end that lends no memory copies by itself, into the memory that the other end lends.
pub trait Source: Sync {
    /// The kind of the medium.
    fn kind(&self) -> MediumKind;

    /// Returns true if the copies of this end reach memory that only a device reaches.
    fn reaches_device(&self) -> bool {
        self.kind().is_on_device() || self.kind() == MediumKind::Pinned
    }

    /// Bytes of a block: storage is read in whole blocks.
    fn block(&self) -> u64 {
        1
    }

    /// Returns the bytes between the beginning of a block and `at`, which are read with it.
    fn before(&self, _at: u64) -> u64 {
        0
    }

    /// Lends the bytes where they lie; `None` if they are not memory in one run. A loan that conflicts is refused.
    fn lend(&self, _bytes: Range<u64>) -> Option<Result<ReadLoan>> {
        None
    }

    /// Fills `into` with the bytes from `at` on, and waits. A [record](Self::record) has no parts.
    ///
    /// # Errors
    /// The failure of this end; [`Error::PartOfRecord`] of a record.
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

    /// Returns the place of the byte `at`, if this end is scratch storage.
    fn scratch(&self, _at: u64) -> Option<ScratchPlace<'_>> {
        None
    }

    /// Returns the record that this end is. Records are copied as a whole.
    fn record(&self) -> Option<&dyn SourceRecord> {
        None
    }
}

/// The end to which bytes go.
pub trait Target: Send {
    /// The kind of the medium.
    fn kind(&self) -> MediumKind;

    /// Returns true if the copies of this end reach memory that only a device reaches.
    fn reaches_device(&self) -> bool {
        self.kind().is_on_device() || self.kind() == MediumKind::Pinned
    }

    /// Bytes of a block: storage is written in whole blocks. The bytes behind a range belong to the copy, up to the end of its block.
    fn block(&self) -> u64 {
        1
    }

    /// Lends the memory for these bytes; `None` if it is not memory in one run. A loan that conflicts is refused.
    fn lend_mut(&mut self, _bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        None
    }

    /// Writes the bytes from `at` on, and waits. A [record](Self::record) has no parts.
    ///
    /// # Errors
    /// The failure of this end; [`Error::PartOfRecord`] of a record.
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

    /// Returns the place of the byte `at`, if this end is scratch storage.
    fn scratch(&self, _at: u64) -> Option<ScratchPlace<'_>> {
        None
    }

    /// Returns the record that this end is.
    fn record(&self) -> Option<&dyn TargetRecord> {
        None
    }
}
