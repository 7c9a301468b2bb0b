//! A file without a name, for histories that live and die with their process.

use crate::{Error, Result, Storage};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{self, Errno};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// What direct I/O asks of offsets, lengths and addresses on every file system in use today.
const BLOCK: usize = 4096;

/// What the file system gave, which may be less than what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obtained {
    /// Direct I/O: bytes go past the page cache. Without it they go through, and compete with the application for memory.
    pub direct: bool,
    /// The file never had a name. Without it, it had one for a moment.
    pub nameless: bool,
}

/// An anonymous file in a directory of the user's choice: direct I/O where the file system has it, gone with the
/// process however that ends, and out of reach of whoever else writes to the directory.
#[derive(Debug)]
pub struct Scratch {
    file: OwnedFd,
    obtained: Obtained,
}

impl Scratch {
    /// Makes the file in `directory`. Nothing is written there yet.
    ///
    /// # Errors
    /// [`Error::Open`] if the directory is missing, read-only or refuses files.
    pub fn open(directory: &Path) -> Result<Self> {
        let failed = |source| Error::Open {
            directory: directory.to_path_buf(),
            source,
        };
        let (file, obtained) = match nameless(directory, OFlags::DIRECT) {
            Ok(file) => (
                file,
                Obtained {
                    direct: true,
                    nameless: true,
                },
            ),
            Err(_) => match nameless(directory, OFlags::empty()) {
                Ok(file) => (
                    file,
                    Obtained {
                        direct: false,
                        nameless: true,
                    },
                ),
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                    unlinked(directory).map_err(failed)?
                }
                Err(source) => return Err(failed(source)),
            },
        };
        let mut scratch = Self { file, obtained };
        if scratch.obtained.direct && !scratch.direct_io_works() {
            scratch.file = nameless(directory, OFlags::empty()).map_err(failed)?;
            scratch.obtained.direct = false;
        }
        Ok(scratch)
    }

    /// What the file system gave.
    #[must_use]
    pub fn obtained(&self) -> Obtained {
        self.obtained
    }

    /// Some file systems take the flag and refuse the I/O.
    fn direct_io_works(&self) -> bool {
        let buffer = vec![0_u8; 2 * BLOCK];
        let start = buffer.as_ptr().align_offset(BLOCK);
        let Some(block) = buffer.get(start..start + BLOCK) else {
            return false;
        };
        let works = io_pwrite(&self.file, block, 0).is_ok();
        works && fs::ftruncate(&self.file, 0).is_ok()
    }

    fn check(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let block = BLOCK as u64;
        let aligned = offset.is_multiple_of(block)
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
}

fn nameless(directory: &Path, extra: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | extra;
    fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
}

/// For file systems without nameless files: made under a new name, which is taken away at once.
fn unlinked(directory: &Path) -> io::Result<(OwnedFd, Obtained)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!(
        ".tierflow-{}-{number}",
        rustix::process::getpid().as_raw_nonzero()
    );
    let folder = fs::open(
        directory,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let file = fs::openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
    fs::unlinkat(&folder, &name, AtFlags::empty())?;
    Ok((
        file,
        Obtained {
            direct: false,
            nameless: false,
        },
    ))
}

fn io_pwrite(file: &OwnedFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    io::retry_on_intr(|| io::pwrite(file, bytes, offset))
}

impl Storage for Scratch {
    fn alignment(&self) -> usize {
        BLOCK
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes)?;
        let mut done = 0;
        while done < bytes.len() {
            match io_pwrite(&self.file, &bytes[done..], offset + done as u64) {
                // A write ends within its first block only where the storage is full.
                Ok(0..BLOCK) | Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                    return Err(Error::Full {
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

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check(offset, bytes)?;
        let length = bytes.len();
        let mut done = 0;
        while done < length {
            let rest = &mut bytes[done..];
            match io::retry_on_intr(|| io::pread(&self.file, &mut *rest, offset + done as u64)) {
                // The end of the file: these bytes were never written.
                Ok(0) => {
                    return Err(Error::Read {
                        offset,
                        bytes: length,
                        source: Errno::NODATA,
                    });
                }
                Ok(read) => done += read,
                Err(source) => {
                    return Err(Error::Read {
                        offset,
                        bytes: length,
                        source,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        let directory = tempfile::tempdir().unwrap();
        crate::conformance::run_all(&Scratch::open(directory.path()).unwrap());
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            0,
            "the file has no name"
        );
    }

    #[test]
    fn the_fallback_conforms_and_leaves_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let (file, obtained) = unlinked(directory.path()).unwrap();
        crate::conformance::run_all(&Scratch { file, obtained });
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn outlives_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(directory.path()).unwrap();
        drop(directory);
        crate::conformance::run_all(&scratch);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = Scratch::open(Path::new("/nonexistent/scratch")).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/scratch"),
            "{error}"
        );
        assert!(matches!(
            error,
            Error::Open {
                source: Errno::NOENT,
                ..
            }
        ));
    }

    #[test]
    fn reading_what_was_never_written_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(directory.path()).unwrap();
        let mut memory = vec![0; 3 * BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        let error = scratch
            .read_at(1 << 30, &mut memory[start..start + BLOCK])
            .unwrap_err();
        assert!(matches!(error, Error::Read { .. }));
    }
}
