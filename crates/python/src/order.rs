//! Which CUDA stream a call copies on, so that it comes after the work that makes its arrays.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use tierflow_device::{Device, Kind, Stream};

use crate::errors;
use crate::ffi::streams::{adopt, is_captured, wait_for};

/// Handles beyond this many are forgotten and adopted anew.
const MOST_ADOPTED: usize = 64;

/// The handle by which each thread calls its own default stream.
const OF_THE_THREAD: u64 = 2;

/// Streams that calls can have: the engine's own, and those of the frameworks that were seen.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    own: Mutex<Vec<Stream>>,
    adopted: Mutex<HashMap<u64, Arc<Stream>>>,
}

impl Streams {
    pub(crate) fn take_own(&self, device: &Device) -> tierflow_device::Result<Stream> {
        let free = self.own.lock().pop();
        free.map_or_else(|| device.stream(), Ok)
    }

    pub(crate) fn give_back(&self, stream: Stream) {
        self.own.lock().push(stream);
    }

    /// The stream of a handle that a framework names.
    pub(crate) fn adopted(
        &self,
        device: &Device,
        handle: u64,
    ) -> tierflow_device::Result<Arc<Stream>> {
        let known = self.adopted.lock().get(&handle).cloned();
        if let Some(stream) = known {
            return Ok(stream);
        }
        let stream = Arc::new(adopt(device, handle)?);
        let mut all = self.adopted.lock();
        if all.len() >= MOST_ADOPTED {
            all.clear();
        }
        all.insert(handle, Arc::clone(&stream));
        Ok(stream)
    }
}

/// The stream of one call.
#[derive(Debug)]
enum Chosen {
    Own(Stream),
    Adopted(u64, Arc<Stream>),
}

/// The order of one call: after all work that its arrays wait for.
#[derive(Debug)]
pub(crate) struct Order<'core> {
    device: &'core Device,
    streams: &'core Streams,
    chosen: Option<Chosen>,
}

impl<'core> Order<'core> {
    /// `stream` is what the caller named, if anything: work comes after what was given to it.
    ///
    /// # Errors
    /// `TypeError` if that is no stream, `ValueError` if the engine has none; [`Error::Device`](tierflow_engine::Error)
    /// of the driver.
    pub(crate) fn new(
        device: &'core Device,
        streams: &'core Streams,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut order = Self {
            device,
            streams,
            chosen: None,
        };
        if let Some(stream) = stream {
            let handle = handle_of(stream)?;
            if !order.is_cuda() {
                return Err(errors::argument(
                    stream.py(),
                    "stream= is for an engine on a GPU, and this one keeps plain memory: leave it out".to_owned(),
                ));
            }
            order.after(stream.py(), handle)?;
        }
        Ok(order)
    }

    pub(crate) fn device(&self) -> &'core Device {
        self.device
    }

    pub(crate) fn is_cuda(&self) -> bool {
        self.device.info().kind == Kind::Cuda
    }

    /// The call comes after the work that was given to the stream of this handle. The first one is taken to copy on:
    /// that needs no event. The default stream of the thread is not, as it is another one for the next thread.
    pub(crate) fn after(&mut self, py: Python<'_>, handle: u64) -> PyResult<()> {
        // 0 is another name of the legacy default stream.
        let handle = handle.max(1);
        self.runs(py, handle)?;
        if handle == OF_THE_THREAD {
            self.handle(py)?;
        }
        match &self.chosen {
            Some(Chosen::Adopted(own, _)) if *own == handle => Ok(()),
            Some(Chosen::Adopted(_, stream)) => {
                wait_for(stream, handle).map_err(|error| errors::device(py, &error))
            }
            Some(Chosen::Own(stream)) => {
                wait_for(stream, handle).map_err(|error| errors::device(py, &error))
            }
            None => {
                let stream = self.adopted(py, handle)?;
                self.chosen = Some(Chosen::Adopted(handle, stream));
                Ok(())
            }
        }
    }

    /// A handle for others to order their work before.
    pub(crate) fn handle(&mut self, py: Python<'_>) -> PyResult<u64> {
        match &self.chosen {
            Some(Chosen::Adopted(handle, _)) => Ok(*handle),
            Some(Chosen::Own(stream)) => Ok(stream.cuda_handle().unwrap_or(1)),
            None => {
                let own = py.detach(|| self.streams.take_own(self.device));
                let stream = own.map_err(|error| errors::device(py, &error))?;
                let handle = stream.cuda_handle().unwrap_or(1);
                self.chosen = Some(Chosen::Own(stream));
                Ok(handle)
            }
        }
    }

    /// The stream to copy on, if it matters which.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match self.chosen.as_ref()? {
            Chosen::Own(stream) => Some(stream),
            Chosen::Adopted(_, stream) => Some(stream),
        }
    }

    fn adopted(&self, py: Python<'_>, handle: u64) -> PyResult<Arc<Stream>> {
        let adopted = py.detach(|| self.streams.adopted(self.device, handle));
        adopted.map_err(|error| errors::device(py, &error))
    }

    /// That work on the stream runs. Asked first, as anything else would spoil a graph that is being captured.
    fn runs(&self, py: Python<'_>, handle: u64) -> PyResult<()> {
        match is_captured(self.device, handle) {
            Ok(false) => Ok(()),
            Ok(true) => Err(errors::argument(
                py,
                "a CUDA graph is being captured on the array's stream, and a copy must run: call before or after the \
                 capture"
                    .to_owned(),
            )),
            Err(error) => Err(errors::device(py, &error)),
        }
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        if let Some(Chosen::Own(stream)) = self.chosen.take() {
            self.streams.give_back(stream);
        }
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
