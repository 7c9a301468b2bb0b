//! An open file as [`Storage`]: whole blocks, by direct I/O if the file system supports it.

use crate::injected::Injected;
use crate::scratch::fresh_name;
use crate::{Error, Result, Storage};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno};
use rustix::process::{Resource, getrlimit};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The alignment of offsets, lengths and addresses for direct I/O, in bytes: enough for every file system in use today.
pub(crate) const BLOCK: usize = 4096;

/// A file that is read and written in whole blocks.
#[derive(Debug)]
pub(crate) struct File {
    descriptor: OwnedFd,
    injected: Injected,
}

impl File {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self {
            descriptor,
            injected: Injected::default(),
        }
    }

    /// Returns the same file with faults, if there are any.
    pub(crate) fn with(self, injected: Injected) -> Self {
        Self { injected, ..self }
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Returns true if a write of one block succeeds. Some file systems accept the flag for direct I/O and refuse the I/O. The file
    /// is empty before and after the call.
    pub(crate) fn can_write(&self) -> bool {
        let buffer = vec![0_u8; 2 * BLOCK];
        let start = buffer.as_ptr().align_offset(BLOCK);
        let Some(block) = buffer.get(start..start + BLOCK) else {
            return false;
        };
        let works = io_pwrite(&self.descriptor, block, 0).is_ok();
        works && fs::ftruncate(&self.descriptor, 0).is_ok()
    }

    /// Writes whole blocks.
    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match io_pwrite(&self.descriptor, &bytes[done..], offset + done as u64) {
                // Only a full storage ends a write within its first block.
                Ok(0..BLOCK) | Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                    return Err(Error::Full {
                        place: directory_of(&self.descriptor),
                        offset,
                        bytes: bytes.len(),
                    });
                }
                Ok(written) => done += written - written % BLOCK,
                Err(source) => {
                    return Err(Error::Write {
                        offset,
                        bytes: bytes.len(),
                        source,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Returns the directory of an open file, from `/proc`: a file without a name has one, too.
fn directory_of(descriptor: &OwnedFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let path = std::fs::read_link(link).ok()?;
    path.parent().map(Path::to_owned)
}

fn check(offset: u64, bytes: &[u8]) -> Result<()> {
    let aligned = offset.is_multiple_of(BLOCK as u64)
        && bytes.len().is_multiple_of(BLOCK)
        && (bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(BLOCK));
    if aligned {
        Ok(())
    } else {
        Err(Error::Unaligned {
            offset,
            bytes: bytes.len(),
            alignment: BLOCK,
        })
    }
}

/// Refuses to make a file longer than the process's limit (`RLIMIT_FSIZE`), with an error as from a full file system. Otherwise the
/// system would send the signal `SIGXFSZ`, which ends the process if nothing handles it. `end` is the length in bytes that the file
/// would have.
///
/// # Errors
/// [`Errno::FBIG`] if `end` exceeds the limit.
pub fn within_limit(end: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if end > limit => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

/// Replaces a file by these bytes in one step: readers see either the old bytes or the new ones, even if other writers replace the
/// file at the same time. If `lasts` is true, the new bytes are on the disk when this returns. The call first writes them to another
/// file in the same directory, whose name is that of the file with `.tierflow-`, numbers and `.new` appended; no other file has it.
///
/// # Errors
/// The system's error. The file is unchanged, unless only the synchronisation of the directory failed.
pub fn replace_file(path: &Path, bytes: &[u8], lasts: bool) -> std::io::Result<()> {
    within_limit(bytes.len() as u64)?;
    let (mut file, new) = create_beside(path)?;
    let mut write = || {
        file.write_all(bytes)?;
        if lasts {
            file.sync_all()?;
        }
        std::fs::rename(&new, path)?;
        match lasts {
            true => Ok(sync_parent(path)?),
            false => Ok(()),
        }
    };
    write().inspect_err(|_| {
        let _already_failed = std::fs::remove_file(&new);
    })
}

/// Makes the name of a file or directory durable.
///
/// # Errors
/// If the directory above it cannot be opened or synchronised.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    // The parent of a relative path of one name is the empty path.
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let parent = fs::open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    fs::fsync(parent)
}

/// Makes a directory that only this user may enter, and makes its name durable. The directory above it must exist. If the directory
/// itself exists, the process that made it may have ended before its name was durable: the call then makes the name durable if it can.
///
/// # Errors
/// If the directory cannot be made, or the name of a new one cannot be made durable.
pub fn create_dir_durably(path: &Path) -> io::Result<()> {
    // Some file systems that are open for reading refuse before they look for the name.
    let make = || match path.exists() {
        true => Err(Errno::EXIST),
        false => fs::mkdir(path, Mode::RWXU),
    };
    match make() {
        Ok(()) => sync_parent(path),
        Err(Errno::EXIST) => {
            // The directory above it may be closed to this user.
            let _tried_again_next_time = sync_parent(path);
            Ok(())
        }
        failed => failed,
    }
}

/// Makes a file in the directory of `path`, under a free name. A name may be taken by a process of the same number on another node,
/// or by one that was killed.
fn create_beside(path: &Path) -> std::io::Result<(std::fs::File, PathBuf)> {
    loop {
        let mut new = path.as_os_str().to_owned();
        new.push(format!("{}.new", fresh_name()));
        match std::fs::File::create_new(&new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return Ok((created?, new.into())),
        }
    }
}

fn io_pwrite(file: &OwnedFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    within_limit(offset.saturating_add(bytes.len() as u64))?;
    io::retry_on_intr(|| io::pwrite(file, bytes, offset))
}

impl Storage for File {
    fn alignment(&self) -> usize {
        BLOCK
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        check(offset, bytes)?;
        let write = |length| self.write_all(offset, &bytes[..length]);
        self.injected.write(offset, bytes.len(), BLOCK, write)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        check(offset, bytes)?;
        let length = bytes.len();
        let failed = |source| Error::Read {
            offset,
            bytes: length,
            source,
        };
        self.injected.read().map_err(failed)?;
        let mut done = 0;
        while done < length {
            let rest = &mut bytes[done..];
            match io::retry_on_intr(|| {
                io::pread(&self.descriptor, &mut *rest, offset + done as u64)
            }) {
                // The file ends here: these bytes were never written.
                Ok(0) => return Err(failed(Errno::NODATA)),
                Ok(read) => done += read,
                Err(source) => return Err(failed(source)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks in one process write their statistics to one file.
    #[test]
    fn threads_that_replace_one_file_do_not_mix_their_bytes() {
        const LENGTH: usize = 200_000;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("statistics");
        std::thread::scope(|scope| {
            for own in 1..=4_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        replace_file(path, &[own; LENGTH], false).unwrap();
                        let bytes = std::fs::read(path).unwrap();
                        assert_eq!(bytes.len(), LENGTH);
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }

    /// In the directory of the process, which is the crate's.
    #[test]
    fn a_file_is_replaced_by_its_mere_name() {
        let path = format!("replaced-{}.test", std::process::id());
        let replaced = replace_file(Path::new(&path), b"new", true);
        let bytes = std::fs::read(&path);
        std::fs::remove_file(&path).unwrap();
        replaced.unwrap();
        assert_eq!(bytes.unwrap(), b"new");
    }

    #[test]
    fn a_file_that_a_killed_process_left_is_no_obstacle() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("nodes");
        for number in 0..9 {
            let left = format!("nodes.tierflow-{}-{number}.new", std::process::id());
            std::fs::write(home.path().join(left), "left").unwrap();
        }
        replace_file(&path, b"new", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
}
