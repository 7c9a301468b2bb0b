//! Which CUDA stream a call copies on, so that it comes after the work that makes its arrays. Where the caller names none, the arrays' protocols
//! name theirs: `array.rs`.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use tierflow_bind::{DeviceStreams, Order};

use crate::errors::Answer;
use crate::ffi::streams;

/// The order of a call behind the work that was given to `stream`, if the caller names one.
///
/// # Errors
/// `TypeError` if that is no stream, `ValueError` if the engine has none; those of the driver.
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

/// The call comes after the work that was given to the stream of this handle.
pub(crate) fn after(py: Python<'_>, order: &mut Order<'_>, handle: u64) -> Answer {
    match order.is_behind(handle) {
        true => Ok(()),
        false => Ok(py.detach(|| streams::after(order, handle))?),
    }
}

/// The driver's handle of a framework's stream, or of a number that is one.
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
            // Numba's is a pointer of `ctypes`, which has a value; none is that of the default stream.
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
