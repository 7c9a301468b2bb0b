//! Records: versions in durable tiers, read and written as a whole, with their checksums.

use crate::context::Stop;
use crate::{CopyContext, Error, TransferError};
use std::ops::Range;
use tierflow_store::{Error as StoreError, Piece, Pull, Result as StoreResult, guarded};
use tierflow_sync::{Mutex, rank};

/// A record to read.
pub trait SourceRecord: Sync {
    /// Returns the stored piece.
    ///
    /// # Errors
    /// The errors of the tier.
    fn piece(&self) -> StoreResult<Piece>;

    /// Fills `into` with all bytes, and verifies every checksum.
    ///
    /// # Errors
    /// The errors of the tier; [`StoreError::Cancelled`] once `stop` is set; [`StoreError::Damaged`] if the record has another
    /// length than `into`.
    fn read_whole(&self, into: &mut [u8], stop: &Stop) -> StoreResult<()> {
        let stop = stop.clone();
        let piece = self.piece()?.of_length(into.len() as u64)?;
        let piece = piece.unless(move || stop.is_set());
        let mut rest = into;
        let mut regions = Vec::new();
        for region in piece.regions() {
            let length = region.length as usize;
            let (first, behind) = std::mem::take(&mut rest).split_at_mut(length);
            regions.push((region.name.as_str(), first));
            rest = behind;
        }
        piece.restore(&mut regions)
    }

    /// Fills parts of the record, which has `bytes` bytes, each part from its own offset on. Verifies the blocks around them.
    ///
    /// # Errors
    /// As [`read_whole`](Self::read_whole); [`StoreError::Damaged`] if the record has another length than `bytes`.
    fn read_parts(
        &self,
        bytes: u64,
        parts: &mut [(u64, &mut [u8])],
        stop: &Stop,
    ) -> StoreResult<()> {
        let stop = stop.clone();
        let piece = self.piece()?.of_length(bytes)?;
        let piece = piece.unless(move || stop.is_set());
        piece.restore_range_parts(parts)
    }
}

/// A record to write.
pub trait TargetRecord: Sync {
    /// Writes `bytes` bytes, which `pull` fetches during the write, and publishes the record.
    ///
    /// # Errors
    /// The errors of the tier and of `pull`; [`StoreError::Cancelled`] once `stop` is set.
    fn save(&self, bytes: u64, pull: &Pull<'_>, stop: &Stop) -> StoreResult<()>;

    /// Writes the piece of another tier unchanged, with its checksums, and publishes the record.
    ///
    /// # Errors
    /// The errors of both tiers; [`StoreError::Cancelled`] once `stop` is set.
    fn copy(&self, piece: Piece, stop: &Stop) -> StoreResult<()>;
}

/// Keeps the error of a copy while the store returns [`StoreError::Cancelled`] in its place.
#[derive(Default)]
pub(crate) struct ErrorSlot(Mutex<Option<TransferError>>);

impl ErrorSlot {
    fn put(&self, result: Result<(), TransferError>) -> StoreResult<()> {
        result.map_err(|error| {
            *self.0.lock() = Some(error);
            StoreError::Cancelled
        })
    }

    /// Returns the error of the copy if there is one, else that of the store.
    fn failure(self, error: StoreError, of_store: fn(Error) -> TransferError) -> TransferError {
        match self.0.into_inner() {
            Some(failed) => failed,
            None => of_store(error.into()),
        }
    }

    /// Assigns the error of a copy between records to one of its ends. `read_failed` is true if the piece of the source could not
    /// be read.
    pub(crate) fn of_copy(error: StoreError, read_failed: bool) -> TransferError {
        match error {
            StoreError::Damaged { .. } | StoreError::Read { .. } | StoreError::NoVersion { .. } => {
                TransferError::source(error.into())
            }
            error if read_failed => TransferError::source(error.into()),
            error => TransferError::target(error.into()),
        }
    }
}

impl CopyContext {
    /// Writes a record. `fill` fetches its bytes from an offset on.
    ///
    /// # Errors
    /// [`TransferError::Cancelled`] if the context was stopped, [`TransferError::Failed`] if the record or `fill` failed.
    pub fn write_record(
        &mut self,
        record: &dyn TargetRecord,
        bytes: u64,
        fill: impl Fn(&mut Self, u64, &mut [u8]) -> Result<(), TransferError> + Sync,
    ) -> Result<(), TransferError> {
        let stop = self.stop();
        let (context, slot) = (Mutex::<_, { rank::COPY }>::new(self), ErrorSlot::default());
        let pull = |at: u64, into: &mut [u8]| {
            slot.put(stop.look())?;
            slot.put(fill(&mut context.lock(), at, into))
        };
        let saved = guarded("saving a version", || record.save(bytes, &pull, &stop));
        saved.map_err(|error| slot.failure(error, TransferError::target))
    }

    /// Passes those parts of a record of `bytes` bytes to `give` of which `wants` returns true, in any order. Verifies their
    /// checksums before.
    ///
    /// # Errors
    /// [`TransferError::Cancelled`] if the context was stopped, [`TransferError::Failed`] if the record or `give` failed. A record
    /// of another length is [`StoreError::Damaged`], and nothing is passed on.
    pub fn read_record(
        &mut self,
        record: &dyn SourceRecord,
        bytes: u64,
        wants: &(dyn Fn(Range<u64>) -> bool + Sync),
        mut give: impl FnMut(&mut Self, u64, &[u8]) -> Result<(), TransferError> + Send,
    ) -> Result<(), TransferError>
    where
        Self: Send,
    {
        let stop = self.stop();
        let slot = ErrorSlot::default();
        let mut push = |at: u64, bytes: &[u8]| slot.put(give(self, at, bytes));
        let piece = guarded("opening a version", || record.piece()?.of_length(bytes));
        let read = piece.and_then(|piece| {
            let piece = piece.unless(move || stop.is_set());
            piece.read_range_through(wants, &mut push)
        });
        read.map_err(|error| slot.failure(error, TransferError::source))
    }
}
