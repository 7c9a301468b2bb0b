//! Copies between memory of a device and a file by cuFile, past the host's memory, where that is the faster way.
//!
//! What fails there is copied again through pinned buffers. If they can, cuFile is at fault, and not used any more; if they cannot,
//! the storage is.

mod choice;

use super::ends::{Destination, Origin};
use super::lane::{Failed, Lane, WITH_STORAGE, stop_if};
use super::staging::STAGED;
use super::sync::{AtomicBool, Mutex};
use crate::{BuildError, DirectIo, DirectMetrics, WayBytes};
use choice::{Choice, Way};
use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_device::cuda::{DirectError, DirectFile, DirectFiles, DirectMode};
use tierflow_device::{Device, Place, ReadLoan, Stream, WriteLoan};
use tierflow_store::Storage;

/// A file that a device's memory is copied to and from, by offsets in both.
trait Reached: Debug + Send + Sync {
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> Result<(), DirectError>;
    fn write(&self, offset: u64, memory: &ReadLoan) -> Result<(), DirectError>;
}

impl Reached for DirectFile {
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> Result<(), DirectError> {
        Self::read(self, offset, memory)
    }

    fn write(&self, offset: u64, memory: &ReadLoan) -> Result<(), DirectError> {
        Self::write(self, offset, memory)
    }
}

/// The ways between a device and a storage.
#[derive(Debug)]
pub(crate) struct Direct {
    file: Option<Box<dyn Reached>>,
    mode: Option<DirectMode>,
    is_measured: bool,
    /// Why all go through pinned buffers, from when on they do.
    closed: Mutex<Option<String>>,
    down: Counted,
    up: Counted,
    failed: AtomicU64,
}

/// One direction.
#[derive(Debug, Default)]
struct Counted {
    choice: Mutex<Choice>,
    staged: AtomicU64,
    direct: AtomicU64,
}

/// Why a copy did not go straight.
enum Not {
    /// The memory is not the device's own.
    Reached,
    Stopped(Failed),
    Failed(DirectError),
}

impl Direct {
    /// Looks for a direct way, if one is wanted.
    pub(crate) fn find(
        device: &Device,
        storage: &dyn Storage,
        how: DirectIo,
    ) -> crate::Result<Option<Self>> {
        let is_measured = match how {
            DirectIo::Measured => true,
            DirectIo::Always => false,
            DirectIo::Never => return Ok(None),
        };
        match open(device, storage, is_measured) {
            Ok((file, mode)) => Ok(Some(Self {
                file: Some(Box::new(file)),
                mode: Some(mode),
                is_measured,
                ..Self::closed(None)
            })),
            Err(why) if is_measured => Ok(Some(Self::closed(Some(why)))),
            Err(why) => Err(BuildError::DirectIo { why }.into()),
        }
    }

    fn closed(why: Option<String>) -> Self {
        Self {
            file: None,
            mode: None,
            is_measured: true,
            closed: Mutex::new(why),
            down: Counted::default(),
            up: Counted::default(),
            failed: AtomicU64::new(0),
        }
    }

    pub(crate) fn metrics(&self) -> DirectMetrics {
        let bytes = |side: &Counted| WayBytes {
            staged: side.staged.load(Ordering::Relaxed),
            direct: side.direct.load(Ordering::Relaxed),
        };
        DirectMetrics {
            mode: self.mode.map(|mode| mode.name()),
            why_staged: self.closed.lock().clone(),
            down: bytes(&self.down),
            up: bytes(&self.up),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    fn is_open(&self) -> bool {
        self.closed.lock().is_none()
    }

    /// cuFile failed where pinned buffers did not.
    fn close(&self, error: &DirectError) {
        tracing::warn!(%error, "copies between device and file go through pinned buffers from now on");
        self.closed.lock().get_or_insert_with(|| error.to_string());
    }
}

/// The file of a storage as cuFile sees it, and how bytes go there; or why not.
fn open(
    device: &Device,
    storage: &dyn Storage,
    is_measured: bool,
) -> Result<(DirectFile, DirectMode), String> {
    let files = DirectFiles::open(device).map_err(|error| error.to_string())?;
    if is_measured && files.mode() == DirectMode::Compatibility {
        return Err(
            "cuFile copies through host memory itself: this machine has neither nvidia-fs nor P2PDMA"
                .to_owned(),
        );
    }
    let file = storage.file().map_err(|error| error.to_string())?;
    let file = file.ok_or("the storage is not one plain file with direct I/O")?;
    let direct = files.file(file.as_fd());
    Ok((direct.map_err(|error| error.to_string())?, files.mode()))
}

impl Counted {
    fn count(&self, way: Way, bytes: u64, time: Option<Duration>) {
        let counter = match way {
            Way::Staged => &self.staged,
            Way::Direct => &self.direct,
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
        // Of smaller ones most of the time is not the bytes'.
        if let Some(time) = time.filter(|_| bytes >= STAGED) {
            self.choice.lock().took(way, bytes, time);
        }
    }
}

/// A copy between a device and a file.
struct Crossing<'c> {
    from: &'c dyn Origin,
    to: &'c mut dyn Destination,
    bytes: Range<u64>,
    is_down: bool,
    /// Where in the file the first of the bytes is.
    offset: u64,
}

impl Crossing<'_> {
    /// Whether it can go straight: its memory is a device's, and its bytes begin with a block of the file.
    fn can_be_direct(&mut self) -> bool {
        let Range { start, end } = self.bytes;
        let place = match self.is_down {
            true => {
                let lent = self.from.lend(start..start + self.to.whole(end - start));
                lent.map(|lent| lent.map(|lent| lent.place()))
            }
            false => {
                let lent = self
                    .to
                    .lend_mut(start..start + self.from.whole(end - start));
                lent.map(|lent| lent.map(|lent| lent.place()))
            }
        };
        matches!(place, Some(Ok(Place::Device))) && self.from.before(start) == 0
    }

    /// Copies the bytes from `at` on, as many as go at once. Returns how many.
    fn part(&mut self, at: u64, file: &dyn Reached) -> Result<u64, Not> {
        let length = WITH_STORAGE.min(self.bytes.end - at);
        let offset = self.offset + (at - self.bytes.start);
        let copied = if self.is_down {
            match self.from.lend(at..at + self.to.whole(length)) {
                Some(Ok(lent)) => file.write(offset, &lent),
                _ => Err(DirectError::Memory),
            }
        } else {
            match self.to.lend_mut(at..at + self.from.whole(length)) {
                Some(Ok(mut lent)) => file.read(offset, &mut lent),
                _ => Err(DirectError::Memory),
            }
        };
        copied.map_err(|error| match error {
            DirectError::Memory => Not::Reached,
            error => Not::Failed(error),
        })?;
        Ok(length)
    }

    fn go(&mut self, file: &dyn Reached, cancelled: Option<&AtomicBool>) -> Result<(), Not> {
        let mut at = self.bytes.start;
        while at < self.bytes.end {
            stop_if(cancelled).map_err(Not::Stopped)?;
            at += self.part(at, file)?;
        }
        Ok(())
    }
}

impl Lane {
    /// Copies the first of these bytes where no end reaches the memory of the other: straight between a device and a file, or
    /// through pinned buffers. Returns how many.
    pub(super) fn copy_across(
        &mut self,
        from: &dyn Origin,
        to: &mut dyn Destination,
        bytes: Range<u64>,
        (theirs, cancelled): (Option<&Stream>, Option<&AtomicBool>),
    ) -> Result<u64, Failed> {
        let (is_down, (direct, offset)) = match (to.direct(bytes.start), from.direct(bytes.start)) {
            (Some(there), None) => (true, there),
            (None, Some(there)) => (false, there),
            _ => return self.copy_staged(from, to, bytes, (theirs, cancelled)),
        };
        let side = if is_down { &direct.down } else { &direct.up };
        let length = bytes.end - bytes.start;
        let mut crossing = Crossing {
            from,
            to,
            bytes: bytes.clone(),
            is_down,
            offset,
        };
        let file = direct.file.as_deref().filter(|_| direct.is_open());
        let file = file.filter(|_| crossing.can_be_direct());
        let way = match file {
            None => Way::Staged,
            Some(_) if !direct.is_measured => Way::Direct,
            Some(_) if length < STAGED => Way::Staged,
            Some(_) => side.choice.lock().decide(length),
        };
        let begun = Instant::now();
        let mut failure = None;
        if let (Some(file), Way::Direct) = (file, way) {
            match crossing.go(file, cancelled) {
                Ok(()) => {
                    side.count(way, length, Some(begun.elapsed()));
                    return Ok(length);
                }
                Err(Not::Stopped(stopped)) => return Err(stopped),
                Err(Not::Reached) => {}
                Err(Not::Failed(error)) => {
                    direct.failed.fetch_add(1, Ordering::Relaxed);
                    failure = Some(error);
                }
            }
        }
        let copied = self.copy_staged(from, crossing.to, bytes, (theirs, cancelled))?;
        let is_comparable = file.is_some() && way == Way::Staged;
        side.count(Way::Staged, copied, is_comparable.then(|| begun.elapsed()));
        if let Some(error) = failure {
            direct.close(&error);
        }
        Ok(copied)
    }
}

#[cfg(test)]
mod tests;
