//! A lent slot, which its Python object and all arrays over it share.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use tierflow_engine::{ConsumeSlot as Consumed, ProduceSlot as Produced, Version};

use super::{Held, Layout};
use crate::core::Core;
use crate::ffi::dlpack::{self, CPU, CUDA};

/// A lent slot. Every user of its bytes shares it; the last one gives it back.
pub(crate) struct Lent {
    /// There until it is given back.
    pub(super) slot: Option<Slot>,
    layout: Layout,
    address: u64,
    device: dlpack::Device,
    is_read_only: bool,
    /// To be given back as not consumed.
    is_unconsumed: AtomicBool,
    pub(super) version: Version,
    /// The process that has the engine.
    pub(super) process: u32,
}

pub(super) enum Slot {
    Produced(Held<Produced<'static>>),
    Consumed(Held<Consumed<'static>>),
}

impl Lent {
    pub(super) fn new(slot: Slot, layout: Layout) -> Self {
        let (core, address, on_host, version) = match &slot {
            Slot::Produced(held) => {
                let slot = &held.slot;
                (
                    &held.core,
                    slot.address(),
                    slot.host_accessible(),
                    slot.version(),
                )
            }
            Slot::Consumed(held) => {
                let slot = &held.slot;
                (
                    &held.core,
                    slot.address(),
                    slot.host_accessible(),
                    slot.version(),
                )
            }
        };
        let number = i32::try_from(core.device.info().ordinal).unwrap_or(i32::MAX);
        let device = match on_host {
            true => (CPU, 0),
            false => (CUDA, number),
        };
        let is_read_only = matches!(slot, Slot::Consumed(_));
        Self {
            slot: Some(slot),
            layout,
            address,
            device: dlpack::Device {
                kind: device.0,
                number: device.1,
            },
            is_read_only,
            is_unconsumed: AtomicBool::new(false),
            version,
            process: std::process::id(),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn dlpack_device(&self) -> dlpack::Device {
        self.device
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    pub(super) fn is_on_host(&self) -> bool {
        self.device.kind == CPU
    }

    /// Whether a GPU may be at work on the bytes, wherever they lie.
    pub(super) fn is_of_gpu(&self) -> bool {
        self.core().is_some_and(|core| core.is_cuda())
    }

    pub(super) fn core(&self) -> Option<&Arc<Core>> {
        match self.slot.as_ref()? {
            Slot::Produced(held) => Some(&held.core),
            Slot::Consumed(held) => Some(&held.core),
        }
    }

    /// Leaves the version unconsumed once the last user of the bytes is gone.
    pub(super) fn leave_unconsumed(&self) {
        self.is_unconsumed.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// `BufferError` if the processor does not reach the bytes.
    pub(crate) fn host_pointer(&self) -> PyResult<*mut c_void> {
        if self.is_on_host() {
            return Ok(std::ptr::with_exposed_provenance_mut(self.address as usize));
        }
        Err(PyBufferError::new_err(
            "the slot lies in GPU memory, which the processor does not reach: go by DLPack, as in \
             torch.from_dlpack(slot), or by cupy.asarray(slot)",
        ))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let of_gpu = self.is_of_gpu();
        let Some(slot) = self.slot.take() else { return };
        if self.process != std::process::id() {
            // Nothing here is this process's; a thread that it does not have may hold the locks.
            std::mem::forget(slot);
            return;
        }
        let is_unconsumed = *self.is_unconsumed.get_mut();
        match slot {
            Slot::Consumed(Held { slot, core }) if is_unconsumed => {
                if of_gpu && let Ok(stream) = core.behind_all_work() {
                    let _done_or_lost = stream.synchronize();
                }
                slot.give_back();
            }
            _ if !of_gpu => drop(slot),
            // Kernels may still write there: the bytes may not be used again before they are done.
            Slot::Produced(held) => {
                if let Ok(stream) = held.core.behind_all_work() {
                    let _done_or_lost = stream.synchronize();
                }
                drop(held);
            }
            Slot::Consumed(Held { slot, core }) => {
                let Ok(stream) = core.behind_all_work() else {
                    return slot.give_back();
                };
                // With an error the device is lost.
                let _consumed_or_lost = slot.finish_after(&stream);
            }
        }
    }
}
