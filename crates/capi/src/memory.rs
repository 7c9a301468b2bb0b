//! The application's memory, by address.

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock};

use tierflow_device::{Memory, Place};
use tierflow_engine::{Region, RegionMut};

use crate::core::Core;
use crate::failure::{Failure, Outcome};

/// `tf_region` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawRegion {
    pub(crate) address: *mut c_void,
    pub(crate) bytes: u64,
    pub(crate) place: i32,
}

/// Values of `enum tf_place`.
pub(crate) const ANYWHERE: i32 = 0;
pub(crate) const HOST: i32 = 1;
pub(crate) const DEVICE: i32 = 2;

/// A region for the time of a call.
pub(crate) struct Span {
    address: *mut u8,
    bytes: usize,
    /// If it is the device's.
    memory: Option<Memory>,
}

impl Span {
    /// # Safety
    /// As long as the span is used, these are initialised bytes of this process, or of the engine's device, that are not
    /// written meanwhile, nor read if they are to be restored to.
    pub(crate) unsafe fn new(core: &Core, raw: RawRegion) -> Outcome<Self> {
        let bytes = usize::try_from(raw.bytes).ok();
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes
            .ok_or_else(|| Failure::argument(format!("a region of {} bytes is none", raw.bytes)))?;
        let address = raw.address.expose_provenance() as u64;
        if bytes > 0 && address == 0 {
            return Err(Failure::argument("a region that has bytes is null"));
        }
        let on_device = match (raw.place, core.device.as_cuda()) {
            (_, None) | (HOST, _) => false,
            (DEVICE, _) => true,
            (ANYWHERE, Some(cuda)) => bytes > 0 && cuda.owner_of(address)?.is_some(),
            (other, _) => {
                return Err(Failure::argument(format!("{other} is no tf_place")));
            }
        };
        static NO_OWNER: LazyLock<Arc<dyn Any + Send + Sync>> = LazyLock::new(|| Arc::new(()));
        let no_owner = Arc::clone(&NO_OWNER);
        let memory = (on_device && bytes > 0).then(|| {
            // SAFETY: the caller's promise. The call waits for its copies, so no loan of it outlives the call.
            unsafe { Memory::from_raw(&core.device, address, bytes, Place::Device, no_owner) }
        });
        Ok(Self {
            address: raw.address.cast(),
            bytes,
            memory: memory.transpose()?,
        })
    }

    pub(crate) fn is_on_device(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn region(&self) -> Region<'_> {
        match (&self.memory, self.bytes) {
            (Some(memory), _) => Region::from(memory),
            (None, 0) => Region::Bytes(&[]),
            (None, bytes) => {
                // SAFETY: the promise of `Span::new`.
                Region::Bytes(unsafe { std::slice::from_raw_parts(self.address, bytes) })
            }
        }
    }

    pub(crate) fn region_mut(&mut self) -> RegionMut<'_> {
        match (&self.memory, self.bytes) {
            (Some(memory), _) => RegionMut::from(memory),
            (None, 0) => RegionMut::Bytes(&mut []),
            (None, bytes) => {
                // SAFETY: the promise of `Span::new`; callers see to it that no two regions of a call overlap.
                RegionMut::Bytes(unsafe { std::slice::from_raw_parts_mut(self.address, bytes) })
            }
        }
    }
}

/// Whether some of these regions share bytes, which none may that are written.
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
