//! CUDA streams of calls: the engine's own, and those that applications name by their handles.
//!
//! # The contract of handles
//! Nothing can check that a number is a stream's handle. A caller that names a handle promises that the stream is of the device's primary
//! context and is not destroyed before the call ends. The engine gives the stream no work after the call. [`DeviceStreams`] keeps it only
//! for later calls that name the handle again.
#![allow(unsafe_code, reason = "applications name their streams by handles")]

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_device::{Device, Kind, Stream};

use crate::failure::{Failure, Outcome};

/// Adopted handles at most. At this number, a new handle clears the table; a cleared handle is adopted anew when it is named again.
const MOST_ADOPTED: usize = 64;

/// The handle that stands for the default stream of the calling thread.
const OF_THE_THREAD: u64 = 2;

/// The streams of one engine's device.
#[derive(Debug)]
pub struct DeviceStreams {
    device: Device,
    own: Mutex<Vec<Stream>>,
    adopted: Mutex<HashMap<u64, Arc<Stream>>>,
}

impl DeviceStreams {
    /// Makes the table of the streams of this device, without any stream yet.
    #[must_use]
    pub fn new(device: Device) -> Self {
        Self {
            device,
            own: Mutex::default(),
            adopted: Mutex::default(),
        }
    }

    /// Returns true if the device is a GPU.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        self.device.info().kind == Kind::Cuda
    }

    /// Lends a stream of the engine, an idle or a new one.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn own(&self) -> tierflow_device::Result<Borrowed<'_>> {
        let free = self.own.lock().pop();
        let stream = free.map_or_else(|| self.device.stream(), Ok)?;
        Ok(Borrowed {
            stream: Some(stream),
            streams: self,
        })
    }

    /// Lends a stream of the engine whose next work comes after all work given to the device so far.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn behind_all_work(&self) -> tierflow_device::Result<Borrowed<'_>> {
        let stream = self.own()?;
        stream.wait_for_all_work()?;
        Ok(stream)
    }

    /// Returns the stream with the handle that an application named.
    ///
    /// # Errors
    /// The errors of the driver.
    ///
    /// # Safety
    /// `handle` is a stream of the device's primary context that is not destroyed before the call ends.
    pub unsafe fn adopted(&self, handle: u64) -> tierflow_device::Result<Arc<Stream>> {
        let known = self.adopted.lock().get(&handle).cloned();
        if let Some(stream) = known {
            return Ok(stream);
        }
        // SAFETY: the caller's promise.
        let stream = Arc::new(unsafe { self.device.adopt_stream(handle) }?);
        let mut all = self.adopted.lock();
        if all.len() >= MOST_ADOPTED {
            all.clear();
        }
        all.insert(handle, Arc::clone(&stream));
        Ok(stream)
    }
}

/// A stream of the engine, lent to a call. Dropping it returns the stream.
#[derive(Debug)]
pub struct Borrowed<'a> {
    /// `Some` until this value is dropped.
    stream: Option<Stream>,
    streams: &'a DeviceStreams,
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
            self.streams.own.lock().push(stream);
        }
    }
}

/// The stream of one call.
#[derive(Debug)]
pub enum CallStream<'a> {
    /// A stream of the engine.
    Own(Borrowed<'a>),
    /// A stream of the application, with its handle.
    Adopted(u64, Arc<Stream>),
}

impl Deref for CallStream<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        match self {
            Self::Own(stream) => stream,
            Self::Adopted(_, stream) => stream,
        }
    }
}

/// The order of one call on the GPU: the call's copies come after all work that they depend on.
#[derive(Debug)]
pub struct Order<'a> {
    streams: &'a DeviceStreams,
    chosen: Option<CallStream<'a>>,
    /// The handle of the stream that the call was ordered behind last.
    behind: Option<u64>,
}

impl<'a> Order<'a> {
    /// Makes the order of a call that depends on no work yet.
    #[must_use]
    pub fn new(streams: &'a DeviceStreams) -> Self {
        Self {
            streams,
            chosen: None,
            behind: None,
        }
    }

    /// Returns true if the call was ordered behind this stream last. The arrays of one framework name the same stream again and again.
    #[must_use]
    pub fn is_behind(&self, handle: u64) -> bool {
        self.behind == Some(handle.max(1))
    }

    /// Makes the order of a call behind all work given to the device so far. The host has no such work.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn behind_all_work(streams: &'a DeviceStreams) -> Outcome<Self> {
        let chosen = match streams.is_cuda() {
            true => Some(CallStream::Own(streams.behind_all_work()?)),
            false => None,
        };
        Ok(Self {
            streams,
            chosen,
            behind: None,
        })
    }

    /// Orders the call after the work that was given to the stream with this handle. The call copies on the first such stream, as that needs
    /// no event. The default stream of the thread is an exception: on another thread, its handle names another stream.
    ///
    /// # Errors
    /// `Argument` if the engine has no GPU, or a graph is being captured on the stream; the errors of the driver.
    ///
    /// # Safety
    /// `handle` is a stream of the device's primary context that is not destroyed before the call ends; 0 is the default stream.
    pub unsafe fn after(&mut self, handle: u64) -> Outcome {
        if !self.streams.is_cuda() {
            return Err(Failure::argument(
                "a stream is for an engine on a GPU, and this one keeps plain memory: leave it out",
            ));
        }
        // 0 is another name of the legacy default stream.
        let handle = handle.max(1);
        // `is_captured` comes first, as any other call would spoil a graph that is being captured.
        // SAFETY: the caller's promise.
        if unsafe { self.streams.device.is_captured(handle) }? {
            return Err(Failure::argument(
                "a CUDA graph is being captured on the stream, and a copy must run: call before or after the capture",
            ));
        }
        if handle == OF_THE_THREAD {
            self.handle()?;
        }
        match (&self.chosen, self.stream()) {
            (Some(CallStream::Adopted(own, _)), _) if *own == handle => {}
            (_, Some(stream)) => {
                // SAFETY: the caller's promise.
                unsafe { stream.wait_for_foreign(handle) }?;
            }
            (_, None) => {
                // SAFETY: the caller's promise.
                let stream = unsafe { self.streams.adopted(handle) }?;
                self.chosen = Some(CallStream::Adopted(handle, stream));
            }
        }
        self.behind = Some(handle);
        Ok(())
    }

    /// Returns the call's stream. Chooses a stream of the engine if the call has none yet.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn choose(&mut self) -> tierflow_device::Result<&CallStream<'a>> {
        let chosen = match self.chosen.take() {
            Some(chosen) => chosen,
            None => CallStream::Own(self.streams.own()?),
        };
        Ok(self.chosen.insert(chosen))
    }

    /// Returns the handle of the call's stream, so that another library can order its work before the call's. Chooses a stream of the engine if
    /// the call has none yet.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn handle(&mut self) -> Outcome<u64> {
        Ok(match self.choose()? {
            CallStream::Adopted(handle, _) => *handle,
            CallStream::Own(stream) => stream.cuda_handle().unwrap_or(1),
        })
    }

    /// Returns the stream to copy on; `None` if any stream will serve.
    #[must_use]
    pub fn stream(&self) -> Option<&Stream> {
        self.chosen.as_deref()
    }

    /// Returns the stream to copy on by value, as [`Self::stream`] does by reference.
    #[must_use]
    pub fn into_stream(self) -> Option<CallStream<'a>> {
        self.chosen
    }

    /// Returns true if the device is a GPU.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        self.streams.is_cuda()
    }

    /// Returns the device of the streams.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        &self.streams.device
    }
}
