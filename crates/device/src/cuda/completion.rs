//! Completion counters: they show the end of a stream's work without a call of the driver.
//!
//! The driver serves one thread at a time, under a lock that is not fair. While one thread pins memory, all threads
//! that ask the driver whether a copy is done wait, often for several turns of the lock. Therefore the stream writes a
//! number to pinned host memory behind its work, and waiting threads read that number.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{self, CUresult};
use tierflow_sync::{Mutex, rank};

use super::context::{Context, checked, lost};
use super::host_memory::{alloc_pinned, free_pinned};
use crate::error::Result;
use crate::pages::pointer;

/// Bytes of the allocation: the driver gives at least a page.
const PAGE: usize = 4096;

/// The number in pinned host memory that a stream writes.
#[derive(Debug)]
pub(super) struct Counter {
    address: u64,
    /// The number enqueued last. Held while one is enqueued, so that the device writes numbers in order.
    last: Mutex<u32, { rank::DEVICE_LEAF }>,
}

/// The way in which a thread waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting {
    /// The wait returns at once when the work is done, and uses a processor until then.
    Spinning,
    /// The wait returns up to 0.1 ms late, and leaves the processor free.
    Asleep,
}

impl Counter {
    /// Makes a counter for a live stream of `context`, which is current. `None` if streams cannot write numbers.
    pub(super) fn new(context: &Context, stream: sys::CUstream) -> Result<Option<Self>> {
        let address = alloc_pinned(context, PAGE)?;
        let counter = Self {
            address,
            last: Mutex::new(0),
        };
        // The driver hands a freed page out again uncleared: an old number would end a wait too early.
        counter.number().store(0, Ordering::Release);
        // No device attribute says whether streams can write numbers; on every known device they can. A lost device
        // reports its loss at a later call.
        if counter.enqueue(stream).is_ok() {
            return Ok(Some(counter));
        }
        // SAFETY: no number was enqueued.
        unsafe { counter.free(context) };
        Ok(None)
    }

    /// Enqueues the next number behind all work of `stream` so far, and returns it. The context is current.
    pub(super) fn enqueue(&self, stream: sys::CUstream) -> Result<u32> {
        let mut last = self.last.lock();
        let next = last.wrapping_add(1);
        // The default flag orders the work's own writes before that of the number.
        let flags = sys::CUstreamWriteValue_flags_enum::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        // SAFETY: the address is that of this counter's pinned host memory. The memory has the same address on the
        // device, and is freed once the stream is done (`StreamHandle::drop`). The stream is alive, and the context
        // current.
        let enqueued = unsafe { sys::cuStreamWriteValue32_v2(stream, self.address, next, flags) };
        checked("cuStreamWriteValue32", enqueued.result())?;
        *last = next;
        Ok(next)
    }

    /// The number written last.
    fn number(&self) -> &AtomicU32 {
        // SAFETY: aligned and mapped as long as `self` lives; after `new` the processor only reads it, and the device
        // writes four bytes at once.
        unsafe { AtomicU32::from_ptr(pointer(self.address).cast()) }
    }

    pub(super) fn is_reached(&self, number: u32) -> bool {
        // Acquires what the device wrote before. Numbers wrap after years of copies, and are close together.
        let reached = self.number().load(Ordering::Acquire).wrapping_sub(number);
        reached.cast_signed() >= 0
    }

    /// Returns true if all work before the last number is done.
    pub(super) fn is_idle(&self) -> bool {
        self.is_reached(*self.last.lock())
    }

    /// Waits for `number`.
    ///
    /// # Safety
    /// As for [`report_loss`].
    pub(super) unsafe fn wait(
        &self,
        number: u32,
        context: &Context,
        stream: sys::CUstream,
        waiting: Waiting,
    ) -> Result<()> {
        /// Time that a spinning thread keeps its processor before it yields.
        const SPIN: Duration = Duration::from_millis(5);
        const POLL_INTERVAL: Duration = Duration::from_micros(40);
        let begun = Instant::now();
        let mut asked = begun;
        while !self.is_reached(number) {
            match waiting {
                Waiting::Spinning if begun.elapsed() < SPIN => std::hint::spin_loop(),
                Waiting::Spinning => std::thread::yield_now(),
                Waiting::Asleep => std::thread::sleep(POLL_INTERVAL),
            }
            // SAFETY: the caller's promise.
            unsafe { report_loss(context, stream, &mut asked) }?;
        }
        Ok(())
    }

    /// Frees the counter's memory.
    ///
    /// # Safety
    /// The stream writes no number any more, and no thread reads one.
    pub(super) unsafe fn free(&self, context: &Context) {
        // SAFETY: allocated in `new`, and the caller's promise.
        unsafe { free_pinned(context, self.address) };
    }
}

/// Asks the driver whether the device is lost, as a lost device writes no number any more. Asks only if the last query,
/// at the time `asked`, is `QUERY_INTERVAL` ago, and then sets `asked` to the present.
///
/// # Safety
/// The stream is alive, and of `context`.
pub(super) unsafe fn report_loss(
    context: &Context,
    stream: sys::CUstream,
    asked: &mut Instant,
) -> Result<()> {
    /// Time between two queries of the driver.
    const QUERY_INTERVAL: Duration = Duration::from_millis(20);
    if asked.elapsed() < QUERY_INTERVAL {
        return Ok(());
    }
    *asked = Instant::now();
    let _entered = context.enter()?;
    // SAFETY: the caller's promise, and the context is current.
    match unsafe { sys::cuStreamQuery(stream) }.result() {
        Ok(()) | Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(()),
        // The owner of an adopted stream captures a graph on it, behind the work before.
        Err(DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)) => Ok(()),
        Err(error) => Err(lost("cuStreamQuery", error)),
    }
}
