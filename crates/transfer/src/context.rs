//! The stream, the buffers and the stop flag of one thread that copies.

use crate::buffers::BufferPool;
use crate::{Result, TransferError};
use std::sync::Arc;
use tierflow_device::{Device, Stream};
use tierflow_sync::model::{AtomicBool, Ordering};

/// The stream and the buffers that one thread copies with. Both are made at first use, as most contexts need neither.
#[derive(Debug)]
pub struct CopyContext {
    device: Device,
    stream: Option<Arc<Stream>>,
    buffers: BufferPool,
    stop: Stop,
}

impl CopyContext {
    /// Makes a context for copies by `device`.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            stream: None,
            buffers: BufferPool::new(device),
            stop: Stop::default(),
        }
    }

    /// Makes a context whose copies run in order with those of all other contexts on the same stream.
    #[must_use]
    pub fn on(device: &Device, stream: Arc<Stream>) -> Self {
        Self {
            stream: Some(stream),
            ..Self::new(device)
        }
    }

    /// Sets the flag that ends the copies of this context, until the next call.
    pub fn stop_by(&mut self, stop: Option<Arc<AtomicBool>>) {
        self.stop = Stop(stop);
    }

    /// Returns the flag that ends the copies of this context.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Returns the caller's stream, or this context's own.
    pub fn streams<'s>(&'s mut self, callers: Option<&'s Stream>) -> StreamChoice<'s> {
        StreamChoice {
            device: &self.device,
            own: &mut self.stream,
            callers,
        }
    }

    /// Returns the buffers of this context.
    pub fn buffers(&mut self) -> &mut BufferPool {
        &mut self.buffers
    }
}

/// The stream of a copy: the caller's, or the context's own, which is made at first use.
#[derive(Debug)]
pub struct StreamChoice<'c> {
    device: &'c Device,
    own: &'c mut Option<Arc<Stream>>,
    callers: Option<&'c Stream>,
}

impl StreamChoice<'_> {
    /// Returns the stream.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the stream must be made and cannot be.
    pub fn get(&mut self) -> Result<&Stream> {
        match (self.callers, &mut self.own) {
            (Some(callers), _) => Ok(callers),
            (None, Some(own)) => Ok(own),
            (None, empty) => Ok(empty.insert(Arc::new(self.device.stream()?))),
        }
    }
}

/// The flag that ends the copies of a context on any route, between two parts.
#[derive(Debug, Clone, Default)]
pub struct Stop(Option<Arc<AtomicBool>>);

impl Stop {
    /// Returns true once the flag is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let stop = self.0.as_ref();
        stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Checks the flag.
    ///
    /// # Errors
    /// [`TransferError::Cancelled`] once the flag is set.
    pub fn look(&self) -> std::result::Result<(), TransferError> {
        match self.is_set() {
            true => Err(TransferError::Cancelled),
            false => Ok(()),
        }
    }
}
