//! A file without a name, for histories that live and die with their process.

use crate::file::File;
use crate::{Error, Result, Storage};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{self, Errno};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the file system gave, which may be less than what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obtained {
    /// Direct I/O: bytes go past the page cache. Without it they go through, and compete with the application for memory.
    pub direct: bool,
    /// The file never had a name. Without it, it had one for a moment.
    pub nameless: bool,
}

/// An anonymous file in a directory of the user's choice: direct I/O where the file system has it, gone with the
/// process however that ends, and out of reach of other users of the directory.
#[derive(Debug)]
pub struct Scratch {
    file: File,
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
        let mut scratch = Self {
            file: File::new(file),
            obtained,
        };
        if scratch.obtained.direct && !scratch.file.can_write() {
            scratch.file = File::new(nameless(directory, OFlags::empty()).map_err(failed)?);
            scratch.obtained.direct = false;
        }
        Ok(scratch)
    }

    /// What the file system gave.
    #[must_use]
    pub fn obtained(&self) -> Obtained {
        self.obtained
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

impl Storage for Scratch {
    fn alignment(&self) -> usize {
        self.file.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::BLOCK;

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
        let file = File::new(file);
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
