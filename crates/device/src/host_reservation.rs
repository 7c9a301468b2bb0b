//! Host reservations: usable at once, touched and pinned piece by piece.

use std::ops::Range;

use tierflow_sync::{Mutex, rank};

use crate::device::{Device, not_empty};
use crate::error::{Invalid, Result};
use crate::info::Kind;
use crate::memory::Memory;
use crate::numa;
use crate::pages;
use crate::pinned::Pinned;
use crate::reservation::aligned;

/// A range of host addresses, usable at once. Before their use, its pages can be provided (touched) and locked in place
/// (pinned), piece by piece.
///
/// On CUDA, copies between the device and pinned memory run several times as fast, and do not block the thread that
/// enqueues them. Pieces may be pinned while others are being copied: a [`Stream`](crate::Stream) cuts copies at the
/// borders of pinned pieces, because the driver refuses a copy across one.
#[derive(Debug)]
pub struct HostReservation {
    memory: Memory,
    pinning: Mutex<(), { rank::DEVICE }>,
}

impl Device {
    /// Reserves host addresses that are usable at once; the system provides pages on first use. Copies are faster if
    /// pieces were touched and pinned before. `len` is rounded up to pages. Costs microseconds for any `len`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the addresses do not suffice.
    pub fn reserve_host(&self, len: usize) -> Result<HostReservation> {
        HostReservation::new(self, not_empty(len)?)
    }

    /// Allocates `len` bytes of host memory, provided and pinned in one go, which may take seconds (`cuMemHostAlloc`: 2
    /// to 3 GB/s). The host back end touches and locks the memory, as far as the memory lock limit allows.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the machine has less memory available.
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
    /// Granularity of ranges to pin, in bytes: the size of a huge page. A range begins at a multiple of it, and ends at a
    /// multiple or at the end of the memory.
    pub const GRANULARITY: usize = pages::HUGE_PAGE;

    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        Ok(Self {
            memory: Memory::reserve_host(device, len)?,
            pinning: Mutex::new(()),
        })
    }

    /// Asks the system to take pages of this memory from the NUMA node `node` from now on, if it can. Call this before
    /// touching: touched pages stay on their node.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the system has no such node, or refuses the call.
    pub fn prefer_node(&self, node: u32) -> Result<()> {
        // SAFETY: the whole of this live mapping.
        unsafe { numa::prefer_node(self.memory.base(), self.memory.len(), node) }
    }

    /// Returns the NUMA node that holds the page of this byte. Meaningless for a page that was never touched.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the system does not answer; [`Invalid::OutOfBounds`].
    pub fn node_of(&self, byte: usize) -> Result<u32> {
        let range = byte..byte.saturating_add(1);
        self.memory.ledger().lock().in_bounds(&range)?;
        numa::node_of(self.memory.base() + byte as u64)
    }

    /// Asks the system for small pages (4 KiB) in place of huge ones.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the system refuses.
    pub fn small_pages(&self) -> Result<()> {
        // SAFETY: the whole of this live mapping.
        unsafe { pages::advise_small(self.memory.base(), self.memory.len()) }
    }

    /// Makes the system provide the pages of a range now rather than on first use. The content does not change, even
    /// while others read and write it. Several threads may touch different ranges at once, which is several times as
    /// fast.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the machine has no more;
    /// [`Error::System`](crate::Error::System); [`Invalid::OutOfBounds`].
    pub fn touch(&self, range: Range<usize>) -> Result<()> {
        self.memory.ledger().lock().in_bounds(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let page = pages::page_size();
        let start = range.start / page * page;
        // The memory's length is a multiple of the page, so `end` stays in bounds.
        let end = range.end.next_multiple_of(page);
        for start in (start..end).step_by(pages::HUGE_PAGE) {
            let end = end.min(start + pages::HUGE_PAGE);
            // A fault locks this mapping alone. `populate` locks the process's whole memory map while the kernel clears
            // pages. The driver, which needs the map to pin, would wait for milliseconds, and all copies would wait for
            // the driver (measured: 8 ms).
            // SAFETY: a page of this live, readable and writable mapping.
            unsafe { pages::fault_in(self.memory.base() + start as u64) };
            // `populate` provides the other pages where pages are small.
            // SAFETY: whole pages of this live, readable and writable mapping.
            if !unsafe { pages::populate(self.memory.base() + start as u64, end - start) }? {
                self.touch_by_writing(start..end, page);
            }
        }
        Ok(())
    }

    /// Writes one byte of each page, under a loan. Skips bytes that are lent: a writer touches them itself, and a
    /// reader must not see a write.
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

    /// Locks a range in place until the memory is dropped, so that the device reaches it directly. Touch the range
    /// first: pinning also provides missing pages, but with one thread, and every copy of the process waits meanwhile.
    /// Pin pieces of a few megabytes with short pauses to let other copies through.
    ///
    /// The host back end keeps within `RLIMIT_MEMLOCK` even if the process may exceed it. Pinning keeps pages in memory
    /// there and makes no copy faster.
    ///
    /// # Errors
    ///
    /// [`Invalid::OutOfBounds`]; [`Invalid::Misaligned`] if the range does not keep to [`Self::GRANULARITY`];
    /// [`Invalid::Twice`] if a part is pinned; [`Invalid::Empty`]; [`Error::Lost`](crate::Error::Lost) if the device
    /// failed. A refusal to pin is no error but [`Pinned::No`].
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

    /// Unpins a range and gives its pages back to the system. The range stays usable and reads as 0, with new pages on
    /// first use, and may be pinned again.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if some bytes are lent. [`Invalid::Misaligned`] if the range does not begin
    /// and end at multiples of [`Self::GRANULARITY`] (or the end of the memory), or cuts a pinned piece;
    /// [`Invalid::OutOfBounds`], [`Invalid::Empty`]. After [`Error::System`](crate::Error::System) the range is
    /// unpinned all the same.
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
            // SAFETY: the piece was pinned with this very range. `extract_if` took it out of `pins`, so it is unpinned
            // once. The bytes are lent to us alone, so no work uses them.
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

    /// Returns the end of the pinned piece that contains both `byte` and the byte before it; `byte` if there is none.
    pub fn pinned_end(&self, byte: usize) -> usize {
        let pins = self.memory.pins().read();
        let across = pins.iter().find(|pin| pin.start < byte && byte < pin.end);
        across.map_or(byte, |pin| pin.end)
    }

    /// Returns the bytes pinned now.
    pub fn pinned_bytes(&self) -> usize {
        self.memory
            .pins()
            .read()
            .iter()
            .map(ExactSizeIterator::len)
            .sum()
    }

    /// Returns the bytes that lie in huge pages, by the kernel's count. Reads `/proc/self/smaps`, which costs milliseconds.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the kernel does not answer.
    pub fn huge_page_bytes(&self) -> Result<usize> {
        pages::huge_bytes(self.memory.base(), self.memory.len())
    }

    /// Returns the memory, all of it usable.
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
