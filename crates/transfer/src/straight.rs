//! Copies between device memory and a file by the device's library for files, without host memory, if that is faster.
//!
//! If such a copy fails, it is repeated through pinned buffers. If that works, the library is at fault and is not used any more; if
//! it fails, too, the storage is at fault.

mod choice;
#[cfg(test)]
mod tests;

use crate::buffers::BUFFER_BYTES;
use crate::context::Stop;
use crate::copy::{Copying, Result, WITH_STORAGE};
use crate::media::whole_blocks;
use crate::{CopyContext, ScratchPlace, TransferError};
use choice::{CopyMethod, RateChoice};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tierflow_device::{Place, ReadLoan, WriteLoan};
use tierflow_store::Storage;
use tierflow_sync::Mutex;

/// A file that can be copied to and from device memory directly, by offsets in both.
pub trait DirectTarget: Debug + Send + Sync {
    /// Fills device memory with the bytes at `offset`.
    ///
    /// # Errors
    /// [`StraightError::Memory`] if the memory is not the device's own, [`StraightError::Failed`] if the library failed.
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> std::result::Result<(), StraightError>;

    /// Writes device memory to `offset`.
    ///
    /// # Errors
    /// [`StraightError::Memory`] if the memory is not the device's own, [`StraightError::Failed`] if the library failed.
    fn write(&self, offset: u64, memory: &ReadLoan) -> std::result::Result<(), StraightError>;
}

/// The reason why the library did not copy a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StraightError {
    /// The memory is not the device's own, so the part goes through the buffers.
    Memory,
    /// The library failed for this reason.
    Failed(String),
}

/// A function that opens the library and the file. The error is the reason why the library cannot use the file.
pub type Opener = Box<dyn FnOnce() -> std::result::Result<OpenFile, String> + Send>;

/// A file, the library that copies to and from it, and the measurements of the copies.
pub struct Straight {
    /// The file. `measured` opens it before the first copy that could be direct, `always` sets it at once.
    file: OnceLock<Option<OpenFile>>,
    opener: Mutex<Option<Opener>>,
    is_measured: bool,
    /// The reason why all copies go through the buffers from now on; `None` while direct copies are possible.
    closed: Mutex<Option<String>>,
    down: DirectionStats,
    up: DirectionStats,
    failed: AtomicU64,
}

impl Debug for Straight {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = formatter.debug_struct("Straight");
        fields.field("file", &self.file.get());
        fields
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

/// A file that the library has opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The file, as the library sees it.
    pub target: Box<dyn DirectTarget>,
    /// The storage above the file, which is told of writes past it.
    pub storage: Arc<dyn Storage>,
    /// The library's name for its path to the file.
    pub mode: &'static str,
}

/// Bytes that were copied between a device and a file, by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WayBytes {
    /// Bytes copied through pinned buffers.
    pub buffered: u64,
    /// Bytes copied by the library.
    pub direct: u64,
}

/// The state of a [`Straight`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StraightStatistics {
    /// The library's name for its path to the file; `None` if it was not opened.
    pub mode: Option<&'static str>,
    /// The reason why all copies go through the buffers, if they do.
    pub closed: Option<String>,
    /// Bytes that were copied to the file.
    pub down: WayBytes,
    /// Bytes that were copied from the file.
    pub up: WayBytes,
    /// Number of copies in which the library failed.
    pub failed: u64,
}

/// The copies in one direction.
#[derive(Debug, Default)]
struct DirectionStats {
    choice: Mutex<RateChoice>,
    buffered: AtomicU64,
    direct: AtomicU64,
}

impl DirectionStats {
    fn bytes(&self) -> WayBytes {
        WayBytes {
            buffered: self.buffered.load(Ordering::Relaxed),
            direct: self.direct.load(Ordering::Relaxed),
        }
    }

    fn count(&self, method: CopyMethod, bytes: u64, time: Option<Duration>) {
        let counter = match method {
            CopyMethod::Buffered => &self.buffered,
            CopyMethod::Direct => &self.direct,
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
        // A smaller copy spends most of its time on other things than its bytes.
        if let Some(time) = time.filter(|_| bytes >= BUFFER_BYTES) {
            self.choice.lock().took(method, bytes, time);
        }
    }
}

impl Straight {
    /// Copies large parts on both paths in turn, then on the faster one, and on the slower one now and then. `opener` runs before
    /// the first copy that could be direct, since opening a library may take tenths of a second. If it fails, all copies go through
    /// the buffers.
    #[must_use]
    pub fn measured(opener: Opener) -> Self {
        Self {
            file: OnceLock::new(),
            opener: Mutex::new(Some(opener)),
            is_measured: true,
            closed: Mutex::new(None),
            down: DirectionStats::default(),
            up: DirectionStats::default(),
            failed: AtomicU64::new(0),
        }
    }

    /// Copies all parts directly to and from `file`.
    #[must_use]
    pub fn always(file: OpenFile) -> Self {
        Self {
            file: OnceLock::from(Some(file)),
            opener: Mutex::default(),
            is_measured: false,
            closed: Mutex::new(None),
            down: DirectionStats::default(),
            up: DirectionStats::default(),
            failed: AtomicU64::new(0),
        }
    }

    /// Returns the paths that the copies have taken so far.
    #[must_use]
    pub fn statistics(&self) -> StraightStatistics {
        StraightStatistics {
            mode: self
                .file
                .get()
                .and_then(Option::as_ref)
                .map(|file| file.mode),
            closed: self.closed.lock().clone(),
            down: self.down.bytes(),
            up: self.up.bytes(),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Returns true until the library is closed.
    fn is_open(&self) -> bool {
        self.closed.lock().is_none()
    }

    /// Returns the file. The first call opens it. Returns `None` once the library is closed.
    fn file(&self) -> Option<&OpenFile> {
        let opened = self.file.get_or_init(|| {
            let opener = self.opener.lock().take()?;
            let closed = |why: String| *self.closed.lock() = Some(why);
            opener().map_err(closed).ok()
        });
        opened.as_ref().filter(|_| self.is_open())
    }

    /// Stops the use of the library, which failed at a copy that worked through pinned buffers.
    fn close(&self, why: &str) {
        tracing::warn!(
            why,
            "copies between device and file go through pinned buffers from now on"
        );
        self.closed.lock().get_or_insert_with(|| why.to_owned());
    }
}

/// The reason why a copy was not completed directly.
enum NotStraight {
    /// The memory is not the device's own.
    Memory,
    Stopped(TransferError),
    Failed(String),
}

/// A copy between a device and a file.
struct StraightCopy<'c, 'e> {
    copying: &'c mut Copying<'e>,
    bytes: Range<u64>,
    is_down: bool,
    /// Offset in the file of the first byte.
    offset: u64,
}

impl StraightCopy<'_, '_> {
    /// Returns true if the memory is a device's, and the bytes start at a block of the file.
    fn can_be_direct(&mut self) -> bool {
        let Range { start, end } = self.bytes;
        let Copying { from, to, .. } = self.copying;
        let place = match self.is_down {
            true => {
                let bytes = whole_blocks(to.block(), end - start);
                let lent = from.lend(start..start + bytes);
                lent.map(|lent| lent.map(|lent| lent.place()))
            }
            false => {
                let bytes = whole_blocks(from.block(), end - start);
                let lent = to.lend_mut(start..start + bytes);
                lent.map(|lent| lent.map(|lent| lent.place()))
            }
        };
        matches!(place, Some(Ok(Place::Device))) && from.before(start) == 0
    }

    /// Copies a part of the bytes from `at` on, as large as one call takes. Returns its length.
    fn part(&mut self, at: u64, file: &dyn DirectTarget) -> std::result::Result<u64, NotStraight> {
        let length = WITH_STORAGE.min(self.bytes.end - at);
        let offset = self.offset + (at - self.bytes.start);
        let Copying { from, to, .. } = self.copying;
        let copied = if self.is_down {
            match from.lend(at..at + whole_blocks(to.block(), length)) {
                Some(Ok(lent)) => file.write(offset, &lent),
                _ => Err(StraightError::Memory),
            }
        } else {
            match to.lend_mut(at..at + whole_blocks(from.block(), length)) {
                Some(Ok(mut lent)) => file.read(offset, &mut lent),
                _ => Err(StraightError::Memory),
            }
        };
        match copied {
            Ok(()) => Ok(length),
            Err(StraightError::Memory) => Err(NotStraight::Memory),
            Err(StraightError::Failed(why)) => Err(NotStraight::Failed(why)),
        }
    }

    fn go(&mut self, file: &dyn DirectTarget, stop: &Stop) -> std::result::Result<(), NotStraight> {
        let mut at = self.bytes.start;
        while at < self.bytes.end {
            stop.look().map_err(NotStraight::Stopped)?;
            at += self.part(at, file)?;
        }
        Ok(())
    }
}

impl CopyContext {
    /// Copies the first of these bytes between a device and a file, directly or through pinned buffers. Returns the number of
    /// bytes.
    pub(crate) fn copy_straight(
        &mut self,
        copying: &mut Copying<'_>,
        bytes: Range<u64>,
    ) -> Result<u64> {
        let Copying { from, to, .. } = copying;
        let place_of = |place: Option<ScratchPlace<'_>>| {
            let ScratchPlace { medium, offset } = place?;
            Some((Arc::clone(medium.straight()?), offset))
        };
        let places = (
            place_of(to.scratch(bytes.start)),
            place_of(from.scratch(bytes.start)),
        );
        let (is_down, straight, offset) = match places {
            (Some((straight, offset)), None) => (true, straight, offset),
            (None, Some((straight, offset))) => (false, straight, offset),
            _ => return self.copy_buffered(copying, bytes),
        };
        let side = match is_down {
            true => &straight.down,
            false => &straight.up,
        };
        let length = bytes.end - bytes.start;
        let mut copy = StraightCopy {
            copying,
            bytes: bytes.clone(),
            is_down,
            offset,
        };
        let is_long = !straight.is_measured || length >= BUFFER_BYTES;
        let can_be_direct = straight.is_open() && is_long && copy.can_be_direct();
        let file = can_be_direct.then(|| straight.file()).flatten();
        let method = match file {
            None => CopyMethod::Buffered,
            Some(_) if !straight.is_measured => CopyMethod::Direct,
            Some(_) => side.choice.lock().decide(length),
        };
        let begun = Instant::now();
        let mut failure = None;
        if let (Some(file), CopyMethod::Direct) = (file, method) {
            if is_down {
                let written = whole_blocks(copy.copying.to.block(), length);
                file.storage.written_past(offset, written);
            }
            match copy.go(&*file.target, &self.stop()) {
                Ok(()) => {
                    side.count(method, length, Some(begun.elapsed()));
                    return Ok(length);
                }
                Err(NotStraight::Stopped(stopped)) => return Err(stopped),
                Err(NotStraight::Memory) => {}
                Err(NotStraight::Failed(why)) => {
                    straight.failed.fetch_add(1, Ordering::Relaxed);
                    failure = Some(why);
                }
            }
        }
        let copied = self.copy_buffered(copying, bytes)?;
        let is_comparable = file.is_some() && method == CopyMethod::Buffered;
        let time = is_comparable.then(|| begun.elapsed());
        side.count(CopyMethod::Buffered, copied, time);
        if let Some(why) = failure {
            straight.close(&why);
        }
        Ok(copied)
    }
}
