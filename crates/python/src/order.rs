//! The CUDA stream that a call copies on, so that the copies come after the work that makes the arrays. If the caller names no stream, the
//! arrays' protocols name theirs: see `array.rs`.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use tierflow_bind::{DeviceStreams, Order};

use crate::errors::Answer;
use crate::ffi::streams;

/// Makes the order of a call: after the work that was given to `stream`, if the caller names one.
///
/// # Errors
/// `TypeError` if `stream` is no stream; `ArgumentError` if the engine has no GPU, or a CUDA graph is being captured on the stream;
/// `DeviceError` if the driver fails.
pub(crate) fn behind<'core>(
    streams: &'core DeviceStreams,
    stream: Option<&Bound<'_, PyAny>>,
) -> Answer<Order<'core>> {
    let mut order = Order::new(streams);
    if let Some(stream) = stream {
        after(stream.py(), &mut order, handle_of(stream)?)?;
    }
    Ok(order)
}

/// Orders the call after the work that was given to the stream with this handle.
///
/// # Errors
/// As [`behind`], without `TypeError`.
pub(crate) fn after(py: Python<'_>, order: &mut Order<'_>, handle: u64) -> Answer {
    match order.is_behind(handle) {
        true => Ok(()),
        false => Ok(py.detach(|| streams::after(order, handle))?),
    }
}

/// Returns the driver's handle of a framework's stream. An int is a handle itself.
fn handle_of(stream: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = stream.py();
    if stream.is_instance_of::<PyInt>() {
        return stream.extract();
    }
    if let Some(speaks) = stream.getattr_opt(intern!(py, "__cuda_stream__"))? {
        let (_version, handle): (u64, u64) = speaks.call0()?.extract()?;
        return Ok(handle);
    }
    for name in [
        intern!(py, "cuda_stream"),
        intern!(py, "ptr"),
        intern!(py, "handle"),
    ] {
        if let Some(handle) = stream.getattr_opt(name)? {
            // Numba's handle is a pointer of `ctypes` with a `value`, which is None for the default stream.
            let value = handle.getattr_opt(intern!(py, "value"))?.unwrap_or(handle);
            return Ok(value.extract::<Option<u64>>()?.unwrap_or(0));
        }
    }
    let kind = stream.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "stream= is a stream of PyTorch, CuPy or Numba, an object with __cuda_stream__, or its handle as an int, and \
         this is a {kind}"
    )))
}
