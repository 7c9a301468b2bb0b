//! Host reservations: usable at once, touched and pinned piece by piece.

use std::ops::Range;

use parking_lot::Mutex;

use crate::device::{Device, not_empty};
use crate::error::{Invalid, Result};
use crate::info::Kind;
use crate::memory::Memory;
use crate::numa;
use crate::pages;
use crate::pinned::Pinned;
use crate::reservation::aligned;

/// A range of host addresses, usable at once, whose pages can be provided (touched) and locked in
/// place (pinned) ahead of use.
///
/// On CUDA, copies between the device and pinned memory run several times as fast, and do not
/// block the thread that enqueues them. Pieces may be pinned while others are being copied:
/// a [`Stream`](crate::Stream) cuts copies where a pinned piece begins or ends, because the driver
/// refuses a copy across such a border.
#[derive(Debug)]
pub struct HostReservation {
    memory: Memory,
    pinning: Mutex<()>,
}

impl Device {
    /// Reserves host addresses. They are usable at once, as plain memory that the system provides
    /// on first use; touching and pinning pieces of it ahead makes copies to and from it faster.
    /// `len` is rounded up to pages. Costs microseconds whatever `len`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`], [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the addresses do not suffice.
    pub fn reserve_host(&self, len: usize) -> Result<HostReservation> {
        HostReservation::new(self, not_empty(len)?)
    }

    /// Allocates `len` bytes of host memory, provided and pinned in one go, which may take seconds
    /// (`cuMemHostAlloc`: 2 to 3 GB/s). On the host back end it is touched and locked, as far as
    /// the memory lock limit allows.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the machine has not so much to give.
    pub fn alloc_pinned(&self, len: usize) -> Result<(Memory, Pinned)> {
        pages::within_available(not_empty(len)?, "pinned host memory")?;
        if self.info().kind == Kind::Cuda {
            return Ok((Memory::alloc_pinned(self, len)?, Pinned::Yes));
        }
        let reservation = self.reserve_host(len)?;
        let all = 0..reservation.memory().len();
        reservation.touch(all.clone())?;
        let pinned = reservation.pin(all)?;
        Ok((reservation.memory().clone(), pinned))
    }
}

impl HostReservation {
    /// What ranges to pin must begin at multiples of, and end at (or at the end of the memory), in
    /// bytes: the size of a huge page.
    pub const GRANULARITY: usize = pages::HUGE_PAGE;

    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        Ok(Self {
            memory: Memory::reserve_host(device, len)?,
            pinning: Mutex::new(()),
        })
    }

    /// Asks the system to provide pages of this NUMA node where it can, from now on. Best done
    /// before anything is touched; what is touched already stays where it is.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the system has no such node, or may not be asked.
    pub fn prefer_node(&self, node: u32) -> Result<()> {
        // SAFETY: the whole of this live mapping.
        unsafe { numa::prefer_node(self.memory.base(), self.memory.len(), node) }
    }

    /// The NUMA node on which the page of this byte lies. A page that was never touched has none of
    /// its own, and the answer means nothing.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the system does not say; [`Invalid::OutOfBounds`].
    pub fn node_of(&self, byte: usize) -> Result<u32> {
        let range = byte..byte.saturating_add(1);
        self.memory.ledger().lock().in_bounds(&range)?;
        numa::node_of(self.memory.base() + byte as u64)
    }

    /// Has the system provide small pages (4 KiB), where huge ones are asked for otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the system refuses.
    pub fn small_pages(&self) -> Result<()> {
        // SAFETY: the whole of this live mapping.
        unsafe { pages::advise_small(self.memory.base(), self.memory.len()) }
    }

    /// Has the system provide the pages of a range now rather than on first use. The content does
    /// not change, even while others read and write it. Several threads may touch different
    /// ranges at once, which is several times as fast.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the machine has no more, [`Error::System`](crate::Error::System),
    /// [`Invalid::OutOfBounds`].
    pub fn touch(&self, range: Range<usize>) -> Result<()> {
        self.memory.ledger().lock().in_bounds(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let page = pages::page_size();
        let start = range.start / page * page;
        // The memory's length is a multiple of the page, so this stays in bounds.
        let end = range.end.next_multiple_of(page);
        for start in (start..end).step_by(pages::HUGE_PAGE) {
            let end = end.min(start + pages::HUGE_PAGE);
            // A fault locks this mapping alone. Asking the kernel for the pages would lock the
            // process's whole memory map while it clears them; the driver, which needs the map to
            // pin, would wait for milliseconds, and all copies for the driver (measured: 8 ms).
            // SAFETY: a page of this live, readable and writable mapping.
            unsafe { pages::fault_in(self.memory.base() + start as u64) };
            // For what one fault did not bring, where pages are small.
            // SAFETY: whole pages of this live, readable and writable mapping.
            if !unsafe { pages::populate(self.memory.base() + start as u64, end - start) }? {
                self.touch_by_writing(start..end, page);
            }
        }
        Ok(())
    }

    /// One write a page, under a loan. Bytes that are lent are left out: a writer touches them
    /// itself, and a reader may not see a write.
    fn touch_by_writing(&self, range: Range<usize>, page: usize) {
        for start in range.step_by(page) {
            if let Ok(mut first) = self.memory.lend_mut(start..start + 1)
                && let Ok([byte]) = first.bytes_mut()
            {
                let kept = std::hint::black_box(*byte);
                *std::hint::black_box(byte) = kept;
            }
        }
    }

    /// Locks a range in place so that the device reaches it directly, until the memory is dropped.
    /// Best touched before: pinning provides missing pages itself, but with one thread, and every
    /// copy of the process waits meanwhile. Pin pieces of a few megabytes with short pauses to let
    /// other copies through.
    ///
    /// On the host back end nothing gets faster, the pages only stay in memory; it keeps within
    /// `RLIMIT_MEMLOCK` even where the process has the right to go beyond.
    ///
    /// # Errors
    ///
    /// A refusal is no error but [`Pinned::No`]. [`Invalid::OutOfBounds`],
    /// [`Invalid::Misaligned`], [`Invalid::Twice`], [`Invalid::Empty`]; [`Error::Lost`](crate::Error::Lost).
    pub fn pin(&self, range: Range<usize>) -> Result<Pinned> {
        let _one_at_a_time = self.pinning.lock();
        self.memory.ledger().lock().in_bounds(&range)?;
        aligned(&range, Self::GRANULARITY, self.memory.len())?;
        let at = {
            let pins = self.memory.pins().read();
            let at = pins.partition_point(|pin| pin.start < range.end);
            if at > 0 && pins[at - 1].end > range.start {
                return Err(Invalid::Twice {
                    range,
                    what: "pinned",
                }
                .into());
            }
            at
        };
        let address = self.memory.base() + range.start as u64;
        // SAFETY: whole pages of this live mapping, which outlives its pins; nothing of it is
        // pinned, and `pinning` keeps all other threads from pinning meanwhile.
        let pinned = unsafe { self.memory.device().backend().pin(address, range.len()) }?;
        if pinned == Pinned::Yes {
            self.memory.pins().write().insert(at, range);
        }
        Ok(pinned)
    }

    /// Gives the pages of a range back to the system, after unpinning them. The range stays usable, with new pages on
    /// first use, and its bytes are 0. It may be pinned again.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if some of it is lent. [`Invalid::Misaligned`] if it does not begin and end at multiples of
    /// [`Self::GRANULARITY`] (or the end of the memory), or cuts through a pinned piece; [`Invalid::OutOfBounds`],
    /// [`Invalid::Empty`]; [`Error::System`](crate::Error::System), and then it is unpinned all the same.
    pub fn discard(&self, range: Range<usize>) -> Result<()> {
        let _one_at_a_time = self.pinning.lock();
        let alone = self.memory.lend_mut(range.clone())?;
        aligned(&range, Self::GRANULARITY, self.memory.len())?;
        let mut pins = self.memory.pins().write();
        let overlaps = |pin: &Range<usize>| pin.start < range.end && range.start < pin.end;
        let lies_within = |pin: &Range<usize>| range.start <= pin.start && pin.end <= range.end;
        if pins.iter().any(|pin| overlaps(pin) && !lies_within(pin)) {
            let granularity = Self::GRANULARITY;
            return Err(Invalid::Misaligned { range, granularity }.into());
        }
        let backend = self.memory.device().backend();
        for pin in pins.extract_if(.., |pin| overlaps(pin)) {
            // SAFETY: it was pinned with this very range, and is undone once, as it is in `pins` no more. It is lent to
            // us alone, so no work uses it.
            unsafe { backend.unpin(self.memory.base() + pin.start as u64, pin.len()) };
        }
        drop(pins);
        let address = self.memory.base() + range.start as u64;
        let len = range.len().next_multiple_of(pages::page_size());
        // SAFETY: whole pages of this live mapping, as the memory's length is a multiple of the page; none of them is
        // pinned any more, and they are lent to us alone.
        let discarded = unsafe { pages::discard(address, len) };
        drop(alone);
        discarded
    }

    /// Where the pinned piece ends that begins before `byte` and ends behind it; `byte` if there is none.
    pub fn pinned_end(&self, byte: usize) -> usize {
        let pins = self.memory.pins().read();
        let across = pins.iter().find(|pin| pin.start < byte && byte < pin.end);
        across.map_or(byte, |pin| pin.end)
    }

    /// Bytes pinned now.
    pub fn pinned_bytes(&self) -> usize {
        self.memory
            .pins()
            .read()
            .iter()
            .map(ExactSizeIterator::len)
            .sum()
    }

    /// Bytes that lie in huge pages, as the kernel counts them. Reads `/proc/self/smaps`, which
    /// costs milliseconds.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the kernel does not say.
    pub fn huge_page_bytes(&self) -> Result<usize> {
        pages::huge_bytes(self.memory.base(), self.memory.len())
    }

    /// The memory, all of it usable.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_by_writing_keeps_the_content_and_leaves_out_what_is_lent() {
        let device = crate::open(crate::Choice::Host).unwrap();
        let host = device.reserve_host(1 << 20).unwrap();
        let page = pages::page_size();
        let mut first = host.memory().lend_mut(0..page).unwrap();
        first.bytes_mut().unwrap().fill(7);
        let reader = host.memory().lend(page..2 * page).unwrap();
        host.touch_by_writing(0..host.memory().len(), page);
        assert!(first.bytes().unwrap().iter().all(|&byte| byte == 7));
        assert!(reader.bytes().unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(host.memory().live_loans(), 2);
    }
}
