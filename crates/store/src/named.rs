//! A file without a name that has one for a while.

use crate::scratch::fresh_name;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::{self, Errno};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A second descriptor of a file, which has a name until this is dropped: some libraries open a file again by its name. The
/// descriptor, and what was opened by the name, stay good without it.
///
/// A process that is killed before that leaves the name, and with it the file, behind.
#[derive(Debug)]
pub struct NamedFile {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl NamedFile {
    /// Names the file in `directory`, which is one of its file system, and opens it by that name, for direct I/O.
    pub(crate) fn of(file: &OwnedFd, directory: &Path) -> io::Result<Self> {
        let path = directory.join(fresh_name());
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::linkat(CWD, nameless, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
        // No more flags: cuFile takes no descriptor with one that it does not know, and sees them all.
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let opened = fs::open(&path, flags, Mode::empty());
        let is_same = |opened: &OwnedFd| {
            let (mine, theirs) = (fs::fstat(file)?, fs::fstat(opened)?);
            Ok((mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino))
        };
        match opened.and_then(|descriptor| Ok((is_same(&descriptor)?, descriptor))) {
            Ok((true, descriptor)) => Ok(Self { descriptor, path }),
            // The directory is others' to write, too, and the name is another file's by now.
            Ok((false, _)) => Err(Errno::STALE),
            Err(errno) => {
                let _ = fs::unlink(&path);
                Err(errno)
            }
        }
    }
}

impl AsFd for NamedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        // The file may have been removed with its directory.
        let _ = fs::unlink(&self.path);
    }
}
