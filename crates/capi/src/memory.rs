//! The application's memory, by address.

use std::ffi::c_void;

use tierflow_bind::{CallMemory, Span};

use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome};

/// `tf_region` of the header. Comes from C as an argument, or from [`RawRegion::anywhere`]. During the call that the region is for, its bytes
/// are initialised bytes of this process, or of the engine's device. Nobody else writes them meanwhile, nor reads them if the call restores
/// to them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawRegion {
    address: *mut c_void,
    pub(crate) bytes: u64,
    pub(crate) place: i32,
}

/// Values of `enum tf_place`.
pub(crate) const ANYWHERE: i32 = 0;
pub(crate) const HOST: i32 = 1;
pub(crate) const DEVICE: i32 = 2;

impl RawRegion {
    /// Makes a region of host or device memory at an address.
    ///
    /// # Safety
    /// The contract of this type, in the call that the region is for.
    pub(crate) unsafe fn anywhere(address: *mut c_void, bytes: u64) -> Self {
        let place = ANYWHERE;
        Self {
            address,
            bytes,
            place,
        }
    }

    /// Returns the number of bytes, if an object can be that large and the address is not null.
    fn length(self) -> Outcome<usize> {
        let bytes = usize::try_from(self.bytes).ok();
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| {
            Failure::argument(format!("a region of {} bytes is none", self.bytes))
        })?;
        match bytes > 0 && self.address.is_null() {
            true => Err(Failure::argument("a region that has bytes is null")),
            false => Ok(bytes),
        }
    }
}

/// Returns the memory of a region for the time of a call. Callers ensure that no two regions that the call writes overlap.
fn memory(core: &OpenEngine, raw: RawRegion) -> Outcome<CallMemory> {
    let bytes = raw.length()?;
    let address = raw.address.expose_provenance() as u64;
    // SAFETY: the contract of `RawRegion`. The call waits for its copies, so no loan of it outlives the call.
    let span = unsafe { Span::new(address, bytes) };
    let on_device = match (raw.place, core.device.as_cuda()) {
        (HOST, _) | (ANYWHERE, None) => false,
        (DEVICE, Some(_)) => true,
        (ANYWHERE, Some(_)) if bytes == 0 => false,
        (ANYWHERE, Some(cuda)) => {
            is_on_own_gpu(cuda.owner_of(address)?, core.device.info().ordinal)?
        }
        (DEVICE, None) => {
            let text = "the engine has no GPU, so memory of TF_PLACE_DEVICE is none";
            return Err(Failure::argument(text));
        }
        (other, _) => {
            return Err(Failure::argument(format!("{other} is no tf_place")));
        }
    };
    Ok(match on_device {
        true => CallMemory::on_device(span, &core.device)?,
        false => CallMemory::on_host(span),
    })
}

/// Returns true for memory of the engine's GPU, and false for the host's. Fails for memory of another GPU, which kernels may not reach.
fn is_on_own_gpu(owner: Option<usize>, own: usize) -> Outcome<bool> {
    match owner {
        Some(other) if other != own => Err(Failure::argument(format!(
            "the region lies on GPU {other}, and the engine's is GPU {own}: copy it there, or to the host"
        ))),
        owner => Ok(owner.is_some()),
    }
}

/// Returns the memory of some regions for the time of a call.
pub(crate) fn spans(core: &OpenEngine, regions: &[RawRegion]) -> Outcome<Vec<CallMemory>> {
    let spans = regions.iter().map(|raw| memory(core, *raw));
    spans.collect()
}

/// Returns host memory to restore to, for the time of a call. Fails for memory elsewhere, and for regions that share bytes.
pub(crate) fn host_memory<'call>(regions: &[RawRegion]) -> Outcome<Vec<&'call mut [u8]>> {
    let memory = disjoint(regions)?.iter().map(|raw| match raw.length()? {
        _ if !matches!(raw.place, ANYWHERE | HOST) => Err(Failure::argument(
            "a region is said to lie elsewhere than in host memory, and this call restores to host memory alone",
        )),
        0 => Ok(&mut [][..]),
        // SAFETY: the contract of `RawRegion`, and no two share bytes.
        bytes => Ok(unsafe { std::slice::from_raw_parts_mut(raw.address.cast(), bytes) }),
    });
    memory.collect()
}

/// Returns the regions, or fails if two of them share bytes: the call restores to them.
pub(crate) fn disjoint(regions: &[RawRegion]) -> Outcome<&[RawRegion]> {
    match overlap(regions) {
        true => Err(Failure::argument("regions to restore to share bytes")),
        false => Ok(regions),
    }
}

/// Returns true if two of these regions share bytes.
pub(crate) fn overlap(regions: &[RawRegion]) -> bool {
    let mut ranges: Vec<(u64, u64)> = regions
        .iter()
        .filter(|region| region.bytes > 0)
        .map(|region| {
            let start = region.address.addr() as u64;
            (start, start.saturating_add(region.bytes))
        })
        .collect();
    ranges.sort_unstable();
    ranges.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_gpu_is_refused() {
        assert!(matches!(is_on_own_gpu(None, 1), Ok(false)));
        assert!(matches!(is_on_own_gpu(Some(1), 1), Ok(true)));
        assert!(is_on_own_gpu(Some(0), 1).is_err());
    }
}
