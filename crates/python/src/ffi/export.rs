//! Slots as DLPack tensors for others, which keep them lent.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;

use super::dlpack::{LEGACY, Legacy, READ_ONLY, Tensor, VERSION, VERSIONED, Versioned};
use crate::slot::LentSlot;

/// A capsule with the slot's bytes; legacy, or of the version that is spoken here.
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
    // SAFETY: a pointer that is not null, a name that lives for ever, and a destructor that knows both kinds.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(abandoned)) };
    if capsule.is_null() {
        let error = PyErr::fetch(py);
        // SAFETY: made above, and not given out.
        unsafe { delete(pointer, name) };
        return Err(error);
    }
    // SAFETY: a new reference to an object.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
}

fn tensor(lent: &LentSlot) -> Tensor {
    let layout = lent.layout();
    Tensor {
        data: ptr::with_exposed_provenance_mut(lent.address() as usize),
        device: lent.dlpack_device(),
        dimensions: i32::try_from(layout.shape().len()).unwrap_or(i32::MAX),
        dtype: layout.dtype().dlpack(),
        // They live in the slot, which the tensor holds, and the format forbids to write them.
        shape: layout.shape().as_ptr().cast_mut(),
        strides: layout.strides().as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

/// The capsule's destructor: deletes its tensor, too, unless a consumer took it.
unsafe extern "C" fn abandoned(capsule: *mut ffi::PyObject) {
    for name in [VERSIONED, LEGACY] {
        // SAFETY: the capsule that is being destroyed.
        let is_valid = unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) };
        if is_valid != 0 {
            // SAFETY: as above; it has that name.
            let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
            // SAFETY: no consumer took it, for it would have another name.
            unsafe { delete(pointer, name) };
        }
    }
}

/// # Safety
/// `pointer` is of [`capsule`], of the kind that `name` names, and deleted once.
unsafe fn delete(pointer: *mut c_void, name: &CStr) {
    if name == VERSIONED {
        // SAFETY: the caller's promise.
        unsafe { delete_versioned(pointer.cast()) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { delete_legacy(pointer.cast()) };
    }
}

/// On whatever thread the consumer is done, with or without the interpreter.
unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: from `Box::into_raw` in `capsule`; the consumer calls this once.
    let managed = unsafe { Box::from_raw(managed) };
    give_back(managed.context);
}

unsafe extern "C" fn delete_legacy(managed: *mut Legacy) {
    // SAFETY: as in `delete_versioned`.
    let managed = unsafe { Box::from_raw(managed) };
    give_back(managed.context);
}

fn give_back(context: *mut c_void) {
    // SAFETY: from `Arc::into_raw` in `capsule`, once.
    let lent: Arc<LentSlot> = unsafe { Arc::from_raw(context.cast_const().cast()) };
    // The caller is C: nothing may unwind into it.
    let _reported = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lent)));
}
