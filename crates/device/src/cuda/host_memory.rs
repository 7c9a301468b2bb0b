//! Host memory that the device reaches: registered, allocated by the driver, or managed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cudarc::driver::sys;

use super::context::{Context, failure};
use super::memory::{free_and_total, refused};
use crate::error::{Error, Result};
use crate::host_reservation::{Pinned, WhyUnpinned};
use crate::memory::out_of_memory;
use crate::pages;

/// Bytes of managed memory that this process has, on whatever GPU: they share the way to the host.
static MANAGED: AtomicU64 = AtomicU64::new(0);

pub(super) fn alloc_pinned(context: &Context, len: usize) -> Result<u64> {
    let _entered = context.enter()?;
    let mut address = std::ptr::null_mut();
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
    // SAFETY: `address` is a valid place for the answer, and the context is current. The pages are
    // the system's, which hands out no page that is not cleared.
    let allocated = unsafe { sys::cuMemHostAlloc(&raw mut address, len, flags) };
    match allocated.result() {
        Ok(()) => Ok(address.expose_provenance() as u64),
        Err(error) => Err(match failure("cuMemHostAlloc", error) {
            lost @ Error::Lost { .. } => lost,
            // The driver does not say of which memory there is too little.
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
        // It fails only after the device has, and then there is nothing to give back.
        let _ = freed;
    }
}

pub(super) fn alloc_managed(context: &Context, len: usize) -> Result<u64> {
    const WHAT: &str = "managed memory, which may take half of what the device has free";
    let half = free_and_total(context)?.0 / 2;
    // Relaxed: the count guards no other data.
    let within = MANAGED.try_update(Relaxed, Relaxed, |managed| {
        managed
            .checked_add(len as u64)
            .filter(|&managed| managed <= half)
    });
    if let Err(managed) = within {
        return Err(out_of_memory(WHAT, len, half.saturating_sub(managed)));
    }
    let _entered = context.enter()?;
    let mut address = 0;
    let flags = sys::CUmemAttach_flags_enum::CU_MEM_ATTACH_GLOBAL as u32;
    // SAFETY: `address` is a valid place for the answer, and the context is current. The pages are
    // cleared before they are handed out.
    let allocated = unsafe { sys::cuMemAllocManaged(&raw mut address, len, flags) };
    match allocated.result() {
        Ok(()) => Ok(address),
        Err(error) => {
            MANAGED.fetch_sub(len as u64, Relaxed);
            Err(refused(context, "managed memory", len, error))
        }
    }
}

/// # Safety
/// As for `Backend::free_managed`.
pub(super) unsafe fn free_managed(context: &Context, address: u64, len: usize) {
    // SAFETY: the caller's promise; the driver frees managed memory as it does its own.
    unsafe { super::memory::free(context, address) };
    MANAGED.fetch_sub(len as u64, Relaxed);
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
        // It fails only after the device has, and then the driver holds nothing any more.
        let _ = unpinned;
    }
}
