//! The buffer protocol: views of other objects' memory.

use std::ffi::{CStr, c_char, c_int};
use std::pin::Pin;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use tierflow_bind::Span;

/// A view of an object's memory. The view keeps the memory in place until it is dropped, which needs the interpreter.
pub(crate) struct View {
    /// The structure of the protocol, which is never moved, as some objects point into it.
    raw: Pin<Box<ffi::Py_buffer>>,
}

impl View {
    /// Returns true if the object's type has the protocol.
    pub(crate) fn is_spoken_by(object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
    }

    pub(crate) const IN_C_ORDER: c_int = ffi::PyBUF_C_CONTIGUOUS;
    pub(crate) const STRIDED: c_int = ffi::PyBUF_STRIDES;
    pub(crate) const FORMAT: c_int = ffi::PyBUF_FORMAT;
    pub(crate) const WRITABLE: c_int = ffi::PyBUF_WRITABLE;

    /// Asks the object for a view with these flags of the protocol.
    ///
    /// # Errors
    /// The object's exception, such as `BufferError`, if it cannot give such a view.
    pub(crate) fn of(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut raw = Box::pin(ffi::Py_buffer::new());
        // SAFETY: the object is alive, and `raw` is a place for its answer that is never moved.
        let got = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, flags) };
        if got == 0 {
            return Ok(Self { raw });
        }
        // The object did not fill `raw`, so there is nothing to release.
        Err(PyErr::fetch(object.py()))
    }

    pub(crate) fn span(&self) -> Span {
        let address = self.raw.buf.expose_provenance() as u64;
        let bytes = usize::try_from(self.raw.len).unwrap_or(0);
        // SAFETY: by the protocol, a contiguous view has `len` bytes at `buf` until it is released.
        unsafe { Span::new(address, bytes) }
    }

    /// Returns the extents, slowest first; none if they were not asked for.
    pub(crate) fn shape(&self) -> Vec<u64> {
        let dimensions = usize::try_from(self.raw.ndim).unwrap_or(0);
        let extents: &[isize] = match ptr::NonNull::new(self.raw.shape) {
            // SAFETY: by the protocol, `shape` has `ndim` numbers and lives as long as the view.
            Some(shape) if dimensions > 0 => unsafe {
                std::slice::from_raw_parts(shape.as_ptr(), dimensions)
            },
            _ => &[],
        };
        let extents = extents.iter();
        extents.map(|&n| u64::try_from(n).unwrap_or(0)).collect()
    }

    /// Returns the bytes of one element.
    pub(crate) fn item_bytes(&self) -> usize {
        usize::try_from(self.raw.itemsize).unwrap_or(0)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.raw.readonly != 0
    }

    pub(crate) fn is_fortran(&self) -> bool {
        // SAFETY: the object filled the view.
        unsafe {
            ffi::PyBuffer_IsContiguous(&raw const *self.raw, c_char::from_ne_bytes([b'F'])) != 0
        }
    }

    /// Returns the format of an element, as the module `struct` writes it; `None` if it was not asked for.
    pub(crate) fn format(&self) -> Option<&CStr> {
        let format = ptr::NonNull::new(self.raw.format)?;
        // SAFETY: by the protocol, the format is a text that lives as long as the view.
        Some(unsafe { CStr::from_ptr(format.as_ptr()) })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: `PyObject_GetBuffer` filled the structure, which is released once. Views live within calls, and a call's thread is
        // attached to the interpreter when the call begins and when it ends.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) };
    }
}
