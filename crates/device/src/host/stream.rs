//! A stream without a queue: the calling thread does the work at once.

use std::any::Any;
use std::time::{Duration, Instant};

use crate::backend::{Copy, Mark, MarkKind, Queue};
use crate::error::{Invalid, Result};
use crate::info::Place;
use crate::pages::pointer;

#[derive(Debug)]
pub(super) struct InlineQueue;

// SAFETY: nothing is ever in flight after a call returns.
unsafe impl Queue for InlineQueue {
    unsafe fn copy(&self, copy: Copy) -> Result<()> {
        let (src, dst) = (
            pointer(copy.src).cast::<u8>(),
            pointer(copy.dst).cast::<u8>(),
        );
        // SAFETY: the caller promises that the source is readable, the destination writable and
        // unused by others, and that they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, copy.len) };
        Ok(())
    }

    unsafe fn fill(&self, dst: u64, len: usize, byte: u8) -> Result<()> {
        // SAFETY: the caller promises that the destination is writable and unused by others.
        unsafe { pointer(dst).cast::<u8>().write_bytes(byte, len) };
        Ok(())
    }

    unsafe fn prefetch(&self, _address: u64, _len: usize, _to: Place) -> Result<()> {
        Err(crate::error::not_cuda("a prefetch of managed memory"))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn record(&self, _mark: MarkKind) -> Result<Box<dyn Mark>> {
        Ok(Box::new(HostMark(Instant::now())))
    }

    fn wait(&self, mark: &dyn Mark) -> Result<()> {
        reached(mark).map(drop)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The time at which the work before the mark was done.
#[derive(Debug)]
struct HostMark(Instant);

impl Mark for HostMark {
    fn is_done(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn elapsed_since(&self, earlier: &dyn Mark) -> Result<Duration> {
        Ok(self.0.saturating_duration_since(reached(earlier)?.0))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn reached(mark: &dyn Mark) -> Result<&HostMark> {
    mark.as_any()
        .downcast_ref()
        .ok_or_else(|| Invalid::OtherDevice.into())
}
