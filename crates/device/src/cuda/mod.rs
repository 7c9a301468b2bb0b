//! The CUDA back end: the driver API, loaded when a GPU is asked for.
//!
//! The back end uses the device's primary context, as do the CUDA runtime and the libraries on top of it. So they can
//! use each other's addresses.

mod completion;
mod context;
mod cufile;
#[cfg(feature = "testing")]
mod failing;
mod foreign;
mod host_memory;
mod managed;
mod memory;
mod module;
mod parts;
mod share;
mod stream;

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::advice::{Advice, RangeAttribute};
use crate::backend::{Backend, ChunkMemory, Exportable, Queue};
use crate::device::Device;
use crate::error::{Result, Unavailable};
use crate::info::PeerLink;
use crate::info::Place;
use crate::info::{Info, Kind};
use crate::numa;
use crate::pinned::Pinned;

pub use context::Entered;
use context::{Context, checked};
pub use cufile::{DirectError, DirectFile, DirectFiles, DirectMode, StatusCode};
#[cfg(feature = "testing")]
pub use failing::Failure;
pub use module::{Arg, Function, Launch, Module};

/// The CUDA side of a [`Device`]: see [`Device::as_cuda`].
#[derive(Debug)]
pub struct Cuda {
    context: Arc<Context>,
    info: Info,
    parts: parts::Kernel,
}

/// Opens a GPU.
pub(crate) fn open(ordinal: usize) -> Result<Cuda> {
    let (context, driver_version) = Context::retain(ordinal)?;
    if context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)? == 0
    {
        let feature = "virtual memory management";
        return Err(Unavailable::MissingFeature { ordinal, feature }.into());
    }
    let multiprocessors = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let name = checked(
        "cuDeviceGetName",
        result::device::get_name(context.device()),
    )?;
    let own = ChunkMemory::Device { peers: Vec::new() };
    let granularity = memory::granularity(&context, &own)?;
    let (free_bytes, total_bytes) = memory::free_and_total(&context)?;
    let info = Info {
        kind: Kind::Cuda,
        ordinal,
        name,
        total_bytes,
        free_bytes,
        multiprocessors: u32::try_from(multiprocessors).unwrap_or(0),
        granularity,
        driver_version,
        host_accessible: false,
    };
    Ok(Cuda {
        context: Arc::new(context),
        info,
        parts: parts::Kernel::default(),
    })
}

// SAFETY: `memory` returns memory that the driver allocated or reserved for this caller alone, and frees it only when
// told to. The host cannot access it.
unsafe impl Backend for Cuda {
    fn info(&self) -> &Info {
        &self.info
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(memory::free_and_total(&self.context)?.0)
    }

    fn alloc(&self, len: usize) -> Result<u64> {
        memory::alloc(&self.context, len)
    }

    unsafe fn free(&self, address: u64, _len: usize) {
        // SAFETY: the caller's promise.
        unsafe { memory::free(&self.context, address) }
    }

    fn reserve(&self, len: usize) -> Result<u64> {
        memory::reserve(&self.context, len)
    }

    fn granularity(&self, behind: &ChunkMemory) -> Result<usize> {
        memory::granularity(&self.context, behind)
    }

    unsafe fn map(&self, address: u64, len: usize, behind: &ChunkMemory) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { memory::map(&self.context, address, len, behind) }
    }

    unsafe fn unmap(&self, address: u64, len: usize, _behind: &ChunkMemory) {
        // SAFETY: the caller's promise.
        unsafe { memory::unmap(&self.context, address, len) }
    }

    unsafe fn release(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { memory::release(&self.context, address, len) }
    }

    unsafe fn pin(&self, address: u64, len: usize) -> Result<Pinned> {
        // SAFETY: the caller's promise.
        unsafe { host_memory::pin(&self.context, address, len) }
    }

    unsafe fn unpin(&self, address: u64, _len: usize) {
        // SAFETY: the caller's promise.
        unsafe { host_memory::unpin(&self.context, address) }
    }

    fn alloc_pinned(&self, len: usize) -> Result<u64> {
        host_memory::alloc_pinned(&self.context, len)
    }

    unsafe fn free_pinned(&self, address: u64) {
        // SAFETY: the caller's promise.
        unsafe { host_memory::free_pinned(&self.context, address) }
    }

    fn alloc_managed(&self, len: usize) -> Result<u64> {
        managed::alloc(&self.context, len)
    }

    unsafe fn free_managed(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { managed::free(&self.context, address, len) }
    }

    unsafe fn advise(&self, address: u64, len: usize, advice: Advice) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { managed::advise(&self.context, address, len, advice) }
    }

    unsafe fn range_attribute(
        &self,
        address: u64,
        len: usize,
        what: RangeAttribute,
    ) -> Result<Option<Place>> {
        // SAFETY: the caller's promise.
        unsafe { managed::range_attribute(&self.context, address, len, what) }
    }

    fn export(&self, len: usize) -> Result<Arc<dyn Exportable>> {
        Ok(Arc::new(share::ExportedAllocation::new(
            &self.context,
            len,
        )?))
    }

    fn link_to(&self, peer: usize) -> Result<Option<PeerLink>> {
        self.context.link_to(peer)
    }

    fn bus_id(&self) -> Option<String> {
        self.context.bus_id().ok()
    }

    fn numa_node(&self) -> Option<u32> {
        numa::node_of_pci(&self.context.bus_id().ok()?)
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(stream::CudaQueue::new(self)?))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Device {
    /// Returns the CUDA side of the device, for kernels; `None` on the host back end.
    pub fn as_cuda(&self) -> Option<&Cuda> {
        self.backend().as_any().downcast_ref()
    }
}
