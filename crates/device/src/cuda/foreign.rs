//! Handles from other libraries of the process: streams, and addresses of memory.

use std::ffi::c_void;

use cudarc::driver::result;
use cudarc::driver::sys;

use super::Cuda;
use super::context::{Entered, checked, failure};
use super::stream::CudaQueue;
use crate::device::Device;
use crate::error::{Invalid, Result};
use crate::stream::Stream;

impl Device {
    /// Wraps a stream of another library, to order copies after its work. Handles of the CUDA runtime are the driver's.
    /// Handles 0 and 1 are the legacy default stream, 2 the thread's own default stream. Dropping the [`Stream`] leaves
    /// the other library's stream alone.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end.
    ///
    /// # Safety
    ///
    /// `handle` is one of the default streams, or a stream of this device's primary context that is not destroyed while
    /// work is given to the [`Stream`] or waited for. A [`Stream`] that is not used may outlive it.
    pub unsafe fn adopt_stream(&self, handle: u64) -> Result<Stream> {
        let what = "adopting a stream";
        let cuda = self.as_cuda().ok_or(Invalid::NotCuda { what })?;
        // SAFETY: the caller's promise.
        let queue = unsafe { CudaQueue::adopt(cuda, named(handle)) };
        Ok(Stream::of(self, Box::new(queue)))
    }

    /// Returns true if a CUDA graph is being captured on the stream `handle`. Work given to it then becomes part of the
    /// graph and does not run, so a wait for it has no end.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end; [`Error::Driver`](crate::Error::Driver) if the driver cannot tell, as
    /// for the legacy default stream while another one is captured.
    ///
    /// # Safety
    ///
    /// `handle` is one of the default streams, or a live stream of this device's primary context.
    pub unsafe fn is_captured(&self, handle: u64) -> Result<bool> {
        let what = "capturing a graph";
        let cuda = self.as_cuda().ok_or(Invalid::NotCuda { what })?;
        let _entered = cuda.context.enter()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is there, by the caller's promise, and `status` is a valid place for the answer.
        let asked = unsafe { sys::cuStreamIsCapturing(named(handle), &raw mut status) };
        checked("cuStreamIsCapturing", asked.result())?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }
}

impl Stream {
    /// Returns the driver's handle of the stream, for libraries that order their work before or after the stream's;
    /// `None` on the host back end. The handle is valid while the [`Stream`] lives.
    pub fn cuda_handle(&self) -> Option<u64> {
        let queue = self.queue().as_any().downcast_ref::<CudaQueue>()?;
        Some(queue.handle().expose_provenance() as u64)
    }

    /// Makes later work of this stream start after all work given to the device so far, on any stream of the process.
    /// Does not wait, and does nothing on the host back end.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) while a CUDA graph is being captured; the device's failure.
    pub fn wait_for_all_work(&self) -> Result<()> {
        let Some(queue) = self.queue().as_any().downcast_ref::<CudaQueue>() else {
            return Ok(());
        };
        queue.wait_behind("cuCtxRecordEvent", |event| {
            let context = queue.context().handle();
            // SAFETY: both are alive, and the event is of this context.
            unsafe { sys::cuCtxRecordEvent(context, event) }.result()
        })
    }

    /// Makes later work of this stream start after all work given to the stream `handle` so far: see
    /// [`Device::adopt_stream`]. Does not wait, and does nothing on the host back end.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) if a CUDA graph is being captured there; the device's failure.
    ///
    /// # Safety
    ///
    /// `handle` is one of the default streams, or a live stream of this device's primary context.
    pub unsafe fn wait_for_foreign(&self, handle: u64) -> Result<()> {
        let Some(queue) = self.queue().as_any().downcast_ref::<CudaQueue>() else {
            return Ok(());
        };
        queue.wait_behind("cuEventRecord", |event| {
            // SAFETY: the event is alive and of the stream's context; the stream is there, by the caller's promise.
            unsafe { result::event::record(event, named(handle)) }
        })
    }
}

impl Cuda {
    /// Makes the device's primary context current on the calling thread until the guard is dropped, for libraries on
    /// top of the CUDA runtime. Until then, the thread's calls do not spoil a CUDA graph that another thread captures, and the capture does
    /// not make the driver refuse them (CUDA's mode `relaxed`). Costs three thread-local look-ups if the context is current already.
    ///
    /// # Errors
    ///
    /// The device's failure.
    pub fn enter(&self) -> Result<Entered> {
        self.context.enter()
    }

    /// Returns the number of the GPU whose memory lies at `address`. `None` for host memory, pinned or not, and for addresses that the
    /// driver does not know.
    ///
    /// # Errors
    ///
    /// The device's failure.
    pub fn owner_of(&self, address: u64) -> Result<Option<usize>> {
        use sys::CUpointer_attribute::{
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        };
        let _entered = self.context.enter()?;
        let (mut kind, mut ordinal) = (0_u32, -1_i32);
        let mut asked = [
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let mut answers = [(&raw mut kind).cast(), (&raw mut ordinal).cast::<c_void>()];
        let (asked, answers) = (asked.as_mut_ptr(), answers.as_mut_ptr());
        // SAFETY: both lists have two entries, and each answer has the type of its attribute. The driver looks the address up, and reads
        // nothing there. For an address that it does not know, the kind is zero.
        unsafe { sys::cuPointerGetAttributes(2, asked, answers, address) }
            .result()
            .map_err(|error| failure("cuPointerGetAttributes", error))?;
        let is_device = kind == sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
        let owner = is_device.then(|| usize::try_from(ordinal).ok());
        Ok(owner.flatten())
    }
}

/// Turns a handle into a stream. The null handle becomes the legacy default stream.
fn named(handle: u64) -> sys::CUstream {
    let handle = handle.max(1) as usize;
    std::ptr::with_exposed_provenance_mut(handle)
}
