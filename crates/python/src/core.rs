//! An engine and what belongs to it, as calls and slots share them.

use std::ops::Deref;

use pyo3::prelude::*;
use tierflow_device::{Device, Kind, Stream};

use crate::ffi::detached::DetachedEngine;
use crate::order::{Order, Streams};

/// An engine and what its calls share. Slots hold it, too.
pub(crate) struct Core {
    pub(crate) engine: DetachedEngine,
    pub(crate) device: Device,
    pub(crate) streams: Streams,
}

impl AsRef<tierflow_engine::Engine> for Core {
    fn as_ref(&self) -> &tierflow_engine::Engine {
        &self.engine
    }
}

impl Core {
    pub(crate) fn order(&self, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Order<'_>> {
        Order::new(&self.device, &self.streams, stream)
    }

    pub(crate) fn is_cuda(&self) -> bool {
        self.device.info().kind == Kind::Cuda
    }

    /// A stream of the engine's own.
    pub(crate) fn stream(&self) -> tierflow_device::Result<Borrowed<'_>> {
        let stream = self.streams.take_own(&self.device)?;
        Ok(Borrowed {
            stream: Some(stream),
            streams: &self.streams,
        })
    }

    /// A stream whose work comes after all that was given to the device so far.
    pub(crate) fn behind_all_work(&self) -> tierflow_device::Result<Borrowed<'_>> {
        let stream = self.stream()?;
        stream.wait_for_all_work()?;
        Ok(stream)
    }
}

/// A stream of the engine's own, for a time.
pub(crate) struct Borrowed<'core> {
    /// There until it is dropped.
    stream: Option<Stream>,
    streams: &'core Streams,
}

impl Deref for Borrowed<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        match &self.stream {
            Some(stream) => stream,
            None => unreachable!("only dropping takes it"),
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.streams.give_back(stream);
        }
    }
}
