//! A small pinned ring between the device and memory that is not pinned yet.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use tierflow_device::{
    Device, Error as DeviceError, HostReservation, Invalid, Place, ReadLoan, Stream, WriteLoan,
};
use tierflow_sync::{Condvar, Mutex, rank};

use crate::error::{Error, Result};
use crate::workers::Workers;

/// Threads that copy between the device and ordinary memory, each through its own pinned slot.
///
/// The driver copies to and from memory that is not pinned through one staging buffer with one thread: 3 GB/s to untouched
/// and 13 GB/s to touched memory on an H100 machine. Several threads reach 19 GB/s, touched or not: each lets the device
/// write a slot, and then copies the slot on.
///
/// ```
/// # fn main() -> tierflow_tier_alloc::Result<()> {
/// # use tierflow_device::{Choice, open};
/// use tierflow_tier_alloc::Ring;
/// # let device = open(Choice::Host)?;
/// let ring = Ring::start(&device, 4)?;
/// let (inner, outer) = (device.alloc(9 << 20)?, device.reserve_host(9 << 20)?);
/// let src = inner.lend(0..9 << 20)?;
/// let dst = outer.memory().lend_mut(0..9 << 20)?;
/// ring.copy(src, dst)?; // returns when all is copied
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Ring {
    // The first field, dropped before the workers: the threads end when there is no sender any more.
    jobs: Option<Sender<Job>>,
    _workers: Workers,
}

/// A part of a copy that one thread makes.
#[derive(Debug)]
struct Job {
    src: ReadLoan,
    dst: WriteLoan,
    part: Part,
}

impl Ring {
    /// Bytes of one slot: a thread moves as many at once.
    pub const SLOT: usize = HostReservation::GRANULARITY;

    /// Starts `copiers` threads. Each thread pins its slot itself, so this returns at once. Call this before much memory is
    /// pinned: afterwards the driver is slow to make streams.
    ///
    /// # Errors
    ///
    /// [`Error::Zero`] for no thread; [`Error::Thread`] if the system refuses a thread; [`Error::Device`] if the device
    /// makes no stream.
    pub fn start(device: &Device, copiers: usize) -> Result<Self> {
        Self::start_with(copiers, || Ok(device.stream()?))
    }

    /// Starts `copiers` threads, each with a stream that `make` makes.
    fn start_with(copiers: usize, mut make: impl FnMut() -> Result<Stream>) -> Result<Self> {
        if copiers == 0 {
            return Err(Error::Zero {
                setting: "the number of copiers",
            });
        }
        // The workers are declared before the channel, and so dropped after it. At an error, the end of the channel ends the
        // threads that run.
        let mut workers = Workers::default();
        let (sender, receiver) = unbounded();
        for _ in 0..copiers {
            let (stream, jobs) = (make()?, receiver.clone());
            workers.spawn("tierflow-ring", move || copier(stream, &jobs))?;
        }
        Ok(Self {
            jobs: Some(sender),
            _workers: workers,
        })
    }

    /// Returns the number of threads that measured best: half of the machine's threads, at least 4 and at most 8.
    pub fn copiers() -> usize {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (threads / 2).clamp(4, 8)
    }

    /// Copies and waits. At least one side is host memory; the other may be device memory.
    ///
    /// # Errors
    ///
    /// [`Invalid::LengthMismatch`] if the lengths differ; [`Invalid::NotHostAccessible`] if both sides are device memory; the
    /// device's failure. The loans are given back in any case.
    pub fn copy(&self, src: ReadLoan, dst: WriteLoan) -> Result<()> {
        if src.len() != dst.len() {
            let (src, dst) = (src.len(), dst.len());
            return Err(DeviceError::from(Invalid::LengthMismatch { src, dst }).into());
        }
        if src.place() == Place::Device && dst.place() == Place::Device {
            return Err(DeviceError::from(Invalid::NotHostAccessible).into());
        }
        let batch = Arc::new(Batch::default());
        let host = if dst.place() == Place::Host {
            dst.range()
        } else {
            src.range()
        };
        let (mut src, mut dst) = (src, dst);
        for bytes in parts(host) {
            let (src_part, src_rest) = src.split_at(bytes);
            let (dst_part, dst_rest) = dst.split_at(bytes);
            (src, dst) = (src_rest, dst_rest);
            let job = Job {
                src: src_part,
                dst: dst_part,
                part: Part::of(&batch),
            };
            // If no thread is left, the part is dropped, which its batch counts as an error.
            if let Some(jobs) = &self.jobs {
                let _ = jobs.send(job);
            }
        }
        batch.wait()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.jobs = None;
    }
}

/// Returns the lengths of the parts of a copy, cut at multiples of [`Ring::SLOT`] in the host memory. Each part lies in one
/// huge page, so no two threads fault on the same page.
fn parts(host: Range<usize>) -> impl Iterator<Item = usize> {
    let mut at = host.start;
    std::iter::from_fn(move || {
        let next = (at + 1).next_multiple_of(Ring::SLOT).min(host.end);
        let bytes = next.saturating_sub(at);
        at = next;
        (bytes > 0).then_some(bytes)
    })
}

/// The number of parts of one copy that are not done, and the first error.
#[derive(Debug, Default)]
struct Batch {
    state: Mutex<(usize, Option<Error>), { rank::ARENA_LEAF }>,
    done: Condvar,
}

impl Batch {
    fn wait(&self) -> Result<()> {
        let mut state = self.state.lock();
        while state.0 > 0 {
            self.done.wait(&mut state);
        }
        state.1.take().map_or(Ok(()), Err)
    }
}

/// A part of a batch. The part counts as not done until it is dropped, and as failed unless it was finished.
#[derive(Debug)]
struct Part {
    batch: Arc<Batch>,
    result: Option<Result<()>>,
}

impl Part {
    fn of(batch: &Arc<Batch>) -> Self {
        batch.state.lock().0 += 1;
        Self {
            batch: Arc::clone(batch),
            result: None,
        }
    }

    fn finish(mut self, result: Result<()>) {
        self.result = Some(result);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let died = || Error::Thread {
            reason: String::from("a copier of the ring ended early; please report this"),
        };
        let result = self.result.take().unwrap_or_else(|| Err(died()));
        let mut state = self.batch.state.lock();
        state.0 -= 1;
        if let (Err(error), None) = (result, &state.1) {
            state.1 = Some(error);
        }
        self.batch.done.notify_all();
    }
}

/// The slot of one thread.
struct Slot {
    pinned: HostReservation,
}

impl Slot {
    fn new(stream: &Stream) -> Result<Self, DeviceError> {
        let pinned = stream.device().reserve_host(Ring::SLOT)?;
        pinned.touch(0..Ring::SLOT)?;
        // An unpinned slot is slower, but as correct.
        let _either = pinned.pin(0..Ring::SLOT)?;
        Ok(Self { pinned })
    }

    fn carry(&self, stream: &Stream, src: ReadLoan, mut dst: WriteLoan) -> Result<(), DeviceError> {
        let slot = self.pinned.memory();
        let bytes = 0..src.len();
        if src.place() == Place::Device {
            // The thread waits asleep, not spinning, as other threads copy with the processor.
            let outcome = stream.copy(src, slot.lend_mut(bytes)?).wait();
            outcome.result?;
            dst.bytes_mut()?.copy_from_slice(outcome.dst.bytes()?);
        } else {
            let mut filled = slot.lend_mut(bytes)?;
            filled.bytes_mut()?.copy_from_slice(src.bytes()?);
            drop(src);
            stream.copy(filled.into_read(), dst).wait().result?;
        }
        Ok(())
    }
}

fn copier(stream: Stream, jobs: &Receiver<Job>) {
    let mut slot = Slot::new(&stream);
    for Job { src, dst, part } in jobs {
        // The memory that lacked for the slot may have come since then.
        if slot.is_err() {
            slot = Slot::new(&stream);
        }
        let carried = match &slot {
            Ok(slot) => slot.carry(&stream, src, dst),
            Err(error) => {
                drop((src, dst));
                Err(error.clone())
            }
        };
        part.finish(carried.map_err(Error::from));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tierflow_device::{Choice, open};

    use super::*;

    #[test]
    fn a_ring_of_which_a_later_copier_cannot_be_made_is_an_error_and_no_hang() {
        let (sender, ended) = unbounded();
        std::thread::spawn(move || {
            let device = open(Choice::Host).unwrap();
            let mut first = Some(device.stream().unwrap());
            let none = || DeviceError::from(Invalid::Empty).into();
            let started = Ring::start_with(2, || first.take().ok_or_else(none));
            sender.send(started.is_err()).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(5)), Ok(true));
    }

    #[test]
    fn parts_cover_the_range_and_end_where_slots_do() {
        let slot = Ring::SLOT;
        assert_eq!(parts(0..2 * slot).collect::<Vec<_>>(), [slot, slot]);
        assert_eq!(parts(5..slot).collect::<Vec<_>>(), [slot - 5]);
        let odd = parts(slot - 1..2 * slot + 3).collect::<Vec<_>>();
        assert_eq!(odd, [1, slot, 3]);
        assert_eq!(parts(7..7).count(), 0);
    }

    #[test]
    fn a_part_that_is_dropped_unfinished_is_an_error_and_no_hang() {
        let batch = Arc::new(Batch::default());
        drop(Part::of(&batch));
        Part::of(&batch).finish(Ok(()));
        assert!(matches!(batch.wait(), Err(Error::Thread { .. })));
        assert_eq!(Arc::new(Batch::default()).wait(), Ok(()));
    }
}
