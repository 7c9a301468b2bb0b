//! The host back end: plain memory in the place of a device's, and copies made by the calling
//! thread. The same program, with no GPU and no driver.

mod memory;
mod stream;

use std::any::Any;
use std::sync::atomic::AtomicU64;

use crate::backend::{Backend, Behind, Queue};
use crate::device::{Device, Info, Kind};
use crate::error::{Invalid, Result};
use crate::pages;
use crate::reservation::Pinned;

/// How the host back end is to behave.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of device memory that there are to be; `None` for all of the machine's memory. An
    /// allocation or mapping beyond it is out of memory, as on a GPU.
    pub device_bytes: Option<u64>,
}

impl Options {
    /// These options with so many bytes of device memory.
    #[must_use]
    pub fn device_bytes(mut self, bytes: u64) -> Self {
        self.device_bytes = Some(bytes);
        self
    }
}

/// Opens the host back end.
///
/// # Errors
///
/// None today; it returns a result as every other way to open a device does.
///
/// ```
/// # fn main() -> tierflow_device::Result<()> {
/// use tierflow_device::{Error, host};
/// let small = host::open(host::Options::default().device_bytes(1 << 20))?;
/// let held = small.alloc(1 << 20)?;
/// assert!(matches!(small.alloc(1), Err(Error::OutOfMemory { free: 0, .. })));
/// drop(held);
/// assert!(small.alloc(1).is_ok());
/// # Ok(()) }
/// ```
pub fn open(options: Options) -> Result<Device> {
    Ok(Device::new(Host::new(options), None))
}

#[derive(Debug)]
pub(crate) struct Host {
    info: Info,
    /// Bytes of device memory given out.
    used: AtomicU64,
    /// Bytes of host memory locked by this device.
    locked: AtomicU64,
}

impl Host {
    pub(crate) fn new(options: Options) -> Self {
        let (available, total) = pages::main_memory();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let info = Info {
            kind: Kind::Host,
            ordinal: 0,
            name: String::from("host memory"),
            total_bytes: options.device_bytes.unwrap_or(total),
            free_bytes: options.device_bytes.unwrap_or(available),
            multiprocessors: u32::try_from(threads).unwrap_or(u32::MAX),
            granularity: pages::page_size(),
            driver_version: 0,
            host_accessible: true,
        };
        Self {
            info,
            used: AtomicU64::new(0),
            locked: AtomicU64::new(0),
        }
    }
}

// SAFETY: `memory` hands out private anonymous mappings, which are zeroed, of the length asked
// for, and unmaps them only when told to.
unsafe impl Backend for Host {
    fn info(&self) -> &Info {
        &self.info
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(self.free())
    }

    fn alloc(&self, len: usize) -> Result<u64> {
        self.alloc_pages(len)
    }

    unsafe fn free(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.free_pages(address, len) }
    }

    fn reserve(&self, len: usize) -> Result<u64> {
        pages::reserve_empty(len)
    }

    fn granularity(&self, behind: &Behind) -> Result<usize> {
        match behind {
            Behind::Device { .. } => Ok(self.info.granularity),
            Behind::Host { .. } => Err(not_cuda("host memory in chunks of the driver's")),
        }
    }

    unsafe fn map(&self, address: u64, len: usize, _behind: &Behind) -> Result<()> {
        // `granularity` lets nothing but device memory through, and every device is this process.
        // SAFETY: the caller's promise.
        unsafe { self.map_pages(address, len) }
    }

    unsafe fn unmap(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.unmap_pages(address, len) }
    }

    unsafe fn release(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise: it came from `reserve_empty`, and nobody uses it.
        unsafe { pages::release(address, len) }
    }

    unsafe fn pin(&self, address: u64, len: usize) -> Result<Pinned> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.lock_pages(address, len) })
    }

    unsafe fn unpin(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.unlock_pages(address, len) }
    }

    fn alloc_pinned(&self, _len: usize) -> Result<u64> {
        Err(not_cuda("pinned memory of the driver's"))
    }

    unsafe fn free_pinned(&self, _address: u64) {}

    fn alloc_managed(&self, _len: usize) -> Result<u64> {
        Err(not_cuda("managed memory"))
    }

    unsafe fn free_managed(&self, _address: u64, _len: usize) {}

    fn can_share_with(&self, _peer: usize) -> Result<bool> {
        Ok(true)
    }

    fn numa_node(&self) -> Option<u32> {
        None
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(stream::Inline))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn not_cuda(what: &'static str) -> crate::error::Error {
    Invalid::NotCuda { what }.into()
}
