//! The buffer protocol: views of other objects' memory.

use std::ffi::{CStr, c_char, c_int};
use std::pin::Pin;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use tierflow_bind::Span;

/// A view of an object's memory, in C order, until it is dropped, which needs the interpreter.
pub(crate) struct View {
    /// Some objects point into it.
    raw: Pin<Box<ffi::Py_buffer>>,
}

impl View {
    /// Whether the object speaks the protocol at all.
    pub(crate) fn is_spoken_by(object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: a live object.
        unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
    }

    pub(crate) const IN_C_ORDER: c_int = ffi::PyBUF_C_CONTIGUOUS;
    pub(crate) const STRIDED: c_int = ffi::PyBUF_STRIDES;
    pub(crate) const FORMAT: c_int = ffi::PyBUF_FORMAT;
    pub(crate) const WRITABLE: c_int = ffi::PyBUF_WRITABLE;

    /// # Errors
    /// Those of the object, which cannot give such a view.
    pub(crate) fn of(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut raw = Box::pin(ffi::Py_buffer::new());
        // SAFETY: a live object, and a place for its answer that stays where it is.
        let got = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, flags) };
        if got == 0 {
            return Ok(Self { raw });
        }
        // It was not filled: there is nothing to release.
        Err(PyErr::fetch(object.py()))
    }

    pub(crate) fn span(&self) -> Span {
        let address = self.raw.buf.expose_provenance() as u64;
        let bytes = usize::try_from(self.raw.len).unwrap_or(0);
        // SAFETY: the protocol has it that a view in one run has so many bytes there, until it is released.
        unsafe { Span::new(address, bytes) }
    }

    /// The extents, slowest first, if they were asked for.
    pub(crate) fn shape(&self) -> Vec<u64> {
        let dimensions = usize::try_from(self.raw.ndim).unwrap_or(0);
        let extents: &[isize] = match ptr::NonNull::new(self.raw.shape) {
            // SAFETY: the protocol has it that these are as many numbers as dimensions, as long as the view.
            Some(shape) if dimensions > 0 => unsafe {
                std::slice::from_raw_parts(shape.as_ptr(), dimensions)
            },
            _ => &[],
        };
        let extents = extents.iter();
        extents.map(|&n| u64::try_from(n).unwrap_or(0)).collect()
    }

    /// The bytes of one element.
    pub(crate) fn item_bytes(&self) -> usize {
        usize::try_from(self.raw.itemsize).unwrap_or(0)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.raw.readonly != 0
    }

    pub(crate) fn is_fortran(&self) -> bool {
        // SAFETY: a view that was filled.
        unsafe {
            ffi::PyBuffer_IsContiguous(&raw const *self.raw, c_char::from_ne_bytes([b'F'])) != 0
        }
    }

    /// What an element is, in the words of the module `struct`, if it was asked for.
    pub(crate) fn format(&self) -> Option<&CStr> {
        let format = ptr::NonNull::new(self.raw.format)?;
        // SAFETY: a text that lives as long as the view.
        Some(unsafe { CStr::from_ptr(format.as_ptr()) })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: filled by `PyObject_GetBuffer`, and released once. Views live within calls, which are attached to the
        // interpreter when they begin and when they end.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) };
    }
}
