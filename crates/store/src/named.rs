//! A file without a name that gets one for a while.

use crate::scratch::under_fresh_name;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::{self, Errno};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A second descriptor of a nameless file. The file has a name until this is dropped, as some libraries open a file again by its
/// name. The descriptor, and descriptors opened by the name, stay valid without the name.
///
/// A process that is killed before the drop leaves the name, and with it the file, behind.
#[derive(Debug)]
pub struct NamedFile {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl NamedFile {
    /// Gives the file a name in `directory`, which is on the same file system, and opens it by that name for direct I/O.
    pub(crate) fn of(file: &OwnedFd, directory: &Path) -> io::Result<Self> {
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |name: &str| {
            let path = directory.join(name);
            fs::linkat(CWD, &nameless, CWD, path, AtFlags::SYMLINK_FOLLOW)
        };
        let path = directory.join(under_fresh_name(link)?.1);
        // No more flags: cuFile sees all flags of a descriptor and refuses one that it does not know.
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let opened = fs::open(&path, flags, Mode::empty());
        let is_same = |opened: &OwnedFd| {
            let (mine, theirs) = (fs::fstat(file)?, fs::fstat(opened)?);
            Ok((mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino))
        };
        match opened.and_then(|descriptor| Ok((is_same(&descriptor)?, descriptor))) {
            Ok((true, descriptor)) => Ok(Self { descriptor, path }),
            // Others may write to the directory, too, and one of them gave the name to another file.
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
