//! A version to read.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi::Py_buffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_bind::Slot;
use tierflow_engine::Version;

use super::Layout;
use super::lent::Lent;
use super::own::Own;
use crate::array::Use;
use crate::ffi;

/// A version in the cache, as a read-only array of every framework.
///
/// Arrays made of it, and views, keep it where it is; the last of them to go gives it back, and counts the version as
/// consumed.
#[pyclass(frozen, weakref, module = "tierflow")]
pub(crate) struct ConsumeSlot {
    own: Own,
    is_cached: bool,
}

impl ConsumeSlot {
    pub(crate) fn new(slot: Slot, layout: Layout, version: Version) -> Self {
        let is_cached = slot.consumed().is_some_and(|slot| slot.is_cached());
        let own = Own::new(Lent::new(slot, layout, version));
        Self { own, is_cached }
    }
}

#[pymethods]
impl ConsumeSlot {
    /// The version that it holds.
    #[getter]
    fn version(&self) -> Version {
        self.own.version
    }

    /// Elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.own.shape(py)
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.own.dtype
    }

    /// Bytes in all.
    #[getter]
    fn nbytes(&self) -> usize {
        self.own.bytes
    }

    /// Whether these are the bytes in the cache; if not, it had no room, and they are a copy.
    #[getter]
    fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Gives the bytes back and counts the version as consumed, or leaves that to the last array over them.
    ///
    /// On a GPU, at once, and the next write of the bytes waits for the work given to `stream` so far; without one, for all
    /// work given to the device.
    #[pyo3(signature = (stream = None))]
    fn finish(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let lent = self.own.taken(py)?;
        if !lent.engine().is_cuda() || stream.is_none() {
            py.detach(|| drop(lent));
            return Ok(());
        }
        match Arc::into_inner(lent) {
            Some(lent) => self.own.end(py, lent, stream),
            // With others, the last one waits for all work.
            None => Ok(()),
        }
    }

    /// Gives the bytes back and leaves the version unconsumed, or leaves that to the last array over them. On a GPU, the
    /// next write of the bytes waits for all work given to the device, as some may read them.
    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        let lent = self.own.taken(py)?;
        lent.leave_unconsumed();
        py.detach(|| drop(lent));
        Ok(())
    }

    /// Copies the slot's bytes, from `offset` on, to an array.
    ///
    /// An array on a GPU is filled in the order of its framework's current stream, or of `stream` behind that one, without waiting:
    /// `finish` the slot behind the same stream. CUDA's own copies refuse host memory that was pinned in parts, as that
    /// of an engine is; this one does not.
    #[pyo3(signature = (array, offset = 0, *, stream = None))]
    fn read(
        &self,
        array: &Bound<'_, PyAny>,
        offset: usize,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.own.copy(array, (Use::Write, offset), stream)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) -> PyResult<bool> {
        if self.own.is_there(py)? {
            self.finish(py, None)?;
        }
        Ok(false)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // No copy of this slot's is under way on the bytes.
        let _ = stream;
        self.own.dlpack(py, max_version, dl_device, copy)
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        self.own.dlpack_device(py)
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.own.cuda_interface(py)
    }

    #[allow(unsafe_code, reason = "the protocol's signature")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let lent = slf.get().own.shared(slf.py())?;
        // SAFETY: the interpreter's own place for the answer.
        unsafe { ffi::buffer::fill(view, flags, lent, slf.into_any()) }
    }

    #[allow(unsafe_code, reason = "the protocol's signature")]
    unsafe fn __releasebuffer__(&self, view: *mut Py_buffer) {
        // SAFETY: a view that was filled above.
        unsafe { ffi::buffer::release(view) };
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.own.described(py, "ConsumeSlot")
    }
}
