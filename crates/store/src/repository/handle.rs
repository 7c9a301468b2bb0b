//! An open file of a repository for reading: heads through the page cache, large payloads past it.

use super::aligned::Aligned;
use super::directory::Directory;
use crate::container::Source;
use crate::file::{BLOCK, File};
use crate::injected::Injected;
use crate::{Error, Result, Storage};
use rustix::fs::{self, SeekFrom};
use rustix::io::{self, Errno};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// A file that is read through the page cache, at any offset and length.
#[derive(Debug)]
pub(crate) struct Plain {
    file: OwnedFd,
    size: u64,
    faults: Injected,
}

impl Plain {
    pub(super) fn new(file: OwnedFd, size: u64, faults: Injected) -> Self {
        Self { file, size, faults }
    }
}

impl Source for Plain {
    type Error = Error;

    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let length = bytes.len();
        let failed = |source| Error::Read {
            offset,
            bytes: length,
            source,
        };
        let mut read = || -> io::Result<()> {
            self.faults.read()?;
            let mut done = 0;
            while done < length {
                let rest = &mut bytes[done..];
                match io::retry_on_intr(|| io::pread(&self.file, &mut *rest, offset + done as u64))?
                {
                    0 => return Err(Errno::NODATA),
                    read => done += read,
                }
            }
            Ok(())
        };
        retried(&mut read).map_err(failed)
    }

    fn data_from(&self, offset: u64) -> Result<Option<u64>> {
        match fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at - at % BLOCK as u64)),
            Err(Errno::NXIO) => Ok(None),
            // The file system cannot find holes.
            Err(_) => Ok(Some(offset)),
        }
    }
}

/// Pauses before each new attempt after a failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// Calls `attempt` up to three times while it fails with a passing error: the connection to the storage may have been lost for a
/// moment.
pub(super) fn retried<T>(attempt: &mut dyn FnMut() -> io::Result<T>) -> io::Result<T> {
    for pause in PAUSES {
        match attempt() {
            Err(Errno::IO | Errno::TIMEDOUT | Errno::AGAIN) => std::thread::sleep(pause),
            done => return done,
        }
    }
    attempt()
}

/// Least length in bytes of reads that go past the page cache.
const DIRECT_BYTES: usize = 256 << 10;

/// A file that can be read both through the page cache and past it.
#[derive(Debug)]
pub(crate) struct Handle {
    directory: Directory,
    name: String,
    path: PathBuf,
    inode: u64,
    pub(crate) plain: Plain,
    direct: OnceLock<Option<File>>,
}

impl Handle {
    pub(super) fn new(directory: Directory, name: &str, inode: u64, plain: Plain) -> Self {
        Self {
            path: directory.path().join(name),
            directory,
            name: name.to_owned(),
            inode,
            plain,
            direct: OnceLock::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a range, past the page cache if it is long and direct I/O works. Reads into `memory`, which may grow.
    pub(crate) fn read<'a>(
        &self,
        offset: u64,
        length: usize,
        memory: &'a mut Aligned,
    ) -> Result<&'a [u8]> {
        let skip = (offset % BLOCK as u64) as usize;
        let whole = (skip + length).next_multiple_of(BLOCK);
        let bytes = memory.get_mut(whole);
        let start = offset - skip as u64;
        let fits = length >= DIRECT_BYTES && start + whole as u64 <= self.plain.size;
        match fits.then(|| self.direct()).flatten() {
            Some(direct) => {
                let mut read = || {
                    self.plain.faults.read()?;
                    match direct.read_at(start, bytes) {
                        Err(Error::Read { source, .. }) => Err(source),
                        Err(_) => Err(Errno::INVAL),
                        Ok(()) => Ok(()),
                    }
                };
                retried(&mut read).map_err(|source| Error::Read {
                    offset,
                    bytes: length,
                    source,
                })?;
            }
            None => self.plain.read(offset, &mut bytes[skip..skip + length])?,
        }
        Ok(&bytes[skip..skip + length])
    }

    fn direct(&self) -> Option<&File> {
        let open = || {
            let file = self.directory.read_directly(&self.name, self.inode)?;
            // Some file systems accept the flag for direct I/O and refuse the I/O.
            let mut memory = Aligned::default();
            let works = file.read_at(0, memory.get_mut(BLOCK)).is_ok();
            Some(file).filter(|_| works)
        };
        self.direct.get_or_init(open).as_ref()
    }
}
