//! A stream without a queue: the calling thread does the work at once.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierflow_sync::{Condvar, Mutex, rank};

use crate::backend::{Copy, Mark, MarkKind, Queue};
use crate::error::{Error, Invalid, Result};
use crate::info::Place;
use crate::pages::pointer;

use super::links::Links;

#[derive(Debug)]
pub(super) struct InlineQueue {
    /// `None` if marks are reached at once.
    pub(super) late: Option<LateEnds>,
    pub(super) links: Links,
}

/// Marks of a stream that are reached on demand. A test controls the progress of a device with them, as the host back end
/// ends its work at once.
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "public with `testing` alone")
)]
#[derive(Clone, Debug, Default)]
pub struct LateEnds(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    counts: Mutex<Counts, { rank::DEVICE_LEAF }>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    recorded: u64,
    reached: u64,
    /// True while the stream refuses to record marks.
    is_refusing: bool,
    /// True while the stream refuses to be waited for.
    is_mute: bool,
}

impl LateEnds {
    /// Makes the oldest mark that is not reached count as reached. Returns false if there is none.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn reach_next(&self) -> bool {
        let mut counts = self.0.counts.lock();
        let is_late = counts.reached < counts.recorded;
        counts.reached += u64::from(is_late);
        self.0.changed.notify_all();
        is_late
    }

    /// Makes the stream refuse further events, as a driver without memory does. A wait for the stream then lasts until all its marks
    /// are reached, refused ones included; if `is_mute`, the stream refuses the wait, too.
    #[cfg(feature = "testing")]
    pub fn refuse(&self, is_mute: bool) {
        let mut counts = self.0.counts.lock();
        (counts.is_refusing, counts.is_mute) = (true, is_mute);
    }

    /// Records a mark, and returns its number.
    fn record(&self) -> Result<u64> {
        let mut counts = self.0.counts.lock();
        counts.recorded += 1;
        match counts.is_refusing {
            true => Err(refused("recording an event")),
            false => Ok(counts.recorded),
        }
    }

    /// Waits for the marks of a stream that refuses further ones. Other streams are done at once.
    fn synchronize(&self) -> Result<()> {
        let counts = self.0.counts.lock();
        let (last, is_refusing, is_mute) = (counts.recorded, counts.is_refusing, counts.is_mute);
        drop(counts);
        match is_mute {
            true => return Err(refused("waiting for a stream")),
            false if is_refusing => self.wait(last),
            false => {}
        }
        Ok(())
    }

    fn is_reached(&self, number: u64) -> bool {
        self.0.counts.lock().reached >= number
    }

    fn wait(&self, number: u64) {
        let mut counts = self.0.counts.lock();
        let is_late = |counts: &mut Counts| counts.reached < number;
        self.0.changed.wait_while(&mut counts, is_late);
    }
}

// SAFETY: nothing is ever in flight after a call returns.
unsafe impl Queue for InlineQueue {
    unsafe fn copy(&self, copy: Copy) -> Result<()> {
        self.links.hear(&copy);
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
        self.late.as_ref().map_or(Ok(()), LateEnds::synchronize)
    }

    fn record(&self, _mark: MarkKind) -> Result<Box<dyn Mark>> {
        let late = self.late.clone();
        Ok(Box::new(HostMark {
            time: Instant::now(),
            late: late
                .map(|ends| Ok::<_, Error>((ends.record()?, ends)))
                .transpose()?,
        }))
    }

    fn wait(&self, mark: &dyn Mark) -> Result<()> {
        reached(mark)?.synchronize()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct HostMark {
    /// The time at which the work before the mark was done.
    time: Instant,
    /// The number of a mark that is reached on demand.
    late: Option<(u64, LateEnds)>,
}

impl Mark for HostMark {
    fn is_done(&self) -> Result<bool> {
        let late = self.late.as_ref();
        Ok(late.is_none_or(|(number, ends)| ends.is_reached(*number)))
    }

    fn synchronize(&self) -> Result<()> {
        if let Some((number, ends)) = &self.late {
            ends.wait(*number);
        }
        Ok(())
    }

    fn elapsed_since(&self, earlier: &dyn Mark) -> Result<Duration> {
        Ok(self.time.saturating_duration_since(reached(earlier)?.time))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn refused(call: &'static str) -> Error {
    let reason = "a test refuses it".to_owned();
    Error::Driver { call, reason }
}

fn reached(mark: &dyn Mark) -> Result<&HostMark> {
    mark.as_any()
        .downcast_ref()
        .ok_or_else(|| Invalid::OtherDevice.into())
}
