//! The buffer protocol: views of other objects' memory, and views of slots for others.

use std::ffi::{CStr, c_int};
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::span::Span;
use crate::slot::Lent;

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

    pub(crate) fn is_read_only(&self) -> bool {
        self.raw.readonly != 0
    }

    pub(crate) fn is_fortran(&self) -> bool {
        // SAFETY: a view that was filled.
        unsafe { ffi::PyBuffer_IsContiguous(&raw const *self.raw, b'F'.cast_signed()) != 0 }
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

/// Fills `view` with the slot's bytes. The view keeps them lent until [`release`].
///
/// # Errors
/// `BufferError` for what the slot cannot give.
///
/// # Safety
/// `view` is a valid place for the answer.
pub(crate) unsafe fn fill(
    view: *mut ffi::Py_buffer,
    flags: c_int,
    lent: Arc<Lent>,
    owner: Bound<'_, PyAny>,
) -> PyResult<()> {
    // SAFETY: the caller's promise.
    let view = unsafe { view.as_mut() }
        .ok_or_else(|| PyBufferError::new_err("a buffer was asked for without a place for it"))?;
    view.obj = ptr::null_mut();
    let layout = lent.layout();
    if lent.is_read_only() && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err(
            "a consumed version is read-only: copy it to write, as in np.array(slot)",
        ));
    }
    let asks = |what: c_int| flags & what == what;
    view.format = ptr::null_mut();
    if asks(ffi::PyBUF_FORMAT) {
        let format = layout.dtype().format.ok_or_else(|| {
            let name = layout.dtype().name;
            PyBufferError::new_err(format!(
                "the buffer protocol has no name for {name}: go by DLPack, as in torch.from_dlpack(slot), or ask for \
                 an integer type of the same size"
            ))
        })?;
        view.format = format.as_ptr().cast_mut();
    }
    view.buf = lent.host_pointer()?;
    view.len = layout.bytes().cast_signed();
    view.itemsize = layout.dtype().bytes().cast_signed();
    view.readonly = c_int::from(lent.is_read_only());
    view.ndim = c_int::try_from(layout.shape().len()).unwrap_or(c_int::MAX);
    // They live in the slot, which the view holds, and the protocol forbids to write them.
    view.shape = match asks(ffi::PyBUF_ND) {
        true => layout.shape().as_ptr().cast_mut().cast(),
        false => ptr::null_mut(),
    };
    view.strides = match asks(ffi::PyBUF_STRIDES) {
        true => layout.byte_strides().as_ptr().cast_mut().cast(),
        false => ptr::null_mut(),
    };
    view.suboffsets = ptr::null_mut();
    view.internal = Arc::into_raw(lent).cast_mut().cast();
    view.obj = owner.into_ptr();
    Ok(())
}

/// # Safety
/// `view` was filled by [`fill`], and is released once.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller's promise.
    let lent: *const Lent = unsafe { (*view).internal }.cast_const().cast();
    // SAFETY: it came from `Arc::into_raw` in `fill`.
    drop(unsafe { Arc::from_raw(lent) });
}
