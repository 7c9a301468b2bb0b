//! Host memory that the device reaches: registered, or allocated by the driver.

use cudarc::driver::sys;

use super::context::{Context, failure};
use crate::error::out_of_memory;
use crate::error::{Error, Result};
use crate::pages;
use crate::pinned::{Pinned, WhyUnpinned};

pub(super) fn alloc_pinned(context: &Context, len: usize) -> Result<u64> {
    let _entered = context.enter()?;
    let mut address = std::ptr::null_mut();
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
    // SAFETY: `address` is a valid place for the answer, and the context is current. The bytes are initialised: the
    // system hands out cleared pages, and the driver may hand out pages of an earlier allocation again.
    let allocated = unsafe { sys::cuMemHostAlloc(&raw mut address, len, flags) };
    match allocated.result() {
        Ok(()) => Ok(address.expose_provenance() as u64),
        Err(error) => Err(match failure("cuMemHostAlloc", error) {
            lost @ Error::Lost { .. } => lost,
            // The driver does not tell which memory ran out.
            _ => out_of_memory(
                "pinned host memory (cuMemHostAlloc)",
                len,
                pages::main_memory().0,
            ),
        }),
    }
}

/// # Safety
/// As for `Backend::free_pinned`.
pub(super) unsafe fn free_pinned(context: &Context, address: u64) {
    if let Ok(_entered) = context.enter() {
        // SAFETY: the caller's promise.
        let freed = unsafe { sys::cuMemFreeHost(pages::pointer(address)) };
        // Freeing fails only after the device failed, and then nothing is left to free.
        let _ = freed;
    }
}

/// # Safety
/// As for `Backend::pin`.
pub(super) unsafe fn pin(context: &Context, address: u64, len: usize) -> Result<Pinned> {
    let _entered = context.enter()?;
    let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
    // SAFETY: the caller's promise: mapped host memory, not pinned, that stays until `unpin`.
    let pinned = unsafe { sys::cuMemHostRegister_v2(pages::pointer(address), len, flags) };
    match pinned
        .result()
        .map_err(|error| failure("cuMemHostRegister", error))
    {
        Ok(()) => Ok(Pinned::Yes),
        Err(lost @ Error::Lost { .. }) => Err(lost),
        Err(refused) => Ok(Pinned::No(WhyUnpinned::Refused(Box::new(refused)))),
    }
}

/// # Safety
/// `address` is of one successful `pin`, and no work uses the piece.
pub(super) unsafe fn unpin(context: &Context, address: u64) {
    if let Ok(_entered) = context.enter() {
        // SAFETY: the caller's promise.
        let unpinned = unsafe { sys::cuMemHostUnregister(pages::pointer(address)) };
        // Unpinning fails only after the device failed, and then the driver holds nothing any more.
        let _ = unpinned;
    }
}
