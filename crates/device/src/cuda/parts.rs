//! Many copies at once: one kernel launch for the copies within the device's reach, one call for those across the bus.

use std::sync::{Arc, OnceLock};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult, CUstream};

use super::context::{Context, checked};
use super::module::{Function, Module};
use crate::backend::Copy;
use crate::error::Result;
use crate::info::Place;

const PTX: &str = include_str!("../../ptx/copy_parts.ptx");

/// Threads of a block. `THREADS`, `TILE_BYTES` and `MAX_PARTS` equal the constants in the kernel's source.
const THREADS: u32 = 256;
const TILE_BYTES: u32 = 32 << 10;
const MAX_PARTS: usize = 1360;

/// The longest copy between host and device that shares a call with others, in bytes. Next to a longer copy, the time
/// of its call is short.
const SHORT_BYTES: usize = 4 << 20;
/// The longest copy that the kernel makes, in bytes.
const MOST_BYTES: usize = u32::MAX as usize;
/// Fewer copies than this are made one by one. The driver makes one copy faster than the kernel does, but takes 3 µs more for each further
/// one (H200, 128 MiB in 1, 4, 9, 17 parts: 69, 78, 92, 115 µs by the driver, 82, 79, 79, 80 µs by the kernel).
const MIN_BATCH: usize = 4;

/// The kernel of a device, loaded at first use. The inner `None` means that loading failed.
pub(super) type Kernel = Arc<OnceLock<Option<Function>>>;

/// An entry of the kernel's list.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct KernelPart {
    from: u64,
    to: u64,
    bytes: u32,
    /// Number of tiles in the parts before this one.
    first: u32,
}

/// The kernel's parameter, by value: its list of copies.
#[repr(C)]
struct KernelParts {
    count: u32,
    unused: u32,
    parts: [KernelPart; MAX_PARTS],
}

/// Copies sorted by the call that makes them.
pub(super) struct SortedCopies<'c> {
    /// Copies that the kernel makes.
    pub(super) within: Vec<&'c Copy>,
    /// Copies that one call makes together.
    pub(super) across: Vec<&'c Copy>,
    /// Copies that take one call each.
    pub(super) alone: Vec<&'c Copy>,
}

impl<'c> SortedCopies<'c> {
    pub(super) fn of(copies: &'c [Copy]) -> Self {
        let mut sorted = Self {
            within: Vec::new(),
            across: Vec::new(),
            alone: Vec::new(),
        };
        if copies.len() < MIN_BATCH {
            sorted.alone.extend(copies);
            return sorted;
        }
        for copy in copies {
            let list = match (copy.src_place, copy.dst_place) {
                (Place::Device, Place::Device) if copy.len <= MOST_BYTES => &mut sorted.within,
                _ if copy.len > SHORT_BYTES => &mut sorted.alone,
                // Measured: the kernel makes short copies to the device in half the driver's time; from the device it
                // gains nothing.
                (Place::Host, Place::Device) if copy.is_pinned => &mut sorted.within,
                (Place::Host, Place::Host) => &mut sorted.alone,
                _ => &mut sorted.across,
            };
            list.push(copy);
        }
        for few in [&mut sorted.within, &mut sorted.across] {
            if few.len() < MIN_BATCH {
                sorted.alone.append(few);
            }
        }
        sorted
    }
}

/// Returns the kernel; loads it at the first call. `None` if it cannot be loaded.
pub(super) fn kernel<'k>(kernel: &'k Kernel, context: &Arc<Context>) -> Option<&'k Function> {
    let load = || Module::load_in(context, PTX)?.function("copy_parts");
    // A lost device reports its loss at the next call.
    kernel.get_or_init(|| load().ok()).as_ref()
}

/// Launches the kernel for copies of at most [`MOST_BYTES`].
///
/// # Safety
/// As for `Queue::copy_many`, with the context current; all sources and targets are memory that the device reaches.
pub(super) unsafe fn launch(kernel: &Function, stream: CUstream, copies: &[&Copy]) -> Result<()> {
    let mut list = KernelParts {
        count: 0,
        unused: 0,
        parts: [KernelPart::default(); MAX_PARTS],
    };
    for some in copies.chunks(MAX_PARTS) {
        let mut tiles = 0;
        for (part, copy) in list.parts.iter_mut().zip(some) {
            let bytes = copy.len as u32;
            *part = KernelPart {
                from: copy.src,
                to: copy.dst,
                bytes,
                first: tiles,
            };
            tiles += bytes.div_ceil(TILE_BYTES);
        }
        list.count = some.len() as u32;
        let mut parameters = [std::ptr::from_mut(&mut list).cast()];
        // SAFETY: the kernel takes a list of this layout, and touches no byte beyond the list's copies, for which the
        // caller's promise holds. The driver copies the list during the call.
        let launched = unsafe {
            result::launch_kernel(
                kernel.handle(),
                (tiles, 1, 1),
                (THREADS, 1, 1),
                0,
                stream,
                &mut parameters,
            )
        };
        checked("cuLaunchKernel", launched)?;
    }
    Ok(())
}

/// Makes copies between host and device by one call of the driver.
///
/// # Safety
/// As for `Queue::copy_many`, with the context current.
pub(super) unsafe fn batch(stream: CUstream, copies: &[&Copy]) -> Result<(), DriverError> {
    let mut to: Vec<u64> = copies.iter().map(|copy| copy.dst).collect();
    let mut from: Vec<u64> = copies.iter().map(|copy| copy.src).collect();
    let mut bytes: Vec<usize> = copies.iter().map(|copy| copy.len).collect();
    let nowhere = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
        id: 0,
    };
    let mut attributes = sys::CUmemcpyAttributes {
        srcAccessOrder: sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        srcLocHint: nowhere,
        dstLocHint: nowhere,
        flags: 0,
    };
    let mut first = 0;
    // SAFETY: the arrays have the length that is passed, with one attribute for all from the first copy on; the driver reads them
    // during the call. The copies themselves are the caller's promise.
    unsafe {
        sys::cuMemcpyBatchAsync_v2(
            to.as_mut_ptr(),
            from.as_mut_ptr(),
            bytes.as_mut_ptr(),
            copies.len(),
            &raw mut attributes,
            &raw mut first,
            1,
            stream,
        )
    }
    .result()
}

/// Returns true if the driver refused the form of the call, so that another form may succeed.
pub(super) fn is_refused(answer: Result<(), DriverError>) -> bool {
    matches!(
        answer,
        Err(DriverError(
            CUresult::CUDA_ERROR_INVALID_VALUE | CUresult::CUDA_ERROR_NOT_SUPPORTED
        ))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(len: usize) -> Copy {
        Copy {
            src: 0,
            src_place: Place::Device,
            dst: 0,
            dst_place: Place::Device,
            len,
            is_pinned: false,
        }
    }

    #[test]
    fn many_fragments_are_one_launch_however_long_they_are() {
        let fragments = vec![within(16 << 20); MIN_BATCH];
        assert_eq!(SortedCopies::of(&fragments).within.len(), MIN_BATCH);
        let few = SortedCopies::of(&fragments[1..]);
        assert_eq!((few.within.len(), few.alone.len()), (0, MIN_BATCH - 1));
        let mut mixed = vec![within(4096); MIN_BATCH];
        mixed.extend([within(16 << 20); 2]);
        assert_eq!(SortedCopies::of(&mixed).within.len(), MIN_BATCH + 2);
        // A copy that is too long for the kernel is the driver's.
        let mut huge = fragments;
        huge.push(within(MOST_BYTES + 1));
        let sorted = SortedCopies::of(&huge);
        assert_eq!((sorted.within.len(), sorted.alone.len()), (MIN_BATCH, 1));
    }
}
