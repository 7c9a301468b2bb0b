//! The buffer protocol: views of slots, for other libraries.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::slot::LentSlot;

/// Makes `view` a view of the slot's bytes, which keeps them lent until [`release`].
///
/// # Errors
/// `BufferError` if the flags ask for a view that the slot cannot give: a writable view of a slot to read, or the format of an element
/// type that the protocol cannot name, or Fortran order; or if the slot lies in GPU memory.
///
/// # Safety
/// `view` is a valid place for the answer.
pub(crate) unsafe fn fill(
    view: *mut ffi::Py_buffer,
    flags: c_int,
    lent: Arc<LentSlot>,
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
    let (shape, strides) = (layout.shape(), layout.byte_strides());
    // Orders differ only if several dimensions have several elements.
    let is_in_both_orders =
        shape.contains(&0) || shape.iter().filter(|&&length| length > 1).count() <= 1;
    if asks(ffi::PyBUF_F_CONTIGUOUS) && !is_in_both_orders {
        return Err(PyBufferError::new_err(
            "the slot is in C order, and a view in Fortran order was asked for: copy it, as in np.asfortranarray(slot)",
        ));
    }
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
    view.ndim = c_int::try_from(shape.len()).unwrap_or(c_int::MAX);
    // Shape and strides live in the slot, which the view holds, and the protocol forbids writes to them. Without dimensions, they are null.
    let given = |what: c_int, numbers: &[i64]| match asks(what) && !numbers.is_empty() {
        true => numbers.as_ptr().cast_mut().cast(),
        false => ptr::null_mut(),
    };
    view.shape = given(ffi::PyBUF_ND, shape);
    view.strides = given(ffi::PyBUF_STRIDES, strides);
    view.suboffsets = ptr::null_mut();
    view.internal = Arc::into_raw(lent).cast_mut().cast();
    view.obj = owner.into_ptr();
    Ok(())
}

/// Drops the view's reference to its slot.
///
/// # Safety
/// [`fill`] filled `view`, and nobody releases it again.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller's promise.
    let lent: *const LentSlot = unsafe { (*view).internal }.cast_const().cast();
    // SAFETY: `fill` made the pointer by `Arc::into_raw`.
    drop(unsafe { Arc::from_raw(lent) });
}
