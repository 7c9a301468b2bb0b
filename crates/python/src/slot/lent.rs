//! A lent slot, which its Python object and all arrays over it share.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use tierflow_bind::{EngineHandle, OrderAfter, Slot, SlotEnd};
use tierflow_device::OwnerProcess;
use tierflow_engine::Version;

use super::Layout;
use crate::errors::Answer;
use crate::ffi::dlpack::{self, CPU, CUDA};
use crate::order;

/// A lent slot. The slot's Python object and all arrays over its bytes share it; the last of them gives it back.
pub(crate) struct LentSlot {
    pub(crate) slot: Slot,
    layout: Layout,
    address: u64,
    device: dlpack::Device,
    /// True if the last user leaves the version unconsumed.
    is_unconsumed: AtomicBool,
    pub(super) version: Version,
    /// The process that has the engine.
    pub(super) process: OwnerProcess,
}

impl LentSlot {
    pub(super) fn new(slot: Slot, layout: Layout, version: Version) -> Self {
        let number = i32::try_from(slot.engine().device.info().ordinal).unwrap_or(i32::MAX);
        let (kind, number) = match slot.host_accessible() {
            true => (CPU, 0),
            false => (CUDA, number),
        };
        Self {
            layout,
            address: slot.address(),
            device: dlpack::Device { kind, number },
            is_unconsumed: AtomicBool::new(false),
            version,
            process: OwnerProcess::current(),
            slot,
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
        self.slot.consumed().is_some()
    }

    pub(super) fn is_on_host(&self) -> bool {
        self.device.kind == CPU
    }

    pub(super) fn engine(&self) -> &Arc<EngineHandle> {
        self.slot.engine()
    }

    /// Ends the slot after the work given to `stream`; without one, after all work given to the device.
    ///
    /// # Errors
    /// As [`order::behind`], and `DeviceError` if the driver fails: the slot is as it was, unless the device is lost.
    pub(super) fn end(
        &mut self,
        py: Python<'_>,
        how: SlotEnd,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Answer {
        let engine = Arc::clone(self.engine());
        let stream = stream.filter(|_| engine.is_cuda());
        let order = order::behind(&engine.streams, stream)?;
        let after = order.stream();
        let after = after.map_or(OrderAfter::AllWork, OrderAfter::Stream);
        let slot = &mut self.slot;
        Ok(py.detach(|| slot.end(how, after))?)
    }

    /// Leaves the version unconsumed once the last user of the bytes is gone.
    pub(super) fn leave_unconsumed(&self) {
        self.is_unconsumed.store(true, Ordering::Relaxed);
    }

    /// Returns the address of the bytes for the processor.
    ///
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

impl Drop for LentSlot {
    fn drop(&mut self) {
        if self.slot.consumed().is_some() && !*self.is_unconsumed.get_mut() {
            self.slot.end_when_dropped(SlotEnd::Keep);
        }
    }
}
