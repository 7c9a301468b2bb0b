//! DLPack tensors over slots, for other libraries. A tensor keeps its slot lent.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;

use super::dlpack::{LEGACY, Legacy, READ_ONLY, Tensor, VERSION, VERSIONED, Versioned};
use crate::slot::LentSlot;

/// Makes a capsule with the slot's bytes: of [`VERSION`], or a legacy one.
///
/// # Errors
/// `MemoryError`.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    lent: Arc<LentSlot>,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let tensor = tensor(&lent);
    let flags = match lent.is_read_only() {
        true => READ_ONLY,
        false => 0,
    };
    let context = Arc::into_raw(lent).cast_mut().cast();
    let (pointer, name): (*mut c_void, &'static CStr) = match versioned {
        true => {
            let managed = Box::new(Versioned {
                version: VERSION,
                context,
                deleter: Some(delete_versioned),
                flags,
                tensor,
            });
            (Box::into_raw(managed).cast(), VERSIONED)
        }
        false => {
            let managed = Box::new(Legacy {
                tensor,
                context,
                deleter: Some(delete_legacy),
            });
            (Box::into_raw(managed).cast(), LEGACY)
        }
    };
    // SAFETY: the pointer is not null, the name is static, and the destructor knows both kinds.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(abandoned)) };
    if capsule.is_null() {
        let error = PyErr::fetch(py);
        // SAFETY: the pointer was made above and nobody else has it.
        unsafe { delete(pointer, name) };
        return Err(error);
    }
    // SAFETY: `PyCapsule_New` returned a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
}

fn tensor(lent: &LentSlot) -> Tensor {
    let layout = lent.layout();
    Tensor {
        data: ptr::with_exposed_provenance_mut(lent.address() as usize),
        device: lent.dlpack_device(),
        dimensions: i32::try_from(layout.shape().len()).unwrap_or(i32::MAX),
        dtype: layout.dtype().dlpack(),
        // Shape and strides live in the slot, which the tensor holds, and the format forbids writes to them.
        shape: layout.shape().as_ptr().cast_mut(),
        strides: layout.strides().as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

/// Deletes the tensor of a capsule that is being destroyed, unless a consumer took it.
unsafe extern "C" fn abandoned(capsule: *mut ffi::PyObject) {
    for name in [VERSIONED, LEGACY] {
        // SAFETY: the interpreter passes the capsule that it destroys.
        let is_valid = unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) };
        if is_valid != 0 {
            // SAFETY: as above, and the capsule has this name.
            let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
            // SAFETY: no consumer took the tensor: a consumer would have changed the name.
            unsafe { delete(pointer, name) };
        }
    }
}

/// Deletes a tensor of the kind that `name` names.
///
/// # Safety
/// [`capsule`] made the tensor, of that kind, and nobody deletes it again.
unsafe fn delete(pointer: *mut c_void, name: &CStr) {
    if name == VERSIONED {
        // SAFETY: the caller's promise.
        unsafe { delete_versioned(pointer.cast()) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { delete_legacy(pointer.cast()) };
    }
}

/// Deletes a tensor of [`VERSION`]. A consumer calls this function on any thread, attached to the interpreter or not.
unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: `capsule` made the pointer by `Box::into_raw`, and the consumer calls this function once.
    let managed = unsafe { Box::from_raw(managed) };
    give_back(managed.context);
}

unsafe extern "C" fn delete_legacy(managed: *mut Legacy) {
    // SAFETY: as in `delete_versioned`.
    let managed = unsafe { Box::from_raw(managed) };
    give_back(managed.context);
}

fn give_back(context: *mut c_void) {
    // SAFETY: `capsule` made the pointer by `Arc::into_raw`, and each tensor is given back once.
    let lent: Arc<LentSlot> = unsafe { Arc::from_raw(context.cast_const().cast()) };
    // The caller is C: a panic must not unwind into it.
    let _reported = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lent)));
}
