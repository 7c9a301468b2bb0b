//! The host back end: plain memory in the place of a device's, and copies made by the calling thread. Programs run the
//! same, without a GPU or a driver.

mod links;
mod memory;
mod share;
mod stream;

#[cfg(feature = "testing")]
pub use links::{LinkCopy, OnLink};
#[cfg(feature = "testing")]
pub use stream::LateEnds;

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::advice::{Advice, RangeAttribute};
use crate::backend::{Backend, ChunkMemory, Exportable, Queue};
use crate::device::Device;
use crate::error::{Invalid, Result, not_cuda};
use crate::info::PeerLink;
use crate::info::Place;
use crate::info::{Info, Kind};
use crate::pages;
use crate::pinned::Pinned;
use links::Links;

/// Options of the host back end.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of device memory; `None` for as much as the machine has. An allocation or mapping beyond them fails with
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), as on a GPU.
    pub device_bytes: Option<u64>,
    /// The device's number. Devices of different numbers are different devices, and peers of one another.
    pub ordinal: usize,
    links: Links,
}

impl Options {
    /// Returns these options with `bytes` of device memory.
    #[must_use]
    pub fn device_bytes(mut self, bytes: u64) -> Self {
        self.device_bytes = Some(bytes);
        self
    }

    /// Returns these options with the number `ordinal` in place of 0.
    #[must_use]
    pub fn ordinal(mut self, ordinal: usize) -> Self {
        self.ordinal = ordinal;
        self
    }

    /// Returns these options with a function that is called before each copy over a link of the device, on the thread that copies. A
    /// function that waits makes the link as slow as a real one.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn on_link(mut self, on_link: OnLink) -> Self {
        self.links = Links::heard_by(on_link);
        self
    }
}

/// Opens the host back end.
///
/// # Errors
///
/// None today. All functions that open a device return a `Result`.
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

/// Makes a stream whose events are reached on demand, for tests of code that runs after a device's work. The stream copies at
/// once. Each call of [`LateEnds::reach_next`] reaches the next event, in their order; a `Transfer` has one too.
///
/// # Errors
///
/// [`Invalid::OtherDevice`] for a device of another back end.
#[cfg(feature = "testing")]
pub fn late_stream(device: &Device) -> Result<(crate::Stream, LateEnds)> {
    let host = device.backend().as_any().downcast_ref::<Host>();
    host.ok_or(Invalid::OtherDevice)?;
    let ends = LateEnds::default();
    let late = Some(ends.clone());
    let links = Links::default();
    let queue = Box::new(stream::InlineQueue { late, links });
    Ok((crate::Stream::of(device, queue), ends))
}

#[derive(Debug)]
pub(crate) struct Host {
    info: Info,
    /// Bytes of device memory in use. Exported chunks count, and may outlive the device.
    used: Arc<AtomicU64>,
    /// Bytes of host memory locked by this device.
    locked: AtomicU64,
    links: Links,
}

impl Host {
    pub(crate) fn new(options: Options) -> Self {
        let (available, total) = pages::main_memory();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let info = Info {
            kind: Kind::Host,
            ordinal: options.ordinal,
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
            used: Arc::default(),
            locked: AtomicU64::new(0),
            links: options.links,
        }
    }

    /// Returns the device that owns the memory of a mapping.
    fn owner<'a>(&'a self, behind: &'a ChunkMemory) -> Result<&'a Self> {
        match behind {
            ChunkMemory::Peer { device } => {
                let peer = device.backend().as_any().downcast_ref();
                peer.ok_or_else(|| Invalid::OtherDevice.into())
            }
            _ => Ok(self),
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

    fn granularity(&self, behind: &ChunkMemory) -> Result<usize> {
        match behind {
            ChunkMemory::Host { .. } => Err(not_cuda("host memory in chunks of the driver's")),
            _ => Ok(self.info.granularity),
        }
    }

    unsafe fn map(&self, address: u64, len: usize, behind: &ChunkMemory) -> Result<()> {
        let shared = match behind {
            ChunkMemory::Exported(chunk) => chunk.fd(),
            ChunkMemory::Imported(memory) => memory.as_fd(),
            _ => {
                let owner = self.owner(behind)?;
                // SAFETY: the caller's promise; every device is memory of this process.
                unsafe { owner.map_pages(address, len) }?;
                if let ChunkMemory::Peer { .. } = behind {
                    self.links.mapped(address, len, owner.info.ordinal);
                }
                return Ok(());
            }
        };
        share::check(shared, len)?;
        // SAFETY: the caller's promise; the file has at least `len` bytes, and its seal keeps them.
        unsafe { pages::map_file(address, len, shared) }
    }

    unsafe fn unmap(&self, address: u64, len: usize, behind: &ChunkMemory) {
        match (behind, self.owner(behind)) {
            // SAFETY: the caller's promise.
            (ChunkMemory::Device { .. } | ChunkMemory::Peer { .. }, Ok(owner)) => unsafe {
                self.links.unmapped(address);
                owner.unmap_pages(address, len);
            },
            // SAFETY: the caller's promise.
            _ => unsafe { pages::decommit(address, len) },
        }
    }

    unsafe fn release(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise: it came from `reserve_empty`, and is not used any more.
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

    unsafe fn advise(&self, _address: u64, _len: usize, _advice: Advice) -> Result<()> {
        Err(not_cuda("advice on managed memory"))
    }

    unsafe fn range_attribute(
        &self,
        _address: u64,
        _len: usize,
        _what: RangeAttribute,
    ) -> Result<Option<Place>> {
        Err(not_cuda("the place of managed memory"))
    }

    fn export(&self, len: usize) -> Result<Arc<dyn Exportable>> {
        self.take(len, "exported memory")?;
        match share::ExportedFile::new(len, &self.used) {
            Ok(chunk) => Ok(Arc::new(chunk)),
            Err(error) => {
                self.used.fetch_sub(len as u64, Relaxed);
                Err(error)
            }
        }
    }

    fn link_to(&self, _peer: usize) -> Result<Option<PeerLink>> {
        // The processor reaches the memory of all host devices, and atomic operations work on all of it.
        Ok(Some(PeerLink {
            performance_rank: 0,
            native_atomics: true,
        }))
    }

    fn bus_id(&self) -> Option<String> {
        None
    }

    fn numa_node(&self) -> Option<u32> {
        None
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(stream::InlineQueue {
            late: None,
            links: self.links.clone(),
        }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
