//! A file without a name, for histories that end with their process.

use crate::file::File;
use crate::{Error, NamedFile, Result, Storage};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{self, Errno};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The properties that the file system granted, possibly fewer than were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedProperties {
    /// True if direct I/O works: bytes go past the page cache. If false, they go through it and compete with the application for
    /// memory.
    pub direct: bool,
    /// True if the file never had a name. If false, it had one for a moment.
    pub nameless: bool,
}

/// An anonymous file in a directory that the user chooses. The file uses direct I/O if the file system supports it, disappears with
/// the process however that ends, and is out of reach of other users of the directory.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    obtained: GrantedProperties,
    directory: PathBuf,
}

impl Scratch {
    /// Makes the file in `directory`. Writes nothing to it yet. If the file system has no direct I/O, bytes go through the page
    /// cache.
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
                GrantedProperties {
                    direct: true,
                    nameless: true,
                },
            ),
            Err(_) => match nameless(directory, OFlags::empty()) {
                Ok(file) => (
                    file,
                    GrantedProperties {
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
            directory: directory.to_path_buf(),
        };
        if scratch.obtained.direct && !scratch.file.can_write() {
            scratch.file = File::new(nameless(directory, OFlags::empty()).map_err(failed)?);
            scratch.obtained.direct = false;
        }
        Ok(scratch)
    }

    /// Returns the properties that the file system granted.
    #[must_use]
    pub fn obtained(&self) -> GrantedProperties {
        self.obtained
    }
}

fn nameless(directory: &Path, extra: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | extra;
    fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
}

/// Returns a name that this process gives to no other file.
pub(crate) fn fresh_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(
        ".tierflow-{}-{number}",
        rustix::process::getpid().as_raw_nonzero()
    )
}

/// Calls `make` with new names until one of them is free. A process of the same number, in another container or killed before, may
/// have taken a name.
pub(crate) fn under_fresh_name<T>(make: impl Fn(&str) -> io::Result<T>) -> io::Result<(T, String)> {
    loop {
        let name = fresh_name();
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((made?, name)),
        }
    }
}

/// Makes a file under a new name and removes the name at once, for file systems without nameless files.
fn unlinked(directory: &Path) -> io::Result<(OwnedFd, GrantedProperties)> {
    let folder = fs::open(
        directory,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let make = |name: &str| fs::openat(&folder, name, flags, Mode::RUSR | Mode::WUSR);
    let (file, name) = under_fresh_name(make)?;
    fs::unlinkat(&folder, &name, AtFlags::empty())?;
    Ok((
        file,
        GrantedProperties {
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

    /// Returns the file only with direct I/O: a caller that reads and writes it by other means would not see bytes that are still
    /// in the page cache.
    fn file(&self) -> Result<Option<NamedFile>> {
        if !self.obtained.direct {
            return Ok(None);
        }
        let named = NamedFile::of(self.file.descriptor(), &self.directory);
        named.map(Some).map_err(|source| Error::Open {
            directory: self.directory.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::BLOCK;
    use crate::{Faulty, Guarded, Throttled};
    use std::os::fd::{AsFd, AsRawFd};

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
        let scratch = Scratch {
            file,
            obtained,
            directory: directory.path().to_path_buf(),
        };
        crate::conformance::run_all(&scratch);
        assert!(scratch.file().unwrap().is_none(), "it is in the page cache");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_that_others_took_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let next = fresh_name();
        let (start, number) = next.rsplit_once('-').unwrap();
        let first: u64 = number.parse().unwrap();
        for number in first..first + 100 {
            let taken = directory.path().join(format!("{start}-{number}"));
            std::fs::write(taken, "others").unwrap();
        }
        unlinked(directory.path()).unwrap();
        let file = nameless(directory.path(), OFlags::DIRECT);
        let named = file.map(|file| NamedFile::of(&file, directory.path()));
        assert!(!matches!(named, Ok(Err(Errno::EXIST))), "{named:?}");
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            101 - usize::from(named.is_err())
        );
    }

    #[test]
    fn outlives_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(directory.path()).unwrap();
        drop(directory);
        crate::conformance::run_all(&scratch);
    }

    #[test]
    fn its_file_has_a_name_while_it_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(directory.path()).unwrap();
        let Some(file) = scratch.file().unwrap() else {
            assert!(!scratch.obtained().direct);
            return;
        };
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()));
        assert!(
            link.unwrap().exists(),
            "it is opened by a name that is there"
        );
        // Bytes written through one descriptor are read through the other.
        let copy = File::new(file.as_fd().try_clone_to_owned().unwrap());
        drop(file);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut memory = vec![7; 3 * BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        let block = &mut memory[start..start + BLOCK];
        copy.write_at(5 * BLOCK as u64, block).unwrap();
        block.fill(0);
        scratch.read_at(5 * BLOCK as u64, block).unwrap();
        assert!(block.iter().all(|&byte| byte == 7));
        drop(directory);
        assert!(matches!(scratch.file(), Err(Error::Open { .. })));
    }

    #[test]
    fn what_stands_in_front_of_a_file_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = || Scratch::open(directory.path()).unwrap();
        let fronts: [Box<dyn Storage>; 3] = [
            Box::new(Guarded::new(std::sync::Arc::new(scratch()))),
            Box::new(Throttled::new(scratch(), 1 << 30)),
            Box::new(Faulty::new(scratch(), std::sync::Arc::default())),
        ];
        for front in fronts {
            assert!(front.file().unwrap().is_none(), "{front:?}");
        }
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
