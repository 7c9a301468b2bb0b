//! CUDA streams of calls: the engine's own, and those that applications name by their handles.
//!
//! # The contract of handles
//! Nothing can check that a number is a stream. Who names one promises that it is a stream of the device's primary context, which is
//! not destroyed before the call ends. The engine gives it no work after that; it is kept only to be used when the handle is named
//! again.
#![allow(unsafe_code, reason = "applications name their streams by handles")]

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_device::{Device, Kind, Stream};

use crate::failure::{Failure, Outcome};

/// Once so many handles are known, a new one makes all of them forgotten; each is adopted anew when it is named again.
const MOST_ADOPTED: usize = 64;

/// The handle by which each thread calls its own default stream.
const OF_THE_THREAD: u64 = 2;

/// The streams of one engine's device.
#[derive(Debug)]
pub struct DeviceStreams {
    device: Device,
    own: Mutex<Vec<Stream>>,
    adopted: Mutex<HashMap<u64, Arc<Stream>>>,
}

impl DeviceStreams {
    /// The streams of this device: none yet.
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

    /// A stream of the engine's own, for a time.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn own(&self) -> tierflow_device::Result<Borrowed<'_>> {
        let free = self.own.lock().pop();
        let stream = free.map_or_else(|| self.device.stream(), Ok)?;
        Ok(Borrowed {
            stream: Some(stream),
            streams: self,
        })
    }

    /// A stream whose work comes after all that was given to the device so far.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn behind_all_work(&self) -> tierflow_device::Result<Borrowed<'_>> {
        let stream = self.own()?;
        stream.wait_for_all_work()?;
        Ok(stream)
    }

    /// The stream of a handle that an application names.
    ///
    /// # Errors
    /// Errors of the driver.
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

/// A stream of the engine's own, for a time.
#[derive(Debug)]
pub struct Borrowed<'a> {
    /// There until it is dropped.
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
    /// A stream of the engine's own.
    Own(Borrowed<'a>),
    /// A stream that the application named by this handle.
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

/// The order of one call: after all work that it waits for.
#[derive(Debug)]
pub struct Order<'a> {
    streams: &'a DeviceStreams,
    chosen: Option<CallStream<'a>>,
    /// The stream behind whose work the call was ordered last.
    behind: Option<u64>,
}

impl<'a> Order<'a> {
    /// A call that waits for no work yet.
    #[must_use]
    pub fn new(streams: &'a DeviceStreams) -> Self {
        Self {
            streams,
            chosen: None,
            behind: None,
        }
    }

    /// Returns true if the call was ordered behind the work of this stream last: arrays of one framework name the same one again and again.
    #[must_use]
    pub fn is_behind(&self, handle: u64) -> bool {
        self.behind == Some(handle.max(1))
    }

    /// A call behind all work given to the device so far; of a device without such work, behind none.
    ///
    /// # Errors
    /// Errors of the driver.
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

    /// The call comes after the work that was given to the stream of this handle. The first one is taken to copy on:
    /// that needs no event. The default stream of the thread is not, as it is another one for the next thread.
    ///
    /// # Errors
    /// `Argument` if the engine has no GPU, or a graph is being captured on the stream; those of the driver.
    ///
    /// # Safety
    /// `handle` is a stream of the device's primary context that is not destroyed before the call ends; 0 is the default one.
    pub unsafe fn after(&mut self, handle: u64) -> Outcome {
        if !self.streams.is_cuda() {
            return Err(Failure::argument(
                "a stream is for an engine on a GPU, and this one keeps plain memory: leave it out",
            ));
        }
        // 0 is another name of the legacy default stream.
        let handle = handle.max(1);
        // Asked first, as anything else would spoil a graph that is being captured.
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

    /// A handle for others to order their work before.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn handle(&mut self) -> Outcome<u64> {
        if self.chosen.is_none() {
            self.chosen = Some(CallStream::Own(self.streams.own()?));
        }
        Ok(match &self.chosen {
            Some(CallStream::Adopted(handle, _)) => *handle,
            _ => self.stream().and_then(Stream::cuda_handle).unwrap_or(1),
        })
    }

    /// The stream to copy on, if it matters which.
    #[must_use]
    pub fn stream(&self) -> Option<&Stream> {
        self.chosen.as_deref()
    }

    /// The stream itself.
    #[must_use]
    pub fn into_stream(self) -> Option<CallStream<'a>> {
        self.chosen
    }

    /// Returns true if the device is a GPU.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        self.streams.is_cuda()
    }

    /// The device whose streams these are.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        &self.streams.device
    }
}
