//! Managed memory, which the driver moves between host and device: advice, and prefetches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUmem_advise as Flag, CUresult};

use super::context::{Context, checked, failure};
use super::memory::{device, free_and_total, refused};
use crate::advice::{Advice, RangeAttribute};
use crate::error::out_of_memory;
use crate::error::{Result, Unavailable};
use crate::info::Place;

/// Bytes of managed memory of this process. All GPUs have one count, as they share the link to the host.
static MANAGED: AtomicU64 = AtomicU64::new(0);

pub(super) fn alloc(context: &Context, len: usize) -> Result<u64> {
    const WHAT: &str = "managed memory, which may take what the device has free";
    let free = free_and_total(context)?.0;
    // Before the count is raised, as an error here would leave it raised.
    let _entered = context.enter()?;
    // Relaxed: the count guards no other data.
    let within = MANAGED.fetch_update(Relaxed, Relaxed, |managed| {
        managed
            .checked_add(len as u64)
            .filter(|&managed| managed <= free)
    });
    if let Err(managed) = within {
        return Err(out_of_memory(WHAT, len, free.saturating_sub(managed)));
    }
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
pub(super) unsafe fn free(context: &Context, address: u64, len: usize) {
    // SAFETY: the caller's promise; the driver frees managed memory as it does its own.
    unsafe { super::memory::free(context, address) };
    MANAGED.fetch_sub(len as u64, Relaxed);
}

/// # Safety
/// As for `Backend::advise`.
pub(super) unsafe fn advise(
    context: &Context,
    address: u64,
    len: usize,
    advice: Advice,
) -> Result<()> {
    let own = device(context.device());
    let (flag, location) = match advice {
        Advice::PreferredLocation(place) => (
            Flag::CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            location(context, place),
        ),
        // The driver ignores the location here.
        Advice::NoPreferredLocation => (Flag::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, own),
        Advice::AccessedByDevice => (Flag::CU_MEM_ADVISE_SET_ACCESSED_BY, own),
        Advice::NotAccessedByDevice => (Flag::CU_MEM_ADVISE_UNSET_ACCESSED_BY, own),
    };
    let _entered = context.enter()?;
    // SAFETY: the caller's promise: live managed memory. Advice changes where bytes lie and which side has them
    // mapped, and no content, even while they are read or written.
    let advised = unsafe { sys::cuMemAdvise_v2(address, len, flag, location) };
    answered(context, "cuMemAdvise", len, advised.result())
}

/// # Safety
/// As for `Queue::prefetch`; `stream` is alive and of this context.
pub(super) unsafe fn prefetch(
    context: &Context,
    address: u64,
    len: usize,
    to: Place,
    stream: sys::CUstream,
) -> Result<()> {
    let to = location(context, to);
    let _entered = context.enter()?;
    // SAFETY: the caller's promise: managed memory that lives until the move is done, and a live stream.
    // The driver keeps the bytes coherent for all that read or write them meanwhile. There are no flags.
    let enqueued = unsafe { sys::cuMemPrefetchAsync_v2(address, len, to, 0, stream) };
    answered(context, "cuMemPrefetchAsync", len, enqueued.result())
}

/// # Safety
/// As for `Backend::range_attribute`.
pub(super) unsafe fn range_attribute(
    context: &Context,
    address: u64,
    len: usize,
    what: RangeAttribute,
) -> Result<Option<Place>> {
    use sys::CUmem_range_attribute as Range;
    let attribute = match what {
        RangeAttribute::PreferredLocation => Range::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
        RangeAttribute::LastPrefetch => Range::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
    };
    let mut found: sys::CUdevice = 0;
    let answer = (&raw mut found).cast();
    let _entered = context.enter()?;
    // SAFETY: the caller's promise: live managed memory; `answer` is a valid place for the four bytes that
    // both attributes have.
    let asked = unsafe { sys::cuMemRangeGetAttribute(answer, 4, attribute, address, len) };
    checked("cuMemRangeGetAttribute", asked.result())?;
    /// `CU_DEVICE_CPU`.
    const HOST: sys::CUdevice = -1;
    Ok(match found {
        HOST => Some(Place::Host),
        own if own == context.device() => Some(Place::Device),
        _ => None,
    })
}

fn location(context: &Context, place: Place) -> sys::CUmemLocation {
    match place {
        Place::Device => device(context.device()),
        Place::Host => sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
            id: 0,
        },
    }
}

/// Translates the driver's answer. A GPU that cannot share memory with a running processor is "invalid" to the driver.
fn answered(
    context: &Context,
    call: &'static str,
    len: usize,
    answer: Result<(), DriverError>,
) -> Result<()> {
    let error = match answer {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let can = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
    Err(match error.0 {
        CUresult::CUDA_ERROR_INVALID_DEVICE if can == Ok(0) => Unavailable::MissingFeature {
            ordinal: usize::try_from(context.device()).unwrap_or(0),
            feature: "concurrent access to managed memory",
        }
        .into(),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => refused(context, call, len, error),
        _ => failure(call, error),
    })
}
