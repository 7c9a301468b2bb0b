//! Files read and written straight from device memory: cuFile, the library of GPUDirect Storage.
//!
//! | if the machine has | bytes go |
//! |---|---|
//! | the kernel module nvidia-fs, or PCI peer-to-peer DMA in the kernel itself | between the disk and the GPU |
//! | neither (compatibility mode) | through host memory that the library allocates |
//!
//! Memory is not registered with the library (`cuFileBufRegister`), as chunks would have to be made specially for it.
//! Bytes pass through a buffer of the library on the GPU, at the speed of the GPU's memory.

mod error;
mod raw;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::backend::ChunkMemory;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::info::Place;
use crate::loan::{ReadLoan, WriteLoan};
use crate::memory::Memory;
use crate::pages::pointer;

pub use error::{DirectError, StatusCode};

use raw::{Description, FileHandle, Library, Properties};

/// The path of bytes between a file and device memory, as cuFile reports it.
///
/// The mode is the best that the library can do on this machine. Files on storage unknown to it go through host memory,
/// unless its configuration forbids that (`allow_compat_mode` in `cufile.json`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectMode {
    /// The disk reaches the GPU's memory, by the kernel module nvidia-fs.
    NvidiaFs,
    /// The disk reaches the GPU's memory, by PCI peer-to-peer DMA in the kernel itself.
    P2pDma,
    /// The library copies through host memory itself.
    Compatibility,
}

impl DirectMode {
    /// The mode's name: "nvidia-fs", "P2PDMA" or "compatibility mode".
    pub fn name(self) -> &'static str {
        match self {
            Self::NvidiaFs => "nvidia-fs",
            Self::P2pDma => "P2PDMA",
            Self::Compatibility => "compatibility mode",
        }
    }

    fn of(properties: &Properties) -> Self {
        // Bit 4 of `features` is CU_FILE_P2P_SUPPORTED. Bit 11 of `storage` is CU_FILE_NVME_P2P_SUPPORTED, which older
        // libraries set in its place.
        let is_p2p = properties.features & 1 << 4 != 0 || properties.storage & 1 << 11 != 0;
        match (properties.major, properties.minor) {
            (0, 0) if is_p2p => Self::P2pDma,
            (0, 0) => Self::Compatibility,
            _ => Self::NvidiaFs,
        }
    }
}

impl fmt::Display for DirectMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// cuFile, opened for a device. Files opened by it keep it open.
///
/// The loader finds the library `libcufile.so.0`, or `libcufile.so`, in `LD_LIBRARY_PATH` for example. `/etc/cufile.json`, or the file
/// that `CUFILE_ENV_PATH_JSON` names, configures it. The library writes a `cufile.log` to the working directory.
///
/// ```no_run
/// use std::os::fd::AsFd;
/// use tierflow_device::cuda::DirectFiles;
/// use tierflow_device::{Choice, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = open(Choice::Cuda { ordinal: 0 })?;
/// let files = DirectFiles::open(&device)?;
/// println!("{}", files.mode());
/// let file = std::fs::File::options().read(true).write(true).create(true).open("field")?;
/// let file = files.file(file.as_fd())?;
/// let field = device.alloc(1 << 20)?;
/// file.write(0, &field.lend(0..1 << 20)?)?;
/// file.read(0, &mut field.lend_mut(0..1 << 20)?)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DirectFiles {
    driver: Arc<Driver>,
}

/// The open library. Dropping it closes the library.
struct Driver {
    library: Library,
    device: Device,
    mode: DirectMode,
    version: Option<(u32, u32)>,
}

impl DirectFiles {
    /// Loads and opens the library, which takes a few tenths of a second.
    ///
    /// # Errors
    ///
    /// [`DirectError::NoLibrary`] if the library cannot be loaded; [`DirectError::NoModules`] without `/proc/modules`;
    /// [`DirectError::Driver`] if the library does not open; [`DirectError::Device`] if the device is no CUDA device, or
    /// failed.
    pub fn open(device: &Device) -> Result<Self, DirectError> {
        let library = Library::load()?;
        let what = "cuFile";
        let cuda = device
            .as_cuda()
            .ok_or(Error::from(Invalid::NotCuda { what }))?;
        File::open("/proc/modules").map_err(|_| DirectError::NoModules)?;
        let _entered = cuda.context.enter()?;
        // SAFETY: the library counts how often it is opened and closed; a context is current.
        let opened = unsafe { (library.open)() };
        opened.checked().map_err(DirectError::Driver)?;
        // From here on, dropping `driver` closes the library.
        let mut driver = Driver {
            library,
            device: device.clone(),
            mode: DirectMode::Compatibility,
            version: None,
        };
        let mut properties = Properties::default();
        // SAFETY: `properties` is a live value, longer than any version of the library writes.
        let asked = unsafe { (driver.library.properties)(&raw mut properties) };
        asked.checked().map_err(DirectError::Driver)?;
        driver.mode = DirectMode::of(&properties);
        driver.version = driver.library.version.and_then(|version| {
            let mut number = 0;
            // SAFETY: `number` is a live value.
            let asked = unsafe { version(&raw mut number) };
            let number = u32::try_from(number).ok()?;
            asked.checked().ok()?;
            Some((number / 1000, number % 1000 / 10))
        });
        Ok(Self {
            driver: Arc::new(driver),
        })
    }

    /// Returns the path of bytes between files and this device.
    pub fn mode(&self) -> DirectMode {
        self.driver.mode
    }

    /// Returns the library's version, major and minor; `None` if the library does not tell it.
    pub fn version(&self) -> Option<(u32, u32)> {
        self.driver.version
    }

    /// Registers a file that is open for reading and writing. The library opens the file a second time by its name,
    /// which may be removed once this returns; a file opened without a name (`O_TMPFILE`) is refused. With `O_DIRECT`
    /// bytes bypass the page cache.
    ///
    /// # Errors
    ///
    /// [`DirectError::File`] if the library refuses the file; [`DirectError::Device`] if too many files are open, or the
    /// device failed.
    pub fn file(&self, file: BorrowedFd<'_>) -> Result<DirectFile, DirectError> {
        let driver = Arc::clone(&self.driver);
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0)
            .map_err(|errno| Error::system("duplicating a descriptor", errno))?;
        let _entered = driver.cuda()?.context.enter()?;
        let mut description = Description::of_descriptor(file.as_raw_fd());
        let mut handle = std::ptr::null_mut();
        // SAFETY: both are live values; the descriptor is open, and ours until the file is deregistered.
        let registered =
            unsafe { (driver.library.register)(&raw mut handle, &raw mut description) };
        registered.checked().map_err(DirectError::File)?;
        Ok(DirectFile {
            driver,
            handle,
            _file: file,
        })
    }
}

impl Driver {
    fn cuda(&self) -> Result<&super::Cuda, Error> {
        let what = "cuFile";
        self.device
            .as_cuda()
            .ok_or_else(|| Invalid::NotCuda { what }.into())
    }

    /// Checks that the library may touch these bytes: they are this device's memory, without a peer's chunk.
    fn check(&self, memory: &Memory, range: &std::ops::Range<usize>) -> Result<(), DirectError> {
        let overlaps =
            |chunk: &std::ops::Range<usize>| chunk.start < range.end && range.start < chunk.end;
        let chunks = memory.chunks().lock();
        let mut touched = chunks.iter().filter(|chunk| overlaps(&chunk.range));
        let is_own = touched.all(|chunk| matches!(*chunk.behind, ChunkMemory::Device { .. }));
        match memory.place() == Place::Device && memory.device().is_same(&self.device) && is_own {
            true => Ok(()),
            false => Err(DirectError::Memory),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let entered = self.cuda().and_then(|cuda| cuda.context.enter());
        if entered.is_ok() {
            // SAFETY: the library was opened once for this value. All its files are deregistered, as each file keeps this
            // value alive.
            let _ = unsafe { (self.library.close)() };
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("mode", &self.mode)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A file registered with cuFile: see [`DirectFiles::file`]. The value has its own descriptor.
///
/// Offsets and lengths are arbitrary. If one is no multiple of 4 KiB, the bytes pass through one more buffer.
pub struct DirectFile {
    driver: Arc<Driver>,
    handle: FileHandle,
    _file: OwnedFd,
}

// SAFETY: the handle is a name that the library accepts from any thread; the library locks.
unsafe impl Send for DirectFile {}
// SAFETY: as above; only the owner deregisters the file.
unsafe impl Sync for DirectFile {}

impl DirectFile {
    /// Fills memory with the file's bytes from `offset` on. Returns when all are there.
    ///
    /// # Errors
    ///
    /// [`DirectError::Memory`] and [`DirectError::Offset`] change nothing; after [`DirectError::Short`], [`DirectError::Io`] and
    /// [`DirectError::Failed`] the memory's bytes are unspecified.
    pub fn read(&self, offset: u64, memory: &mut WriteLoan) -> Result<(), DirectError> {
        self.driver.check(memory.memory(), &memory.range())?;
        let target = pointer(memory.address());
        let read = |at, length, done| {
            // SAFETY: the `length` bytes from `done` on lie within the loan. Until the call returns, the loan keeps these bytes mapped
            // and all others out of them. The handle is registered, and the context current.
            unsafe { (self.driver.library.read)(self.handle, target, length, at, done) }
        };
        self.each("reading", offset, memory.len(), read)
    }

    /// Writes memory's bytes to the file from `offset` on. Returns when the file has them; `fsync` makes them durable.
    ///
    /// # Errors
    ///
    /// [`DirectError::Memory`] and [`DirectError::Offset`] change nothing; after [`DirectError::Short`], [`DirectError::Io`]
    /// and [`DirectError::Failed`] the file's bytes there are unspecified.
    pub fn write(&self, offset: u64, memory: &ReadLoan) -> Result<(), DirectError> {
        self.driver.check(memory.memory(), &memory.range())?;
        let source: *const c_void = pointer(memory.address());
        let write = |at, length, done| {
            // SAFETY: as in `read`, except that others may read these bytes too.
            unsafe { (self.driver.library.write)(self.handle, source, length, at, done) }
        };
        self.each("writing", offset, memory.len(), write)
    }

    /// Calls `go(file offset, length, memory offset)` until all bytes are moved, as one call may move fewer.
    fn each(
        &self,
        doing: &'static str,
        offset: u64,
        bytes: usize,
        go: impl Fn(i64, usize, i64) -> isize,
    ) -> Result<(), DirectError> {
        let end = i64::try_from(bytes)
            .ok()
            .and_then(|bytes| i64::try_from(offset).ok()?.checked_add(bytes));
        let end = end.ok_or(DirectError::Offset { offset, bytes })?;
        let _entered = self.driver.cuda()?.context.enter()?;
        let mut done = 0;
        while done < bytes {
            let left = bytes - done;
            done += match go(end - left as i64, left, done as i64) {
                0 => {
                    return Err(DirectError::Short {
                        doing,
                        offset,
                        bytes,
                        done,
                    });
                }
                moved @ 1.. => usize::try_from(moved).map_or(left, |moved| moved.min(left)),
                -1 => {
                    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
                    return Err(DirectError::Io {
                        doing,
                        offset,
                        bytes,
                        errno,
                    });
                }
                code => {
                    let cufile = c_int::try_from(code.unsigned_abs()).unwrap_or(c_int::MAX);
                    let status = StatusCode { cufile, cuda: 0 };
                    return Err(DirectError::Failed {
                        doing,
                        offset,
                        bytes,
                        status,
                    });
                }
            };
        }
        Ok(())
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // SAFETY: registered once, and used by nothing any more. The descriptor is closed after this.
        unsafe { (self.driver.library.deregister)(self.handle) };
    }
}

impl fmt::Debug for DirectFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectFile")
            .field("driver", &self.driver)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choice, open};

    #[test]
    fn what_the_driver_says_of_itself_is_its_mode() {
        let mode = |major, storage, features| {
            let mut properties = Properties::default();
            (properties.major, properties.storage) = (major, storage);
            properties.features = features;
            DirectMode::of(&properties)
        };
        assert_eq!(mode(0, 0, 0xf), DirectMode::Compatibility);
        assert_eq!(mode(0, 0, 0x1f), DirectMode::P2pDma);
        assert_eq!(mode(0, 1 << 11, 0), DirectMode::P2pDma);
        assert_eq!(mode(2, 1 << 4, 0xf), DirectMode::NvidiaFs);
    }

    #[test]
    fn codes_have_their_names() {
        let said = |cufile| StatusCode { cufile, cuda: 201 }.to_string();
        assert_eq!(said(5031), "CU_FILE_GETNEWFD_FAILED (5031)");
        assert_eq!(said(5999), "code 5999");
        assert!(said(5011).ends_with("CUDA error 201"));
    }

    #[test]
    fn memory_of_the_host_has_no_direct_files() {
        let device = open(Choice::Host).unwrap();
        let error = DirectFiles::open(&device).unwrap_err();
        assert!(
            matches!(
                error,
                DirectError::NoLibrary { .. } | DirectError::Device(_)
            ),
            "{error}"
        );
    }
}
