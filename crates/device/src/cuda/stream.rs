//! A CUDA stream that does not wait for the legacy default stream.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};
use tierflow_sync::{Mutex, rank};

use super::completion::{Counter, Waiting, report_loss};
use super::context::{Context, checked, failure, lost};
use super::parts::{self, SortedCopies};
use super::{Cuda, managed};
use crate::backend::{Copy, Mark, MarkKind, Queue};
use crate::error::{Error, Invalid, Result};
use crate::info::Place;
use crate::pages::{self, pointer};

/// A stream and its completion counter. Marks of the stream's work keep it alive.
#[derive(Debug)]
struct StreamHandle {
    context: Arc<Context>,
    stream: sys::CUstream,
    /// True if dropping this destroys the stream.
    is_own: bool,
    /// The counter, made for the first number. `None` if the stream cannot write numbers; then waiting asks the driver.
    counter: OnceLock<Option<Counter>>,
}

impl StreamHandle {
    /// Returns the stream's counter. The context is current.
    fn counter(&self) -> Option<&Counter> {
        let counter = self
            .counter
            .get_or_init(|| Counter::new(&self.context, self.stream).ok()?);
        counter.as_ref()
    }
}

// SAFETY: a stream handle is a name that the driver accepts from any thread; the driver locks.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            if let Some(Some(counter)) = self.counter.get() {
                if !counter.is_idle() {
                    // A number is still to be written. After an error the device is lost, and writes nothing.
                    // SAFETY: the stream is alive: an adopted one has work that was not waited for yet.
                    let _ = unsafe { result::stream::synchronize(self.stream) };
                }
                // SAFETY: the stream is idle, and each reader keeps this handle.
                unsafe { counter.free(&self.context) };
            }
            if self.is_own {
                // SAFETY: created in `CudaQueue::new` and destroyed once. Work in flight goes on.
                let _ = unsafe { result::stream::destroy(self.stream) };
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct CudaQueue {
    handle: Arc<StreamHandle>,
    parts: parts::Kernel,
}

impl CudaQueue {
    pub(super) fn new(cuda: &Cuda) -> Result<Self> {
        let _entered = cuda.context.enter()?;
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = checked("cuStreamCreate", result::stream::create(kind))?;
        let queue = Self::of(cuda, stream, true);
        // The counter's memory is allocated here, so that the first copy does not wait for it.
        queue.handle.counter();
        Ok(queue)
    }

    /// Wraps a stream of another library.
    ///
    /// # Safety
    /// As for `Device::adopt_stream`.
    pub(super) unsafe fn adopt(cuda: &Cuda, stream: sys::CUstream) -> Self {
        Self::of(cuda, stream, false)
    }

    /// Wraps `stream`.
    fn of(cuda: &Cuda, stream: sys::CUstream, is_own: bool) -> Self {
        let handle = StreamHandle {
            context: Arc::clone(&cuda.context),
            stream,
            is_own,
            counter: OnceLock::new(),
        };
        Self {
            handle: Arc::new(handle),
            parts: Arc::clone(&cuda.parts),
        }
    }

    /// Makes later work of the stream start after an event that `record` records.
    pub(super) fn wait_behind(
        &self,
        call: &'static str,
        record: impl FnOnce(sys::CUevent) -> Result<(), DriverError>,
    ) -> Result<()> {
        let _entered = self.context().enter()?;
        let mark = CudaMark::new(
            self.context(),
            sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32,
        )?;
        checked(call, record(mark.handle))?;
        self.wait(&mark)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.handle.context
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.handle.stream
    }

    /// # Safety
    /// As for `Queue::copy`, with the context current.
    unsafe fn copy_once(&self, copy: Copy) -> Result<(), DriverError> {
        let Copy { src, dst, len, .. } = copy;
        let stream = self.handle();
        match (copy.src_place, copy.dst_place) {
            (Place::Device, Place::Device) => {
                // SAFETY: the caller's promise, and both are device memory.
                unsafe { sys::cuMemcpyDtoDAsync_v2(dst, src, len, stream) }
            }
            (Place::Device, Place::Host) => {
                // SAFETY: the caller's promise, and the destination is host memory.
                unsafe { sys::cuMemcpyDtoHAsync_v2(pointer(dst), src, len, stream) }
            }
            (Place::Host, Place::Device) => {
                // SAFETY: the caller's promise, and the source is host memory.
                unsafe { sys::cuMemcpyHtoDAsync_v2(dst, pointer(src), len, stream) }
            }
            (Place::Host, Place::Host) => {
                // SAFETY: the caller's promise; with unified addresses the driver knows both.
                unsafe { sys::cuMemcpyAsync(dst, src, len, stream) }
            }
        }
        .result()
    }
}

// SAFETY: the stream writes a number, and `cuStreamSynchronize` and `cuEventSynchronize` return, when the work before is
// done. Otherwise there is an error, reported as a lost device: the driver has torn the context down.
unsafe impl Queue for CudaQueue {
    /// The driver refuses a copy that crosses the border of two registrations. The caller cuts copies at the borders that
    /// it knows, but not at borders of memory pinned meanwhile, or within a slice of the program's. All borders of this
    /// crate's registrations lie at multiples of the huge page, so a refused copy is repeated in pieces cut there.
    unsafe fn copy(&self, copy: Copy) -> Result<()> {
        let _entered = self.context().enter()?;
        // SAFETY: the caller's promise.
        let mut answer = unsafe { self.copy_once(copy) };
        let host = copy.src_place == Place::Host || copy.dst_place == Place::Host;
        if host && answer == Err(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE)) {
            let mut rest = copy;
            while rest.len > 0 {
                let piece = Copy {
                    len: border(rest),
                    ..rest
                };
                // SAFETY: a part of the copy, by the caller's promise.
                answer = unsafe { self.copy_once(piece) };
                if answer.is_err() {
                    break;
                }
                rest.src += piece.len as u64;
                rest.dst += piece.len as u64;
                rest.len -= piece.len;
            }
        }
        checked("cuMemcpyAsync", answer)
    }

    unsafe fn copy_many(&self, copies: &[Copy]) -> Result<()> {
        let _entered = self.context().enter()?;
        let mut sorted = SortedCopies::of(copies);
        if !sorted.within.is_empty() {
            match parts::kernel(&self.parts, self.context()) {
                // SAFETY: the caller's promise; a stream copies within the memory of its device, and the memory of peers
                // that is mapped for its device.
                Some(kernel) => unsafe { parts::launch(kernel, self.handle(), &sorted.within) }?,
                None => sorted.alone.append(&mut sorted.within),
            }
        }
        if !sorted.across.is_empty() {
            // SAFETY: the caller's promise.
            let answer = unsafe { parts::batch(self.handle(), &sorted.across) };
            if parts::is_refused(answer) {
                // The driver refuses batches on default streams and across the border of two registrations.
                sorted.alone.append(&mut sorted.across);
            } else {
                checked("cuMemcpyBatchAsync", answer)?;
            }
        }
        sorted.alone.into_iter().try_for_each(|copy| {
            // SAFETY: the caller's promise.
            unsafe { self.copy(*copy) }
        })
    }

    unsafe fn fill(&self, dst: u64, len: usize, byte: u8) -> Result<()> {
        let _entered = self.context().enter()?;
        // SAFETY: the caller's promise, and the context is current.
        let filled = unsafe { result::memset_d8_async(dst, byte, len, self.handle()) };
        checked("cuMemsetD8Async", filled)
    }

    unsafe fn prefetch(&self, address: u64, len: usize, to: Place) -> Result<()> {
        // SAFETY: the caller's promise; the stream is ours and alive.
        unsafe { managed::prefetch(self.context(), address, len, to, self.handle()) }
    }

    fn synchronize(&self) -> Result<()> {
        let _entered = self.context().enter()?;
        if let Some(counter) = self.handle.counter()
            && let Ok(number) = counter.enqueue(self.handle())
        {
            // SAFETY: the handle keeps its stream alive, or the caller of `adopt_stream` does.
            return unsafe {
                counter.wait(number, self.context(), self.handle(), Waiting::Spinning)
            };
        }
        // SAFETY: the stream is ours and alive.
        let done = unsafe { result::stream::synchronize(self.handle()) };
        done.map_err(|error| lost("cuStreamSynchronize", error))
    }

    fn record(&self, mark: MarkKind) -> Result<Box<dyn Mark>> {
        let _entered = self.context().enter()?;
        if mark == MarkKind::End
            && let Some(counter) = self.handle.counter()
        {
            let number = counter.enqueue(self.handle())?;
            let handle = Arc::clone(&self.handle);
            return Ok(Box::new(NumberMark {
                handle,
                number,
                asked: Mutex::new(Instant::now()),
            }));
        }
        let flags = match mark {
            MarkKind::Timed => sys::CUevent_flags::CU_EVENT_DEFAULT as u32,
            MarkKind::End | MarkKind::Event => {
                sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32
                    | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32
            }
        };
        let mark = CudaMark::new(self.context(), flags)?;
        // SAFETY: event and stream are ours, alive, and of one context.
        let recorded = unsafe { result::event::record(mark.handle, self.handle()) };
        checked("cuEventRecord", recorded)?;
        Ok(Box::new(mark))
    }

    fn wait(&self, mark: &dyn Mark) -> Result<()> {
        let mark = CudaMark::of(mark)?;
        let _entered = self.context().enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the stream is ours, the event alive and recorded.
        let waits = unsafe { result::stream::wait_event(self.handle(), mark.handle, flags) };
        checked("cuStreamWaitEvent", waits)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the bytes up to the next address at which a registration of this crate may begin or end, on either side.
fn border(copy: Copy) -> usize {
    let huge = pages::HUGE_PAGE as u64;
    let to_next = |address: u64| (huge - address % huge) as usize;
    let src = if copy.src_place == Place::Host {
        to_next(copy.src)
    } else {
        usize::MAX
    };
    let dst = if copy.dst_place == Place::Host {
        to_next(copy.dst)
    } else {
        usize::MAX
    };
    copy.len.min(src).min(dst)
}

/// A number that a stream will write. No stream can wait for it, and it has no time stamp.
#[derive(Debug)]
struct NumberMark {
    handle: Arc<StreamHandle>,
    number: u32,
    /// The time at which `is_done` last asked the driver; at first, the time at which the number was enqueued.
    asked: Mutex<Instant, { rank::DEVICE_LEAF }>,
}

impl NumberMark {
    /// Returns the stream's counter, which a stream with number marks always has.
    fn counter(&self) -> Option<&Counter> {
        self.handle.counter.get()?.as_ref()
    }
}

impl Mark for NumberMark {
    fn is_done(&self) -> Result<bool> {
        let is_late = |counter: &Counter| !counter.is_reached(self.number);
        if !self.counter().is_some_and(is_late) {
            return Ok(true);
        }
        // The driver may take long, so a single thread asks it.
        if let Some(mut asked) = self.asked.try_lock() {
            // SAFETY: the handle keeps its stream alive, or the caller of `adopt_stream` does.
            unsafe { report_loss(&self.handle.context, self.handle.stream, &mut asked) }?;
        }
        Ok(false)
    }

    fn synchronize(&self) -> Result<()> {
        let handle = &self.handle;
        self.counter().map_or(Ok(()), |counter| {
            // SAFETY: as above.
            unsafe { counter.wait(self.number, &handle.context, handle.stream, Waiting::Asleep) }
        })
    }

    fn elapsed_since(&self, _earlier: &dyn Mark) -> Result<Duration> {
        Err(Invalid::Untimed.into())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct CudaMark {
    context: Arc<Context>,
    handle: sys::CUevent,
}

// SAFETY: an event handle is a name that the driver accepts from any thread; the driver locks.
unsafe impl Send for CudaMark {}
// SAFETY: as above.
unsafe impl Sync for CudaMark {}

impl CudaMark {
    /// Creates an event that is not recorded yet. The context is current.
    fn new(context: &Arc<Context>, flags: u32) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a valid place for the answer, and the context is current.
        let created = unsafe { sys::cuEventCreate(&raw mut handle, flags) };
        checked("cuEventCreate", created.result())?;
        Ok(Self {
            context: Arc::clone(context),
            handle,
        })
    }

    fn of(mark: &dyn Mark) -> Result<&Self> {
        mark.as_any()
            .downcast_ref()
            .ok_or_else(|| Invalid::OtherDevice.into())
    }
}

impl Mark for CudaMark {
    fn is_done(&self) -> Result<bool> {
        let _entered = self.context.enter()?;
        // SAFETY: the event is ours and alive.
        match unsafe { result::event::query(self.handle) } {
            Ok(()) => Ok(true),
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(lost("cuEventQuery", error)),
        }
    }

    fn synchronize(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the event is ours and alive.
        let done = unsafe { result::event::synchronize(self.handle) };
        done.map_err(|error| lost("cuEventSynchronize", error))
    }

    fn elapsed_since(&self, earlier: &dyn Mark) -> Result<Duration> {
        let earlier = Self::of(earlier)?;
        let _entered = self.context.enter()?;
        // SAFETY: both events are alive and were recorded.
        match unsafe { result::event::elapsed(earlier.handle, self.handle) } {
            Ok(ms) => Ok(Duration::try_from_secs_f64(f64::from(ms) / 1e3).unwrap_or_default()),
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => {
                Err(Error::from(Invalid::NotReached))
            }
            Err(DriverError(CUresult::CUDA_ERROR_INVALID_HANDLE)) => {
                Err(Error::from(Invalid::OtherDevice))
            }
            Err(error) => Err(failure("cuEventElapsedTime", error)),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaMark {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: created in `new` and destroyed once.
            let _ = unsafe { result::event::destroy(self.handle) };
        }
    }
}
