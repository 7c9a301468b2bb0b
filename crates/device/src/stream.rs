//! Streams: work that a device does in the order of the calls, while the calling thread goes on.

use std::fmt;
use std::time::Duration;

use tierflow_sync::{Mutex, rank};

use crate::backend::{Copy, Mark, MarkKind, Queue};
use crate::device::Device;
use crate::error::{Invalid, Result};
use crate::info::Place;
use crate::loan::{ReadLoan, WriteLoan};
use crate::memory::Memory;
use crate::parts::{Copies, End, check_bounds, spread};
use crate::transfer::Transfer;

/// Work on a device, done in the order of the calls. Several threads may use one stream, and then share its order; work
/// of different streams overlaps.
///
/// On the host back end, the calling thread does the work before the call returns.
///
/// ```
/// # fn main() -> tierflow_device::Result<()> {
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// let stream = device.stream()?;
/// let (from, to) = (device.alloc(1000)?, device.alloc(1000)?);
/// stream.write(&[7; 1000], &mut from.lend_mut(0..1000)?)?;
/// // Asynchronous: the loans go in, and come back with the result.
/// let transfer = stream.copy(from.lend(0..1000)?, to.lend_mut(0..1000)?);
/// let outcome = transfer.wait();
/// outcome.result?;
/// let mut seen = [0; 1000];
/// stream.read(&outcome.dst.into_read(), &mut seen)?;
/// assert_eq!(seen, [7; 1000]);
/// # Ok(()) }
/// ```
pub struct Stream {
    device: Device,
    queue: Box<dyn Queue>,
    /// Buffers of `copy_all`, kept so that its next call does not allocate.
    buffers: Mutex<CopyBuffers, { rank::DEVICE_LEAF }>,
}

/// The loans of a `copy_all`, and its copies.
type CopyBuffers = (Vec<(ReadLoan, WriteLoan)>, Copies);

impl Device {
    /// Makes a new stream.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) or [`Error::Lost`](crate::Error::Lost) if the driver refuses.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self)
    }
}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self::of(device, device.backend().queue()?))
    }

    pub(crate) fn of(device: &Device, queue: Box<dyn Queue>) -> Self {
        Self {
            device: device.clone(),
            queue,
            buffers: Mutex::default(),
        }
    }

    /// Returns the stream's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Enqueues a copy without waiting. The transfer takes the loans, and returns them with the result. The transfer also
    /// reports wrong arguments.
    ///
    /// On CUDA, a copy from or to unpinned host memory goes through the driver's staging buffer, and may block the
    /// calling thread until it is done.
    pub fn copy(&self, src: ReadLoan, dst: WriteLoan) -> Transfer {
        let enqueued = self.check(&src, &dst).and_then(|()| {
            let guard = SyncOnDrop(self.queue.as_ref());
            self.enqueue(&src, &dst)?;
            let mark = self.queue.record(MarkKind::End)?;
            std::mem::forget(guard);
            Ok(mark)
        });
        Transfer::new(src, dst, enqueued)
    }

    /// Makes all copies and waits once for all. The call allocates nothing, and records no event. For many regions,
    /// [`gather_all`](Self::gather_all) takes parts of any memory.
    ///
    /// # Errors
    ///
    /// [`Invalid::LengthMismatch`] or [`Invalid::OtherDevice`] for any of the copies, and then none is made;
    /// [`Error::Lost`](crate::Error::Lost) or [`Error::Driver`](crate::Error::Driver) if the driver fails, and then some
    /// may have been made. The loans are given back in any case, when nothing uses them.
    pub fn copy_all(&self, copies: impl IntoIterator<Item = (ReadLoan, WriteLoan)>) -> Result<()> {
        let (mut loans, mut parts) = std::mem::take(&mut *self.buffers.lock());
        loans.extend(copies);
        let checked = loans.iter().try_for_each(|(src, dst)| {
            self.check(src, dst)?;
            spread(End::of(src, 0), End::of(dst, 0), src.len(), &mut parts)
        });
        // SAFETY: `copy_many` waits, and until then the loans are held.
        let copied = checked.and_then(|()| unsafe { self.copy_many(&parts) });
        // A ledger sorts loans by start: dropping the last one first moves no other.
        while loans.pop().is_some() {}
        parts.clear();
        *self.buffers.lock() = (loans, parts);
        copied
    }

    /// Makes `copies`, and waits.
    ///
    /// # Safety
    /// Until this returns, the sources are readable and not written, and the targets are writable and used by these
    /// copies alone. No source overlaps a target.
    pub(crate) unsafe fn copy_many(&self, copies: &[Copy]) -> Result<()> {
        // SAFETY: `blocking` synchronises before it returns; the rest is the caller's promise.
        self.blocking(|| unsafe { self.queue.copy_many(copies) })
    }

    /// Copies and waits. The caller keeps the loans.
    ///
    /// # Errors
    ///
    /// As for [`copy_all`](Self::copy_all).
    pub fn copy_now(&self, src: &ReadLoan, dst: &mut WriteLoan) -> Result<()> {
        self.check(src, dst)?;
        self.blocking(|| self.enqueue(src, dst))
    }

    /// Copies the caller's bytes into the memory, and waits.
    ///
    /// # Errors
    ///
    /// [`Invalid::LengthMismatch`], [`Invalid::OtherDevice`], or the device's failure, after which the destination may
    /// hold some of the bytes.
    pub fn write(&self, src: &[u8], dst: &mut WriteLoan) -> Result<()> {
        self.same_length(src.len(), dst.len())?;
        self.reaches(dst.memory())?;
        let src = src.as_ptr().expose_provenance() as u64;
        self.blocking(|| {
            let to = (dst.memory(), dst.range().start);
            cut(
                dst.len(),
                |at| to.0.run_from(to.1 + at),
                |at, len| {
                    let (dst, dst_place) = (dst.address() + at as u64, to.0.place());
                    let src = src + at as u64;
                    let copy = Copy {
                        src,
                        src_place: Place::Host,
                        dst,
                        dst_place,
                        len,
                        is_pinned: false,
                    };
                    // SAFETY: `blocking` synchronises before it returns: until then `src` is borrowed
                    // and `dst` is borrowed from a loan that no other loan overlaps; a slice of the
                    // caller's and a loan cannot overlap.
                    unsafe { self.queue.copy(copy) }
                },
            )
        })
    }

    /// Copies bytes of the memory into the caller's slice, and waits.
    ///
    /// # Errors
    ///
    /// [`Invalid::LengthMismatch`], [`Invalid::OtherDevice`], or the device's failure, after which `dst` may hold some
    /// of the bytes.
    pub fn read(&self, src: &ReadLoan, dst: &mut [u8]) -> Result<()> {
        self.same_length(src.len(), dst.len())?;
        self.reaches(src.memory())?;
        let dst = dst.as_mut_ptr().expose_provenance() as u64;
        self.blocking(|| {
            let from = (src.memory(), src.range().start);
            cut(
                src.len(),
                |at| from.0.run_from(from.1 + at),
                |at, len| {
                    let (src, src_place) = (src.address() + at as u64, from.0.place());
                    let dst = dst + at as u64;
                    let copy = Copy {
                        src,
                        src_place,
                        dst,
                        dst_place: Place::Host,
                        len,
                        is_pinned: false,
                    };
                    // SAFETY: as in `write`, the other way round.
                    unsafe { self.queue.copy(copy) }
                },
            )
        })
    }

    /// Sets every byte to `byte`, and waits.
    ///
    /// # Errors
    ///
    /// [`Invalid::OtherDevice`], or the device's failure.
    pub fn fill(&self, dst: &mut WriteLoan, byte: u8) -> Result<()> {
        self.reaches(dst.memory())?;
        if let Place::Host = dst.memory().place() {
            // Waiting keeps the stream's order: work enqueued before comes first.
            self.synchronize()?;
            dst.bytes_mut()?.fill(byte);
            return Ok(());
        }
        if dst.is_empty() {
            return Ok(());
        }
        self.blocking(|| {
            // SAFETY: `blocking` synchronises before it returns, and until then `dst` is borrowed
            // from a loan that no other loan overlaps.
            unsafe { self.queue.fill(dst.address(), dst.len(), byte) }
        })
    }

    /// Waits until the stream's work so far is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the device failed; then nothing runs on it any more.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()
    }

    /// Records an event behind the stream's work so far. Streams and threads can wait for it. A waiting thread sleeps: it
    /// uses no processor, and goes on some tens of microseconds late.
    ///
    /// # Errors
    ///
    /// The device's failure.
    pub fn record(&self) -> Result<Event> {
        Ok(Event {
            mark: self.queue.record(MarkKind::Event)?,
            is_timed: false,
        })
    }

    /// Records an event with a time stamp. A thread that waits for it spins: it goes on at once, and uses a processor
    /// until then.
    ///
    /// # Errors
    ///
    /// The device's failure.
    pub fn record_timed(&self) -> Result<Event> {
        Ok(Event {
            mark: self.queue.record(MarkKind::Timed)?,
            is_timed: true,
        })
    }

    /// Makes later work of the stream start after the event. The calling thread does not wait.
    ///
    /// # Errors
    ///
    /// [`Invalid::OtherDevice`] if the event is of another back end; the device's failure.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.queue.wait(event.mark.as_ref())
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        self.queue.as_ref()
    }

    /// Calls `enqueue`, then waits for the stream, even if `enqueue` failed.
    fn blocking(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        let guard = SyncOnDrop(self.queue.as_ref());
        let enqueued = enqueue();
        std::mem::forget(guard);
        let done = self.queue.synchronize();
        enqueued.and(done)
    }

    /// Enqueues a copy of `len` bytes from the offset `from` of `src` to the offset `to` of `dst`, and returns no handle to wait for. The loans may
    /// end before the copy does.
    ///
    /// # Errors
    ///
    /// [`Invalid::OutOfBounds`](crate::Invalid::OutOfBounds), [`Invalid::OtherDevice`](crate::Invalid::OtherDevice); the device's
    /// failure.
    ///
    /// # Safety
    ///
    /// Until the stream's work so far is over, both memories are alive, nobody writes the source's bytes, and this copy
    /// alone uses the target's.
    pub unsafe fn copy_unwaited(
        &self,
        src: &ReadLoan,
        from: usize,
        dst: &WriteLoan,
        to: usize,
        len: usize,
    ) -> Result<()> {
        self.reaches(src.memory())?;
        self.reaches(dst.memory())?;
        check_bounds(from, len, src.len())?;
        check_bounds(to, len, dst.len())?;
        self.enqueue_part(End::of(src, from), End::of(dst, to), len)
    }

    /// Enqueues copies of whole loans to their offsets in `dst`, in any order, as [`copy_unwaited`](Self::copy_unwaited) enqueues one copy. On
    /// CUDA, one kernel makes the copies within the device's reach.
    ///
    /// # Errors
    ///
    /// As for [`copy_unwaited`](Self::copy_unwaited); some of the copies may have been enqueued.
    ///
    /// # Safety
    ///
    /// As for [`copy_unwaited`](Self::copy_unwaited), for each copy; no two have a byte of the target in common.
    pub unsafe fn gather_unwaited<'l>(
        &self,
        parts: impl IntoIterator<Item = (usize, &'l ReadLoan)>,
        dst: &WriteLoan,
    ) -> Result<()> {
        self.reaches(dst.memory())?;
        let mut copies = Copies::new();
        for (at, part) in parts {
            self.reaches(part.memory())?;
            check_bounds(at, part.len(), dst.len())?;
            spread(End::of(part, 0), End::of(dst, at), part.len(), &mut copies)?;
        }
        // SAFETY: the caller's promise; the places are those of the loans.
        unsafe { self.queue.copy_many(&copies) }
    }

    fn enqueue(&self, src: &ReadLoan, dst: &WriteLoan) -> Result<()> {
        self.enqueue_part(End::of(src, 0), End::of(dst, 0), src.len())
    }

    /// Enqueues a copy between two loans. The caller keeps both until it is done.
    fn enqueue_part(&self, from: End<'_>, to: End<'_>, len: usize) -> Result<()> {
        let run = |at| from.run(at).min(to.run(at));
        cut(len, run, |at, len| {
            let copy = Copy {
                src: from.address(at),
                src_place: from.place(),
                dst: to.address(at),
                dst_place: to.place(),
                len,
                is_pinned: false,
            };
            // SAFETY: every caller keeps the loans until it has synchronised, or hands them to a
            // `Transfer` that does; the loans keep other writers and readers out, and two loans
            // of which one writes never overlap.
            unsafe { self.queue.copy(copy) }
        })
    }

    fn check(&self, src: &ReadLoan, dst: &WriteLoan) -> Result<()> {
        self.same_length(src.len(), dst.len())?;
        self.reaches(src.memory())?;
        self.reaches(dst.memory())
    }

    fn same_length(&self, src: usize, dst: usize) -> Result<()> {
        if src == dst {
            return Ok(());
        }
        Err(Invalid::LengthMismatch { src, dst }.into())
    }

    /// Checks that this stream reaches the memory. Every device reaches host memory that the processor reaches, its own
    /// device memory, and the memory that a peer reserved for it.
    pub(crate) fn reaches(&self, memory: &Memory) -> Result<()> {
        let plain = memory.host_accessible();
        if (plain && memory.place() == Place::Host) || memory.is_reached_by(&self.device) {
            return Ok(());
        }
        Err(Invalid::OtherDevice.into())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// Synchronises when it is dropped, so that an early return cannot free memory in use.
struct SyncOnDrop<'stream>(&'stream dyn Queue);

impl Drop for SyncOnDrop<'_> {
    fn drop(&mut self) {
        // Nothing runs any more after success or on a lost device.
        let _ = self.0.synchronize();
    }
}

/// Calls `copy(offset, bytes)` for `len` bytes, in pieces of at most `run(offset)` bytes.
pub(crate) fn cut(
    len: usize,
    run: impl Fn(usize) -> usize,
    mut copy: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < len {
        let piece = run(at).min(len - at);
        copy(at, piece)?;
        at += piece;
    }
    Ok(())
}

/// A point in the work of a stream.
#[derive(Debug)]
pub struct Event {
    mark: Box<dyn Mark>,
    is_timed: bool,
}

impl Event {
    /// Returns true if the work before the event is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the device failed.
    pub fn is_done(&self) -> Result<bool> {
        self.mark.is_done()
    }

    /// Waits until the work before the event is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the device failed.
    pub fn synchronize(&self) -> Result<()> {
        self.mark.synchronize()
    }

    /// Returns the time from `earlier` to this event, as the device measured it, to about half a microsecond. Both events
    /// are of one device and were recorded with [`record_timed`](Stream::record_timed). Zero if this event came first.
    ///
    /// # Errors
    ///
    /// [`Invalid::Untimed`] if an event has no time stamp; [`Invalid::NotReached`] before both events are reached;
    /// [`Invalid::OtherDevice`] if the events are of different devices.
    pub fn elapsed_since(&self, earlier: &Self) -> Result<Duration> {
        if !self.is_timed || !earlier.is_timed {
            return Err(Invalid::Untimed.into());
        }
        self.mark.elapsed_since(earlier.mark.as_ref())
    }
}
