//! The way between memory of a device and a file by cuFile, past the host's memory, where that is the faster one.
//!
//! What fails there is copied again through pinned buffers. If they can, cuFile is at fault, and not used any more; if they cannot,
//! the storage is.

mod choice;
mod crossing;
#[cfg(feature = "cuda")]
mod cufile;

use super::staging::STAGED;
use super::sync::Mutex;
use crate::{BuildError, DirectIo, DirectMetrics, WayBytes};
use choice::{Choice, Way};
#[cfg(feature = "cuda")]
use cufile::open;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierflow_device::{Device, ReadLoan, WriteLoan};
use tierflow_store::Storage;

/// A file that copies to and from device memory, by offsets in both.
trait DirectTarget: Debug + Send + Sync {
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> Result<(), StraightError>;
    fn write(&self, offset: u64, memory: &ReadLoan) -> Result<(), StraightError>;
}

/// The reason why a copy did not go straight.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
enum StraightError {
    /// The memory is not the device's own.
    Memory,
    /// The library's own words.
    Failed(String),
}

/// The ways between a device and a storage.
#[derive(Debug)]
pub(crate) struct Direct {
    file: Option<Box<dyn DirectTarget>>,
    /// Is told what is written past it.
    storage: Option<Arc<dyn Storage>>,
    /// The library's way to the file.
    mode: Option<&'static str>,
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

impl Direct {
    /// Looks for a direct way, if one is wanted.
    pub(crate) fn find(
        device: &Device,
        storage: &Arc<dyn Storage>,
        how: DirectIo,
    ) -> crate::Result<Option<Self>> {
        let is_measured = match how {
            DirectIo::Measured => true,
            DirectIo::Always => false,
            DirectIo::Never => return Ok(None),
        };
        match open(device, &**storage, is_measured) {
            Ok((file, mode)) => Ok(Some(Self {
                file: Some(file),
                storage: Some(Arc::clone(storage)),
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
            storage: None,
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
            mode: self.mode,
            why_staged: self.closed.lock().clone(),
            down: bytes(&self.down),
            up: bytes(&self.up),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// These bytes are about to be written past the storage.
    fn written_past(&self, offset: u64, bytes: u64) {
        if let Some(storage) = &self.storage {
            storage.written_past(offset, bytes);
        }
    }

    fn is_open(&self) -> bool {
        self.closed.lock().is_none()
    }

    /// cuFile failed where pinned buffers did not.
    fn close(&self, error: &str) {
        tracing::warn!(%error, "copies between device and file go through pinned buffers from now on");
        self.closed.lock().get_or_insert_with(|| error.to_owned());
    }
}

/// Says that the build has no library to open.
#[cfg(not(feature = "cuda"))]
fn open(
    _: &Device,
    _: &dyn Storage,
    _: bool,
) -> Result<(Box<dyn DirectTarget>, &'static str), String> {
    Err("this build is without CUDA: enable the feature `cuda` of tierflow-engine".to_owned())
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

#[cfg(test)]
mod tests;
