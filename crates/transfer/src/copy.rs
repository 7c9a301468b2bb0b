//! The copy of a range, part by part.

use crate::end::call;
use crate::media::{HostBytes, whole_blocks};
use crate::record::ErrorSlot;
use crate::requests::Workers;
use crate::route::{MediumKind, Route, route};
use crate::under_way::UnderWay;
use crate::{CopyContext, Error, FailedEnd, Source, Target, TransferError};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_device::Stream;
use tierflow_store::guarded;

/// Bytes of one part between memories. A device copies two parts at a time, and a copy checks its stop flag between parts.
pub const PART_BYTES: u64 = 64 << 20;

/// Bytes of one part between memory and storage.
pub(crate) const WITH_STORAGE: u64 = 32 << 20;

pub(crate) type Result<T> = std::result::Result<T, TransferError>;

/// A copy of one range.
pub(crate) struct Copying<'c> {
    pub(crate) from: &'c dyn Source,
    pub(crate) to: &'c mut dyn Target,
    /// The caller's stream, if the caller passed one.
    pub(crate) callers: Option<&'c Stream>,
    /// The workers that help with requests to storage.
    pub(crate) workers: Option<Workers<'c>>,
}

impl CopyContext {
    /// Copies bytes of a version from one end to the other, until they are there or the context is stopped. Nothing uses either end
    /// when this returns, even after an error. A record is copied as a whole; then `bytes` must be all of its bytes.
    ///
    /// # Errors
    /// [`TransferError::Cancelled`] if the context was stopped, [`TransferError::Failed`] with the end that failed.
    pub fn copy(
        &mut self,
        from: &dyn Source,
        to: &mut dyn Target,
        bytes: Range<u64>,
        callers: Option<&Stream>,
    ) -> Result<()> {
        let route = route(from.kind(), to.kind());
        if from.record().is_some() || to.record().is_some() {
            return self.copy_record(from, to, bytes, route == Route::InPlace);
        }
        let mut copying = Copying {
            from,
            to,
            callers,
            workers: None,
        };
        let mut under_way = UnderWay::default();
        let mut at = bytes.start;
        while at < bytes.end {
            self.stop().look()?;
            let rest = at..bytes.end;
            at += match route {
                Route::Stream | Route::Arena | Route::Processor | Route::InPlace => {
                    under_way.make_room()?;
                    match self.begin_lent(&mut copying, rest.clone(), &mut under_way)? {
                        0 => self.copy_buffered(&mut copying, rest)?,
                        copied => copied,
                    }
                }
                Route::Straight => self.copy_straight(&mut copying, rest)?,
                Route::Buffers => self.copy_buffered(&mut copying, rest)?,
                // Both ends are directories or object stores, and neither end names its record.
                Route::Verbatim => {
                    let bytes = bytes.end - bytes.start;
                    return Err(TransferError::source(Error::PartOfRecord { at, bytes }));
                }
            };
        }
        under_way.finish()
    }

    /// Copies bytes of a version between a caller and storage, through buffers. The workers of the link serve some of the requests,
    /// as the caller waits.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub fn copy_shared(
        &mut self,
        from: &dyn Source,
        to: &mut dyn Target,
        bytes: Range<u64>,
        callers: Option<&Stream>,
        workers: Workers<'_>,
    ) -> Result<()> {
        let mut copying = Copying {
            from,
            to,
            callers,
            workers: Some(workers),
        };
        self.copy_buffered(&mut copying, bytes).map(drop)
    }

    /// Starts copying the first of these bytes if one end lends its memory to the other. Returns the number of bytes; 0 if neither
    /// end can.
    fn begin_lent(
        &mut self,
        copying: &mut Copying<'_>,
        bytes: Range<u64>,
        under_way: &mut UnderWay,
    ) -> Result<u64> {
        use FailedEnd::{Source, Target};
        let Copying {
            from, to, callers, ..
        } = copying;
        if from.before(bytes.start) > 0 {
            return Ok(0);
        }
        let has_blocks = from.block().max(to.block()) > 1;
        let most = match has_blocks {
            true => WITH_STORAGE,
            false => PART_BYTES,
        };
        let length = most.min(bytes.end - bytes.start);
        let (at, mut stream) = (bytes.start, self.streams(*callers));
        // A host arena has the fastest copies into and out of its memory.
        let is_arenas = from.kind() == MediumKind::Pinned && to.kind() != MediumKind::Pinned;
        if is_arenas
            && to.block() == 1
            && let Some(lent) = call(Target, || to.lend_mut(at..at + length).transpose())?
        {
            let begun = call(Source, || from.begin_read(at, lent, &mut stream));
            under_way.add(Source, begun?);
            return Ok(length);
        }
        let blocks = at..at + whole_blocks(to.block(), length);
        if let Some(lent) = call(Source, || from.lend(blocks).transpose())?
            && (to.reaches_device() || lent.host_accessible())
        {
            let begun = call(Target, || to.begin_write(at, lent, &mut stream));
            under_way.add(Target, begun?);
            return Ok(length);
        }
        let blocks = at..at + whole_blocks(from.block(), length);
        if let Some(lent) = call(Target, || to.lend_mut(blocks).transpose())?
            && (from.reaches_device() || lent.host_accessible())
        {
            let begun = call(Source, || from.begin_read(at, lent, &mut stream));
            under_way.add(Source, begun?);
            return Ok(length);
        }
        Ok(0)
    }

    /// Fills `into` with the bytes from `at` on.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub fn fill(
        &mut self,
        from: &dyn Source,
        at: u64,
        into: &mut [u8],
        callers: Option<&Stream>,
    ) -> Result<()> {
        let range = at..at + into.len() as u64;
        let mut to = HostBytes {
            start: at,
            bytes: into,
        };
        self.copy(from, &mut to, range, callers)
    }

    /// Copies `bytes`, which are those of a version from `at` on, to an end.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub fn give(
        &mut self,
        to: &mut dyn Target,
        at: u64,
        bytes: &[u8],
        callers: Option<&Stream>,
    ) -> Result<()> {
        let range = at..at + bytes.len() as u64;
        let from = HostBytes { start: at, bytes };
        self.copy(&from, to, range, callers)
    }

    /// Copies a record as a whole.
    fn copy_record(
        &mut self,
        from: &dyn Source,
        to: &mut dyn Target,
        bytes: Range<u64>,
        in_place: bool,
    ) -> Result<()> {
        let stop = self.stop();
        let length = bytes.end - bytes.start;
        match (from.record(), to.record()) {
            (Some(from), Some(to)) => {
                let piece = call(FailedEnd::Source, || Ok(from.piece()?.of_length(length)?))?;
                let read_failed = piece.read_failed();
                let copied = guarded("copying a version", || to.copy(piece, &stop));
                copied.map_err(|error| ErrorSlot::of_copy(error, read_failed.load(Relaxed)))
            }
            (None, Some(record)) => self.write_record(record, length, |context, at, into| {
                context.fill(from, at, into, None)
            }),
            (Some(record), _) => {
                if in_place
                    && let Some(mut lent) =
                        call(FailedEnd::Target, || to.lend_mut(bytes).transpose())?
                    && let Ok(into) = lent.bytes_mut()
                {
                    return call(FailedEnd::Source, || Ok(record.read_whole(into, &stop)?));
                }
                self.read_record(record, length, &|_| true, |context, at, bytes| {
                    context.give(to, at, bytes, None)
                })
            }
            (None, None) => Ok(()),
        }
    }
}
