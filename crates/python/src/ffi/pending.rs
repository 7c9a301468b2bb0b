//! Calls that the main thread makes later.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::prelude::*;

use crate::patience::raise_interrupt;

/// Lets the main thread raise the exception that waits there, if there still is one, as soon as it runs Python.
pub(crate) fn raise_soon() {
    extern "C" fn raise(_: *mut c_void) -> c_int {
        let raised = Python::try_attach(|py| {
            let raised = raise_interrupt().map_err(|error| error.restore(py));
            raised.is_err()
        });
        -c_int::from(raised == Some(true))
    }
    // If too many calls wait, this one is left out, and the next call of the library raises the exception.
    // SAFETY: `raise` ignores its argument, and Python calls it while the main thread is attached.
    let _is_left_out = unsafe { pyo3::ffi::Py_AddPendingCall(Some(raise), ptr::null_mut()) };
}
