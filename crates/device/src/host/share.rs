//! Device memory that other processes map: memory files (memfd) of fixed length.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::backend::Exportable;
use crate::error::{Error, Result};

/// A memory file, sealed against changes of its length.
#[derive(Debug)]
pub(super) struct ExportedFile {
    file: OwnedFd,
    len: usize,
    /// The device's count of bytes in use.
    used: Arc<AtomicU64>,
}

impl ExportedFile {
    /// Makes a file of `len` bytes, which the caller has counted in `used`.
    pub(super) fn new(len: usize, used: &Arc<AtomicU64>) -> Result<Self> {
        let failed = |errno| Error::system("making memory to share (memfd)", errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(c"tierflow", flags).map_err(failed)?;
        rustix::fs::ftruncate(&file, len as u64).map_err(failed)?;
        // The seals keep other processes from shortening the file, which would kill those that map it.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(failed)?;
        Ok(Self {
            file,
            len,
            used: Arc::clone(used),
        })
    }
}

impl Drop for ExportedFile {
    fn drop(&mut self) {
        self.used.fetch_sub(self.len as u64, Relaxed);
    }
}

impl Exportable for ExportedFile {
    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Checks that `file` has at least `len` bytes and is sealed against shrinking.
pub(super) fn check(file: BorrowedFd<'_>, len: usize) -> Result<()> {
    let failed = |errno| Error::system("mapping memory of another process", errno);
    let seals = rustix::fs::fcntl_get_seals(file).map_err(failed)?;
    let found = rustix::fs::fstat(file).map_err(failed)?;
    let is_long = u64::try_from(found.st_size).is_ok_and(|found| found >= len as u64);
    if !seals.contains(SealFlags::SHRINK) || !is_long {
        return Err(failed(Errno::INVAL));
    }
    Ok(())
}
