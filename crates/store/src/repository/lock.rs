//! The lock of a directory's writer, and the check that the directory is still at its path.

use super::directory::{Directory, FOLDER};
use crate::{Error, Result};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// A lock that is held until this is dropped. The drop unlocks explicitly: a child process that another thread is just starting
/// also has the descriptor until it runs its program, and would keep the lock with it.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The lock file; `None` if there was no room to make it, and only the directory is locked.
    file: Option<OwnedFd>,
    /// The locked directory itself, so that no other process gets the lock if the file is removed. `None` on file systems that
    /// cannot lock a directory.
    directory: Option<OwnedFd>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        for file in self.file.iter().chain(&self.directory) {
            let _closing_does_it_too = fs::flock(file, FlockOperation::Unlock);
        }
    }
}

const LOCK: &str = "lock";

impl Directory {
    /// Takes the lock that keeps other processes from writing here. Dropping the result releases it.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let busy = || Error::Busy {
            directory: self.path.clone(),
        };
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |flags| fs::openat(&*self.descriptor, LOCK, flags, Mode::RUSR | Mode::WUSR);
        let file = match open(flags.difference(OFlags::CREATE)) {
            Err(Errno::NOENT) => self.faults.make().and_then(|()| open(flags)),
            opened => opened,
        };
        let (file, full) = match file {
            // A start needs no disk space if the directory can be locked.
            Err(source @ (Errno::NOSPC | Errno::DQUOT)) => (None, Some(source)),
            Err(source) => return Err(self.failed_opening(LOCK, source)),
            Ok(file) => (Some(file), None),
        };
        if let Some(file) = &file {
            self.check(LOCK, file)?;
            match fs::flock(file, exclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(busy()),
                Err(source) => return Err(self.failed("locking", LOCK, source)),
            }
        }
        let mut lock = Lock {
            file,
            directory: None,
        };
        if let Ok(directory) = fs::openat(&*self.descriptor, ".", FOLDER, Mode::empty()) {
            match fs::flock(&directory, exclusive) {
                Ok(()) => lock.directory = Some(directory),
                Err(Errno::WOULDBLOCK) => return Err(busy()),
                // Only the file can be locked here.
                Err(_) => {}
            }
        }
        match full.filter(|_| lock.directory.is_none()) {
            Some(source) => Err(self.failed_opening(LOCK, source)),
            None => Ok(lock),
        }
    }

    /// Returns true if the lock is held. The check itself holds a lock for an instant: a writer that starts in this instant is
    /// refused.
    pub(crate) fn has_writer(&self) -> Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let is_locked = |name, flags| {
            let file = match fs::openat(&*self.descriptor, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(false),
                opened => opened.map_err(|source| self.failed_opening(name, source))?,
            };
            match fs::flock(&file, FlockOperation::NonBlockingLockShared) {
                Ok(()) => {
                    let _closing_does_it_too = fs::flock(&file, FlockOperation::Unlock);
                    Ok(false)
                }
                Err(Errno::WOULDBLOCK) => Ok(true),
                // Not every file system can lock a directory.
                Err(_) if name != LOCK => Ok(false),
                Err(source) => Err(self.failed("looking at the lock of", LOCK, source)),
            }
        };
        // A writer that had no room for the file locks only the directory. A start that failed may have made the file since.
        Ok(is_locked(LOCK, flags)? || is_locked(".", FOLDER)?)
    }

    /// Checks that files written here are found by the path and protected by this process's lock: neither this directory nor one
    /// above it was renamed or replaced, and the lock is the one that was taken.
    ///
    /// # Errors
    /// [`Error::Vanished`] if a directory was renamed or replaced, [`Error::Refused`] if the lock file was.
    pub(crate) fn check_place(&self, lock: &Lock) -> Result<()> {
        self.in_place()?;
        let Some(file) = lock.file.as_ref().filter(|_| lock.directory.is_none()) else {
            return Ok(());
        };
        let own = fs::fstat(file).map(|stat| stat.st_ino);
        let there = fs::statat(&*self.descriptor, LOCK, AtFlags::SYMLINK_NOFOLLOW);
        match (own, there.map(|stat| stat.st_ino)) {
            (Ok(own), Ok(there)) if own == there => Ok(()),
            _ => Err(Error::Refused {
                path: self.path.join(LOCK),
                why: "it was removed or replaced while it was held",
            }),
        }
    }

    fn in_place(&self) -> Result<()> {
        let own = fs::fstat(&*self.descriptor);
        let there = match &self.within {
            Some((within, name)) => {
                within.in_place()?;
                fs::statat(&*within.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
            }
            None => fs::stat(&self.path),
        };
        let is_other = match (own, there) {
            (Ok(own), Ok(there)) => (own.st_dev, own.st_ino) != (there.st_dev, there.st_ino),
            (_, Err(source)) => matches!(source, Errno::NOENT | Errno::NOTDIR | Errno::STALE),
            (Err(_), Ok(_)) => true,
        };
        match is_other {
            true => Err(Error::Vanished {
                directory: self.path.clone(),
            }),
            false => Ok(()),
        }
    }
}
