//! Device memory: whole (`cuMemAlloc`), or as addresses that get chunks of memory behind them
//! (virtual memory management).

use std::os::fd::AsFd;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};

use super::context::{Context, checked, failure};
use super::share;
use crate::backend::ChunkMemory;
use crate::error::out_of_memory;
use crate::error::{Error, Result};

pub(super) fn free_and_total(context: &Context) -> Result<(u64, u64)> {
    let _entered = context.enter()?;
    let (free, total) = checked("cuMemGetInfo", result::mem_get_info())?;
    Ok((free as u64, total as u64))
}

/// Translates the driver's refusal, which mostly means out of memory.
pub(super) fn refused(
    context: &Context,
    what: &'static str,
    len: usize,
    error: DriverError,
) -> Error {
    if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        let free = free_and_total(context).map_or(0, |(free, _)| free);
        return out_of_memory(what, len, free);
    }
    failure(what, error)
}

pub(super) fn alloc(context: &Context, len: usize) -> Result<u64> {
    let _entered = context.enter()?;
    // SAFETY: the context is current; the memory is uninitialised, which no host code can read.
    let allocated = unsafe { result::malloc_sync(len) };
    allocated.map_err(|error| refused(context, "device memory (cuMemAlloc)", len, error))
}

/// # Safety
/// `address` is of one `alloc`, and no work uses it.
pub(super) unsafe fn free(context: &Context, address: u64) {
    if let Ok(_entered) = context.enter() {
        // SAFETY: the caller's promise.
        let freed = unsafe { result::free_sync(address) };
        // Freeing fails only after the device failed, and then nothing is left to free.
        let _ = freed;
    }
}

/// Describes memory as the driver's virtual memory management expects it.
pub(super) fn described(
    location: sys::CUmemLocation,
    handles: sys::CUmemAllocationHandleType,
) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handles,
        location,
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Describes memory that only this process maps.
fn private(context: &Context, behind: &ChunkMemory) -> Result<sys::CUmemAllocationProp> {
    let none = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    Ok(described(location(context, behind)?, none))
}

fn location(context: &Context, behind: &ChunkMemory) -> Result<sys::CUmemLocation> {
    Ok(match behind {
        ChunkMemory::Peer { device: peer } => numbered(peer.info().ordinal)?,
        ChunkMemory::Host { node } => sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA,
            id: i32::try_from(*node).unwrap_or(0),
        },
        _ => device(context.device()),
    })
}

/// Returns the location of device `ordinal`.
fn numbered(ordinal: usize) -> Result<sys::CUmemLocation> {
    let number = i32::try_from(ordinal).unwrap_or(-1);
    let found = checked("cuDeviceGet", result::device::get(number))?;
    Ok(device(found))
}

pub(super) fn device(id: i32) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id,
    }
}

/// Returns the locations that may access a mapping: this device, and the peers or the processor.
fn reached_by(context: &Context, behind: &ChunkMemory) -> Result<Vec<sys::CUmemLocation>> {
    let mut locations = vec![device(context.device())];
    match behind {
        ChunkMemory::Host { .. } => locations.push(location(context, behind)?),
        ChunkMemory::Device { peers } => {
            for &peer in peers {
                locations.push(numbered(peer)?);
            }
        }
        ChunkMemory::Peer { .. } | ChunkMemory::Exported(_) | ChunkMemory::Imported(_) => {}
    }
    Ok(locations)
}

/// Returns the granularity of chunks in bytes. The driver's recommended granularity gives larger and fewer pages.
pub(super) fn granularity(context: &Context, behind: &ChunkMemory) -> Result<usize> {
    let _entered = context.enter()?;
    let mut granularity = 0;
    let prop = private(context, behind)?;
    let flag = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    // SAFETY: both pointers are to live values of this frame.
    let asked =
        unsafe { sys::cuMemGetAllocationGranularity(&raw mut granularity, &raw const prop, flag) };
    checked("cuMemGetAllocationGranularity", asked.result())?;
    Ok(granularity.max(1))
}

pub(super) fn reserve(context: &Context, len: usize) -> Result<u64> {
    let _entered = context.enter()?;
    let mut address = 0;
    // SAFETY: `address` is a valid place for the answer; no address is asked for.
    let reserved = unsafe { sys::cuMemAddressReserve(&raw mut address, len, 0, 0, 0) };
    match reserved.result() {
        Ok(()) => Ok(address),
        Err(error) => Err(refused(
            context,
            "device addresses (cuMemAddressReserve)",
            len,
            error,
        )),
    }
}

/// # Safety
/// As for `Backend::map`.
pub(super) unsafe fn map(
    context: &Context,
    address: u64,
    len: usize,
    behind: &ChunkMemory,
) -> Result<()> {
    let _entered = context.enter()?;
    let access: Vec<_> = reached_by(context, behind)?
        .into_iter()
        .map(|location| sys::CUmemAccessDesc {
            location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        })
        .collect();
    let handle = obtain(context, len, behind)?;
    // SAFETY: the range is reserved, aligned and not mapped, by the caller's promise. The driver
    // refuses a handle of fewer bytes.
    let mapped = unsafe { sys::cuMemMap(address, len, 0, handle.0, 0) };
    // The mapping alone holds the memory from here on; without a mapping the driver frees it.
    let released = handle.release();
    checked("cuMemMap", mapped.result())?;
    // SAFETY: the range was mapped just above; `access` is an array of as many live descriptors.
    let granted = unsafe { sys::cuMemSetAccess(address, len, access.as_ptr(), access.len()) };
    let ready = released.and_then(|()| checked("cuMemSetAccess", granted.result()));
    if ready.is_err() {
        // SAFETY: mapped above with this range, which no caller knows yet.
        unsafe { unmap(context, address, len) };
    }
    ready
}

/// A handle of memory, and true if the caller must release it.
struct AllocationHandle(sys::CUmemGenericAllocationHandle, bool);

impl AllocationHandle {
    fn release(self) -> Result<()> {
        if !self.1 {
            return Ok(());
        }
        // SAFETY: obtained by the maker of this value, and released once, as it is consumed.
        let released = unsafe { sys::cuMemRelease(self.0) };
        checked("cuMemRelease", released.result())
    }
}

fn obtain(context: &Context, len: usize, behind: &ChunkMemory) -> Result<AllocationHandle> {
    match behind {
        ChunkMemory::Exported(chunk) => share::ExportedAllocation::of(chunk.as_ref())
            .map(|handle| AllocationHandle(handle, false)),
        ChunkMemory::Imported(memory) => {
            share::import(memory.as_fd()).map(|handle| AllocationHandle(handle, true))
        }
        _ => {
            let what = match behind {
                ChunkMemory::Host { .. } => "a chunk of host memory (cuMemCreate)",
                _ => "a chunk of device memory (cuMemCreate)",
            };
            let prop = private(context, behind)?;
            create(context, len, &prop, what).map(|handle| AllocationHandle(handle, true))
        }
    }
}

/// Creates memory without an address; the context is current.
pub(super) fn create(
    context: &Context,
    len: usize,
    prop: &sys::CUmemAllocationProp,
    what: &'static str,
) -> Result<sys::CUmemGenericAllocationHandle> {
    let mut handle = 0;
    // SAFETY: both pointers are to live values; `len` is a multiple of the granularity, or refused.
    let created = unsafe { sys::cuMemCreate(&raw mut handle, len, prop, 0) };
    match created.result() {
        Ok(()) => Ok(handle),
        Err(error) => Err(refused(context, what, len, error)),
    }
}

/// # Safety
/// As for `Backend::unmap`.
pub(super) unsafe fn unmap(context: &Context, address: u64, len: usize) {
    if let Ok(_entered) = context.enter() {
        // SAFETY: the caller's promise: one mapping, whole, that no work uses.
        let unmapped = unsafe { sys::cuMemUnmap(address, len) };
        // Unmapping fails only after the device failed, and then nothing is left to unmap.
        let _ = unmapped;
    }
}

/// # Safety
/// As for `Backend::release`.
pub(super) unsafe fn release(context: &Context, address: u64, len: usize) {
    if let Ok(_entered) = context.enter() {
        // SAFETY: the caller's promise: one reservation, whole, with nothing mapped.
        let freed = unsafe { sys::cuMemAddressFree(address, len) };
        // As in `unmap`.
        let _ = freed;
    }
}
