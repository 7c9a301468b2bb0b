//! Which CUDA stream a call copies on, so that it comes after the work that makes its arrays.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use tierflow_bind::Streams;
use tierflow_device::{Device, Kind, Stream};

use crate::errors::OrRaise;
use crate::ffi::streams;

/// The order of one call: after all work that its arrays wait for.
#[derive(Debug)]
pub(crate) struct Order<'core>(tierflow_bind::Order<'core>);

impl<'core> Order<'core> {
    /// `stream` is what the caller named, if anything: work comes after what was given to it.
    ///
    /// # Errors
    /// `TypeError` if that is no stream, `ValueError` if the engine has none; those of the driver.
    pub(crate) fn new(
        streams: &'core Streams,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut order = Self(tierflow_bind::Order::new(streams));
        if let Some(stream) = stream {
            order.after(stream.py(), handle_of(stream)?)?;
        }
        Ok(order)
    }

    pub(crate) fn device(&self) -> &'core Device {
        self.0.device()
    }

    pub(crate) fn is_cuda(&self) -> bool {
        self.device().info().kind == Kind::Cuda
    }

    /// The call comes after the work that was given to the stream of this handle.
    pub(crate) fn after(&mut self, py: Python<'_>, handle: u64) -> PyResult<()> {
        py.detach(|| streams::after(&mut self.0, handle))
            .or_raise(py)
    }

    /// A handle for others to order their work before.
    pub(crate) fn handle(&mut self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.0.handle()).or_raise(py)
    }

    /// The stream to copy on, if it matters which.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        self.0.stream()
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
