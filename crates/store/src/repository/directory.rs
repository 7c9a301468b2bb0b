//! A directory that is held open. All accesses go through its descriptor, so no process can put another directory in its place, and
//! all files stay on its file system.

use super::handle::{Handle, Plain, retried};
use super::quota::{Purpose, Quota};
use super::record::Name;
use crate::file::{BLOCK, File, create_dir_durably, within_limit};
use crate::injected::Injected;
use crate::{Error, Result};
use rustix::fs::{self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open directory that belongs to this user.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    pub(super) descriptor: Arc<OwnedFd>,
    pub(super) path: PathBuf,
    /// The parent directory and the name in it, if this directory was opened through its parent.
    pub(super) within: Option<(Arc<Directory>, String)>,
    owner: u32,
    pub(super) faults: Injected,
    pub(super) quota: Option<Arc<Quota>>,
}

/// The time when others read a file that is being written. Readers use the page cache, which may keep outdated pages of a file that
/// is written past it (open(2) on `O_DIRECT`). So this decides how the file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// After the file got its final name: it is written past the page cache.
    Later,
    /// At any time: the file is written through the page cache.
    Meanwhile,
}

/// The state of a file, which shows whether the file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    pub(crate) size: u64,
    modified: (i64, u64),
}

impl FileStamp {
    /// Returns true if this is the same file as `before` and at least as long.
    pub(crate) fn is_grown(&self, before: &Self) -> bool {
        self.inode == before.inode && self.size >= before.size
    }
}

pub(super) const FOLDER: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

impl Directory {
    /// Opens `path`. If `create` is true, makes the directory first (its parent must exist), and refuses one of another user.
    pub(crate) fn open(path: &Path, create: bool, faults: Injected) -> Result<Self> {
        let failed = |source| Error::Open {
            directory: path.to_path_buf(),
            source,
        };
        if create {
            let made = match path.exists() {
                true => Ok(()),
                false => faults.make(),
            };
            made.and_then(|()| create_dir_durably(path))
                .map_err(failed)?;
        }
        let mut open = || {
            faults.look()?;
            fs::open(path, FOLDER, Mode::empty())
        };
        let descriptor = retried(&mut open).map_err(failed)?;
        let owner = fs::fstat(&descriptor).map_err(failed)?.st_uid;
        if create && owner != rustix::process::geteuid().as_raw() {
            return Err(Error::Refused {
                path: path.to_path_buf(),
                why: "it belongs to another user",
            });
        }
        Ok(Self {
            descriptor: Arc::new(descriptor),
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
            within: None,
            owner,
            faults,
            quota: None,
        })
    }

    /// Opens the subdirectory `name`. Makes it first if `create` is true.
    pub(crate) fn sub(&self, name: &str, create: bool) -> Result<Self> {
        if create {
            let there = fs::statat(&*self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
            let make = || fs::mkdirat(&*self.descriptor, name, Mode::RWXU);
            let make = || self.faults.make().and_then(|()| make());
            match missing(there).and_then(|()| make()) {
                Ok(()) => self.sync()?,
                // The process that made it may have ended before its name was durable.
                Err(Errno::EXIST) => drop(self.sync()),
                Err(source) => return Err(self.failed("making", name, source)),
            }
        }
        let path = self.path.join(name);
        let mut open = || {
            self.faults.look()?;
            let flags = FOLDER | OFlags::NOFOLLOW;
            fs::openat(&*self.descriptor, name, flags, Mode::empty())
        };
        let descriptor = match retried(&mut open) {
            Ok(descriptor) => descriptor,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(Error::Refused {
                    path,
                    why: "it is no directory",
                });
            }
            Err(source) => return Err(self.failed("opening", name, source)),
        };
        let stat = fs::fstat(&descriptor).map_err(|e| self.failed("looking at", name, e))?;
        if stat.st_uid != self.owner {
            return Err(Error::Refused {
                path,
                why: "it belongs to another user",
            });
        }
        if Mode::from_raw_mode(stat.st_mode).contains(Mode::WOTH) {
            return Err(Error::Refused {
                path,
                why: "every user may write there: take that permission away (chmod o-w)",
            });
        }
        Ok(Self {
            descriptor: Arc::new(descriptor),
            path,
            within: Some((Arc::new(self.clone()), name.to_owned())),
            owner: self.owner,
            faults: self.faults.clone(),
            quota: None,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the device and the inode number, if they can be determined.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        let stat = fs::fstat(&*self.descriptor).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Returns the names in the directory, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        self.still_there()?;
        let mut read = || -> rustix::io::Result<Vec<String>> {
            self.faults.look()?;
            let mut names = Vec::new();
            for entry in Dir::read_from(&*self.descriptor)? {
                // Tierflow writes no name that is not UTF-8.
                if let Ok(name) = entry?.file_name().to_str()
                    && self.faults.shows(name)
                {
                    names.push(name.to_owned());
                }
            }
            Ok(names)
        };
        let mut names = retried(&mut read).map_err(|e| self.failed("reading", "", e))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Makes the file `name` for writing. Fails if it exists.
    pub(crate) fn create(
        &self,
        name: &str,
        reserve: u64,
        readers: Readers,
        by: Purpose,
    ) -> Result<File> {
        self.claim(reserve, by)?;
        let created = self.create_claimed(name, reserve, readers);
        created.inspect_err(|_| self.give(reserve))
    }

    fn create_claimed(&self, name: &str, reserve: u64, readers: Readers) -> Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        self.faults
            .change()
            .map_err(|e| self.failed("making", name, e))?;
        let open = |flags| fs::openat(&*self.descriptor, name, flags, mode);
        let reopen = flags.difference(OFlags::CREATE | OFlags::EXCL) | OFlags::NOFOLLOW;
        let way = match readers {
            Readers::Later => OFlags::DIRECT,
            Readers::Meanwhile => OFlags::empty(),
        };
        let file = match open(flags | way).map(File::new) {
            Ok(file) if way.is_empty() || file.can_write() => file,
            // The file was made, and then direct I/O failed.
            Ok(_) => open(reopen)
                .map(File::new)
                .map_err(|e| self.failed("opening", name, e))?,
            // Some file systems make the file before they refuse direct I/O.
            Err(Errno::INVAL) => open(flags)
                .or_else(|_| open(reopen))
                .map(File::new)
                .map_err(|e| self.failed("making", name, e))?,
            Err(source) => return Err(self.failed("making", name, source)),
        };
        let file = file.with(self.faults.clone());
        self.reserve(&file, reserve).inspect_err(|_| {
            let _already_failed = self.remove(name);
        })?;
        if self.quota.is_some() {
            // The file counts with the claimed size even if the file system reserves nothing.
            let _counts_as_less = fs::ftruncate(file.descriptor(), reserve);
        }
        Ok(file)
    }

    /// Reserves space for the first `bytes` bytes of a file, contiguous if possible. Fails if there is no room; succeeds without a
    /// reservation if the file system has none.
    pub(crate) fn reserve(&self, file: &File, bytes: u64) -> Result<()> {
        let whole = fs::FallocateFlags::empty();
        let reserved = match bytes {
            0 => Ok(()),
            _ => self
                .faults
                .reserve()
                .and_then(|()| within_limit(bytes))
                .and_then(|()| fs::fallocate(file.descriptor(), whole, 0, bytes)),
        };
        match reserved {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(Error::Full {
                place: Some(self.path.clone()),
                offset: 0,
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            }),
            _ => Ok(()),
        }
    }

    /// Opens the file `name`, which an ended process left open, to append to it.
    pub(crate) fn go_on(&self, name: &str) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::openat(&*self.descriptor, name, flags, Mode::empty())
            .map_err(|source| self.failed_opening(name, source))?;
        self.check(name, &file)?;
        Ok(File::new(file).with(self.faults.clone()))
    }

    /// Makes an empty file durably; only its name counts.
    pub(crate) fn mark(&self, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || fs::openat(&*self.descriptor, name, flags, Mode::RUSR | Mode::WUSR);
        let made = self.faults.mark(&self.path);
        let made = made.and_then(|()| self.faults.make());
        let made = made.and_then(|()| make());
        made.map_err(|source| self.failed("making", name, source))?;
        self.sync()
    }

    /// Opens the file `name` to write over it. Returns `None` if a process reads the file, if it is not a plain file of this user,
    /// or if the file system cannot lock it.
    pub(crate) fn write_over(&self, name: &str) -> Option<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECT;
        let file = fs::openat(&*self.descriptor, name, flags, Mode::empty()).ok()?;
        self.check(name, &file).ok()?;
        fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(File::new(file).with(self.faults.clone()))
    }

    /// Lets others read a file that [`write_over`](Self::write_over) opened. Closing the file may not be enough: see [`Lock`].
    pub(crate) fn unlock(&self, name: &str, file: &File) -> Result<()> {
        match fs::flock(file.descriptor(), FlockOperation::Unlock) {
            // A file system without locks never took one.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
            Err(source) => Err(self.failed("unlocking", name, source)),
        }
    }

    /// Makes the written bytes durable, and checks that the file still has a name.
    pub(crate) fn sync_file(&self, name: &str, file: &File) -> Result<()> {
        let descriptor = file.descriptor();
        let synced = self.faults.sync().and_then(|()| fs::fdatasync(descriptor));
        synced.map_err(|source| self.failed("synchronising", name, source))?;
        let stat = fs::fstat(descriptor).map_err(|e| self.failed("looking at", name, e))?;
        if stat.st_nlink == 0 {
            return Err(Error::Vanished {
                directory: self.path.clone(),
            });
        }
        Ok(())
    }

    /// Sets the length of `file`.
    pub(crate) fn truncate(&self, name: &str, file: &File, size: u64) -> Result<()> {
        let cut = || fs::ftruncate(file.descriptor(), size);
        let cut = self.faults.remove().and_then(|()| cut());
        cut.map_err(|source| self.failed("cutting off", name, source))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let unlink = || fs::unlinkat(&*self.descriptor, name, AtFlags::empty());
        let bytes = self.counted(name);
        let faults = self.faults.remove();
        let faults = faults.and_then(|()| self.faults.keep(&self.path, name));
        match faults.and_then(|()| unlink()) {
            Ok(()) => {
                self.give(bytes);
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(self.failed("removing", name, source)),
        }
    }

    /// Makes the names in the directory durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = self
            .faults
            .sync()
            .and_then(|()| fs::fsync(&*self.descriptor));
        synced.map_err(|source| self.failed("synchronising", "", source))
    }

    /// Makes the bytes of these files, which another process writes, and the names in the directory durable.
    pub(super) fn sync_with(&self, names: impl Iterator<Item = String>) -> Result<()> {
        for name in names {
            let synced = self.open_to_read(&name, OFlags::empty()).and_then(|file| {
                self.faults.sync()?;
                fs::fdatasync(file)
            });
            match synced {
                // A file was synchronised before it got another name.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(source) => return Err(self.failed("synchronising", &name, source)),
            }
        }
        self.sync()
    }

    /// Returns the stamp of the file `name`; `None` if it does not exist.
    pub(crate) fn stamp(&self, name: &str) -> Result<Option<FileStamp>> {
        let mut look = || {
            self.faults.look()?;
            fs::statat(&*self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
        };
        match retried(&mut look) {
            Ok(stat) => self.check_stat(name, &stat).map(|()| Some(stamp(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(source) => Err(self.failed("looking at", name, source)),
        }
    }

    /// Opens the file `name` for reading; `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Handle>> {
        let mut open = || {
            self.faults.look()?;
            self.open_to_read(name, OFlags::empty())
        };
        match retried(&mut open) {
            Ok(plain) => {
                let stat = self.check(name, &plain)?;
                // The lock keeps others from writing over the file while it is read. Without locks, no file is written over.
                let locked = fs::flock(&plain, FlockOperation::NonBlockingLockShared);
                let gone = || Ok(self.stamp(name)?.is_none_or(|now| now.inode != stat.st_ino));
                if locked == Err(Errno::WOULDBLOCK) || gone()? {
                    return Ok(None);
                }
                let plain = Plain::new(plain, stat.st_size as u64, self.faults.clone());
                Ok(Some(Handle::new(self.clone(), name, stat.st_ino, plain)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(source) => Err(self.failed_opening(name, source)),
        }
    }

    /// Opens a file by its published or its unpublished name; `None` if it has neither.
    pub(crate) fn read_by_either_name(&self, name: Name) -> Result<Option<Handle>> {
        let published = name.published();
        // The writer may rename the file between the first two attempts, but never back.
        for text in [&published, &name.unpublished(), &published] {
            if let Some(handle) = self.read(text)? {
                return Ok(Some(handle));
            }
        }
        Ok(None)
    }

    /// Opens the file `name` for direct I/O. Returns `None` if the name has another file than before, or direct I/O is not
    /// supported.
    pub(crate) fn read_directly(&self, name: &str, inode: u64) -> Option<File> {
        let file = self.open_to_read(name, OFlags::DIRECT).ok()?;
        let same = self
            .check(name, &file)
            .is_ok_and(|stat| stat.st_ino == inode);
        Some(File::new(file)).filter(|_| same)
    }

    fn open_to_read(&self, name: &str, extra: OFlags) -> rustix::io::Result<OwnedFd> {
        // Without `NONBLOCK`, the open would wait if a pipe had that name.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        fs::openat(&*self.descriptor, name, flags | extra, Mode::empty())
    }

    /// Checks that a file is a plain one and belongs to the owner of the directory.
    pub(super) fn check(&self, name: &str, file: &OwnedFd) -> Result<Stat> {
        let stat = fs::fstat(file).map_err(|e| self.failed("looking at", name, e))?;
        self.check_stat(name, &stat)?;
        Ok(stat)
    }

    fn check_stat(&self, name: &str, stat: &Stat) -> Result<()> {
        let why = if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            "it is no plain file"
        } else if stat.st_uid != self.owner {
            "it belongs to another user"
        } else {
            return Ok(());
        };
        Err(Error::Refused {
            path: self.path.join(name),
            why,
        })
    }

    fn still_there(&self) -> Result<()> {
        let links = fs::fstat(&*self.descriptor).map(|stat| stat.st_nlink);
        if links == Ok(0) {
            return Err(Error::Vanished {
                directory: self.path.clone(),
            });
        }
        Ok(())
    }

    pub(super) fn failed_opening(&self, name: &str, source: Errno) -> Error {
        if source == Errno::LOOP {
            return Error::Refused {
                path: self.path.join(name),
                why: "it is a symbolic link",
            };
        }
        self.failed("opening", name, source)
    }

    pub(super) fn failed(&self, doing: &'static str, name: &str, source: Errno) -> Error {
        if matches!(source, Errno::NOENT | Errno::STALE) && self.still_there().is_err() {
            return Error::Vanished {
                directory: self.path.clone(),
            };
        }
        if matches!(source, Errno::NOSPC | Errno::DQUOT) {
            return Error::Full {
                place: Some(self.path.clone()),
                offset: 0,
                bytes: BLOCK,
            };
        }
        Error::File {
            doing,
            path: self.path.join(name),
            source,
        }
    }
}

/// Returns the error `EXIST` if the file is there, as an attempt to make it would.
fn missing(there: rustix::io::Result<Stat>) -> rustix::io::Result<()> {
    match there {
        Ok(_) => Err(Errno::EXIST),
        Err(_) => Ok(()),
    }
}

fn stamp(stat: &Stat) -> FileStamp {
    FileStamp {
        inode: stat.st_ino,
        size: stat.st_size as u64,
        modified: (stat.st_mtime, stat.st_mtime_nsec),
    }
}
