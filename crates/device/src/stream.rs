//! Streams: work that runs in the order it was given, beside the calling thread.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use crate::backend::{Copy, Mark, MarkKind, Queue};
use crate::device::Device;
use crate::error::{Invalid, Result};
use crate::info::Place;
use crate::loan::{ReadLoan, WriteLoan};
use crate::memory::Memory;
use crate::parts::{End, spread};
use crate::transfer::Transfer;

/// Work on a device in the order it was given. Several threads may use one stream, and then share
/// its order; work of different streams overlaps.
///
/// On the host back end the calling thread does the work before the call returns, which is one of
/// the orders that a stream may take.
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
    /// Room for one `copy_all`, kept so that the next one need not allocate.
    room: Mutex<Room>,
}

/// The loans of a `copy_all`, and its copies.
type Room = (Vec<(ReadLoan, WriteLoan)>, Vec<Copy>);

impl Device {
    /// A new stream.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) or [`Error::Lost`](crate::Error::Lost) if the driver refuses one.
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
            room: Mutex::default(),
        }
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Copies without waiting. The loans go into the transfer and come back with its result.
    ///
    /// On CUDA, a copy from or to host memory that is not pinned goes through the driver's own
    /// staging buffer and may block the calling thread for as long as it takes.
    ///
    /// Wrong arguments, too, are reported by the transfer, together with the loans.
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

    /// Copies all of these and waits once, for all of them. The shortest way to move a checkpoint
    /// of several regions: nothing is allocated and no event is made.
    ///
    /// # Errors
    ///
    /// [`Invalid::LengthMismatch`] or [`Invalid::OtherDevice`] for any of them, and then none is
    /// copied; [`Error::Lost`](crate::Error::Lost) or [`Error::Driver`](crate::Error::Driver), and
    /// then some may have been. The loans are given back in any case, when nothing uses them.
    pub fn copy_all(&self, copies: impl IntoIterator<Item = (ReadLoan, WriteLoan)>) -> Result<()> {
        let (mut loans, mut parts) = std::mem::take(&mut *self.room.lock());
        loans.extend(copies);
        let checked = loans.iter().try_for_each(|(src, dst)| {
            self.check(src, dst)?;
            spread(End::of(src, 0), End::of(dst, 0), src.len(), &mut parts)
        });
        // SAFETY: `copy_many` waits, and until then the loans are held.
        let copied = checked.and_then(|()| unsafe { self.copy_many(&parts) });
        // A ledger lists loans by where they start: those that come last go without moving others.
        while loans.pop().is_some() {}
        parts.clear();
        *self.room.lock() = (loans, parts);
        copied
    }

    /// Makes these copies, and waits.
    ///
    /// # Safety
    /// Until this returns, the sources are readable and not written, and the targets are writable and used by these copies
    /// alone; no source overlaps a target.
    pub(crate) unsafe fn copy_many(&self, copies: &[Copy]) -> Result<()> {
        // SAFETY: `blocking` synchronises before it returns; the rest is the caller's promise.
        self.blocking(|| unsafe { self.queue.copy_many(copies) })
    }

    /// Copies and waits, with loans that the caller keeps.
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
    /// [`Invalid::LengthMismatch`], [`Invalid::OtherDevice`], or the device's failure; after that
    /// the destination may hold some of the bytes.
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

    /// Copies bytes of the memory into the caller's, and waits.
    ///
    /// # Errors
    ///
    /// [`Invalid::LengthMismatch`], [`Invalid::OtherDevice`], or the device's failure; after that
    /// `dst` may hold some of the bytes.
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

    /// Sets every byte, and waits.
    ///
    /// # Errors
    ///
    /// [`Invalid::OtherDevice`], or the device's failure.
    pub fn fill(&self, dst: &mut WriteLoan, byte: u8) -> Result<()> {
        self.reaches(dst.memory())?;
        if let Place::Host = dst.memory().place() {
            // The order of the stream is kept: what was enqueued before comes first.
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

    /// Waits until all work given to the stream so far is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the device failed; then nothing runs on it any more.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()
    }

    /// An event behind all work given to the stream so far, for streams and threads to wait for. A
    /// thread that does so sleeps: it goes on some tens of microseconds late, and costs nothing
    /// meanwhile.
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

    /// [`record`](Self::record), of an event that tells the time. A thread that waits for it spins: it
    /// goes on at once, at the cost of a processor.
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

    /// Lets work given to the stream from now on start after the event is reached. The calling
    /// thread does not wait.
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

    /// Enqueues, then waits, whether or not all could be enqueued.
    fn blocking(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        let guard = SyncOnDrop(self.queue.as_ref());
        let enqueued = enqueue();
        std::mem::forget(guard);
        let done = self.queue.synchronize();
        enqueued.and(done)
    }

    /// Gives a copy of `len` bytes, from an offset in each loan on, to the stream, and returns without a handle to wait for. The
    /// loans may end before the copy does.
    ///
    /// # Errors
    ///
    /// [`Invalid::OutOfBounds`](crate::Invalid::OutOfBounds), [`Invalid::OtherDevice`](crate::Invalid::OtherDevice); the device's
    /// failure.
    ///
    /// # Safety
    ///
    /// Until the work given to this stream so far is over, both memories are there, the source's bytes are not written, and
    /// the target's bytes are used by this copy alone.
    pub unsafe fn copy_unwaited(
        &self,
        (src, from): (&ReadLoan, usize),
        (dst, to): (&WriteLoan, usize),
        len: usize,
    ) -> Result<()> {
        self.reaches(src.memory())?;
        self.reaches(dst.memory())?;
        for (start, limit) in [(from, src.len()), (to, dst.len())] {
            if start.checked_add(len).is_none_or(|end| end > limit) {
                let range = start..start.saturating_add(len);
                return Err(Invalid::OutOfBounds { range, len: limit }.into());
            }
        }
        self.enqueue_part((src, from), (dst, to), len)
    }

    fn enqueue(&self, src: &ReadLoan, dst: &WriteLoan) -> Result<()> {
        self.enqueue_part((src, 0), (dst, 0), src.len())
    }

    /// The caller keeps both loans until the copy is done.
    fn enqueue_part(
        &self,
        (src, from_at): (&ReadLoan, usize),
        (dst, to_at): (&WriteLoan, usize),
        len: usize,
    ) -> Result<()> {
        let (from, to) = (src.memory(), dst.memory());
        let (from_start, to_start) = (src.range().start + from_at, dst.range().start + to_at);
        let run = |at| {
            from.run_from(from_start + at)
                .min(to.run_from(to_start + at))
        };
        cut(len, run, |at, len| {
            let copy = Copy {
                src: src.address() + (from_at + at) as u64,
                src_place: from.place(),
                dst: dst.address() + (to_at + at) as u64,
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

    /// Memory that the processor can reach is reachable from every device; device memory from its
    /// own, and from peers that it was reserved for.
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

/// Synchronises when it is dropped, so that an early return cannot free what is in use.
struct SyncOnDrop<'stream>(&'stream dyn Queue);

impl Drop for SyncOnDrop<'_> {
    fn drop(&mut self) {
        // Success and a lost device both mean that nothing runs any more.
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
    /// Whether the work before it is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the device failed.
    pub fn is_done(&self) -> Result<bool> {
        self.mark.is_done()
    }

    /// Waits until the work before it is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the device failed.
    pub fn synchronize(&self) -> Result<()> {
        self.mark.synchronize()
    }

    /// The time between two events of one device that were recorded with
    /// [`record_timed`](Stream::record_timed), as the device measured it, to about half a
    /// microsecond. Zero if this one came first.
    ///
    /// # Errors
    ///
    /// [`Invalid::Untimed`]; [`Invalid::NotReached`] before both are done; [`Invalid::OtherDevice`].
    pub fn elapsed_since(&self, earlier: &Self) -> Result<Duration> {
        if !self.is_timed || !earlier.is_timed {
            return Err(Invalid::Untimed.into());
        }
        self.mark.elapsed_since(earlier.mark.as_ref())
    }
}
