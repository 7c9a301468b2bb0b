//! Memory: a range of bytes on the device or the host.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use tierflow_sync::{Mutex, RwLock, rank};

use crate::backend::ChunkMemory;
use crate::device::{Device, not_empty, round_up};
use crate::error::{Access, Invalid, Result};
use crate::info::{Kind, Place};
use crate::ledger::Ledger;
use crate::pages::{self, AtFork};
use crate::process::OwnerProcess;

/// A range of bytes. Clones are the same bytes.
///
/// Code touches the bytes through loans alone: [`lend`](Self::lend) for reading, [`lend_mut`](Self::lend_mut) for
/// writing. A loan keeps the memory alive. The memory is freed after its last clone, loan and transfer.
///
/// ```
/// # fn main() -> tierflow_device::Result<()> {
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// let memory = device.alloc(4096)?;
/// let first = memory.lend_mut(0..1024)?;
/// let also = memory.lend(1024..4096)?;
/// assert!(memory.lend(0..1).is_err(), "lent for writing");
/// drop(first);
/// assert!(memory.lend(0..2048).is_ok(), "many may read");
/// # drop(also); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
    /// The side of the bus from which copies reach the bytes. Values of one managed memory may have different sides.
    place: Place,
}

struct Inner {
    device: Device,
    base: u64,
    len: usize,
    host_accessible: bool,
    ledger: Mutex<Ledger, { rank::DEVICE_LEAF }>,
    /// Mapped chunks, unsorted. Each chunk is unmapped by a separate call.
    chunks: Mutex<Vec<Chunk>, { rank::CHUNKS }>,
    /// Pinned pieces, sorted. A single call cannot copy across the border of two pieces.
    pins: RwLock<Vec<Range<usize>>, { rank::DEVICE_LEAF }>,
    backing: Backing,
}

/// A range that the back end mapped in one call, and the memory there.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) range: Range<usize>,
    pub(crate) behind: Arc<ChunkMemory>,
}

/// The origin of the bytes, which decides how they are freed.
enum Backing {
    Allocated,
    /// Addresses for chunks that peers of these numbers reach too.
    Reserved {
        peers: Vec<usize>,
    },
    /// Pages mapped through `pages`.
    HostPages {
        at_fork: AtFork,
        owner: OwnerProcess,
    },
    /// Pinned memory of the driver, from one call.
    Pinned,
    /// Managed memory of the driver, from one call.
    Managed,
    /// Memory of another owner, which this keeps alive.
    Foreign(#[allow(dead_code, reason = "kept for its drop")] Arc<dyn Any + Send + Sync>),
}

impl Device {
    /// Allocates `len` usable bytes of device memory, with unspecified content.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`], [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn alloc(&self, len: usize) -> Result<Memory> {
        self.within_total(not_empty(len)?, "device memory")?;
        Memory::alloc(self, len)
    }

    /// Allocates `len` bytes of unified (managed) memory, which the driver moves between host and device at each access.
    /// All managed memory of a process together may have as many bytes as the device has free: as long as all of it fits
    /// there, the driver evicts nothing without being told to.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end; [`Invalid::Empty`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) beyond
    /// the free memory.
    pub fn alloc_managed(&self, len: usize) -> Result<Memory> {
        Memory::alloc_managed(self, not_empty(len)?)
    }
}

impl Memory {
    pub(crate) fn alloc(device: &Device, len: usize) -> Result<Self> {
        let base = device.backend().alloc(len)?;
        let accessible = device.info().host_accessible;
        let ledger = Ledger::usable(len);
        Ok(Self::new(
            device,
            base,
            len,
            Place::Device,
            accessible,
            ledger,
            Backing::Allocated,
        ))
    }

    /// Reserves addresses for chunks of `behind`, and returns them with the granularity of the chunks in bytes.
    pub(crate) fn reserve(
        device: &Device,
        len: usize,
        behind: &ChunkMemory,
    ) -> Result<(Self, usize)> {
        let granularity = device.backend().granularity(behind)?;
        let (place, accessible, peers) = match behind {
            ChunkMemory::Device { peers } => {
                let accessible = device.info().host_accessible;
                (Place::Device, accessible, peers.clone())
            }
            ChunkMemory::Host { .. } => (Place::Host, true, Vec::new()),
            _ => return Err(Invalid::NotSuchChunks.into()),
        };
        let len = round_up(len, granularity, "addresses")?;
        let memory = Self::reserved(device, len, place, accessible, peers)?;
        Ok((memory, granularity))
    }

    /// Reserves addresses for chunks that other processes may write at any time. Therefore the processor never reaches
    /// them in place.
    pub(crate) fn reserve_for_exported(device: &Device, len: usize) -> Result<(Self, usize)> {
        let granularity = device.info().granularity;
        let len = round_up(len, granularity, "addresses")?;
        let memory = Self::reserved(device, len, Place::Device, false, Vec::new())?;
        Ok((memory, granularity))
    }

    fn reserved(
        device: &Device,
        len: usize,
        place: Place,
        accessible: bool,
        peers: Vec<usize>,
    ) -> Result<Self> {
        let base = device.backend().reserve(len)?;
        let ledger = Ledger::reserved(len);
        let backing = Backing::Reserved { peers };
        Ok(Self::new(
            device, base, len, place, accessible, ledger, backing,
        ))
    }

    pub(crate) fn alloc_pinned(device: &Device, len: usize) -> Result<Self> {
        let base = device.backend().alloc_pinned(len)?;
        Ok(Self::on_host(device, base, len, Backing::Pinned))
    }

    pub(crate) fn alloc_managed(device: &Device, len: usize) -> Result<Self> {
        let base = device.backend().alloc_managed(len)?;
        Ok(Self::on_host(device, base, len, Backing::Managed))
    }

    /// Wraps allocated memory of the host, all of which is accessible.
    fn on_host(device: &Device, base: u64, len: usize, backing: Backing) -> Self {
        let ledger = Ledger::usable(len);
        Self::new(device, base, len, Place::Host, true, ledger, backing)
    }

    pub(crate) fn reserve_host(device: &Device, len: usize) -> Result<Self> {
        let at_fork = match device.info().kind {
            Kind::Cuda => AtFork::Absent,
            Kind::Host => AtFork::Copied,
        };
        Self::reserve_pages(device, len, at_fork)
    }

    fn reserve_pages(device: &Device, len: usize, at_fork: AtFork) -> Result<Self> {
        let len = round_up(len, pages::page_size(), "host addresses")?;
        let base = pages::reserve_usable(len, at_fork)?;
        let owner = OwnerProcess::current();
        let backing = Backing::HostPages { at_fork, owner };
        Ok(Self::on_host(device, base, len, backing))
    }

    /// Wraps memory of another owner, such as an application's array or another library's tensor.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`]; [`Invalid::Address`] if the address is null or the range wraps around.
    ///
    /// # Safety
    ///
    /// For as long as `keep_alive`, or anything that it owns, is alive:
    /// - `address..address + len` is readable and writable memory: on `device` for [`Place::Device`] (any initialised
    ///   host memory on the host back end), or initialised memory of this process for [`Place::Host`];
    /// - all other code that reaches these bytes keeps to the rules of loans: it does not write lent bytes, and does
    ///   not read bytes lent for writing. Two `Memory` values over the same bytes do not know of each other.
    ///
    /// The last clone or loan to go drops `keep_alive`, on any thread.
    pub unsafe fn from_raw(
        device: &Device,
        address: u64,
        len: usize,
        place: Place,
        keep_alive: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        if len == 0 {
            return Err(Invalid::Empty.into());
        }
        let fits = isize::try_from(len).is_ok() && address.checked_add(len as u64).is_some();
        if address == 0 || !fits {
            return Err(Invalid::Address { address, len }.into());
        }
        let accessible = place == Place::Host || device.info().host_accessible;
        let backing = Backing::Foreign(keep_alive);
        Ok(Self::new(
            device,
            address,
            len,
            place,
            accessible,
            Ledger::usable(len),
            backing,
        ))
    }

    fn new(
        device: &Device,
        base: u64,
        len: usize,
        place: Place,
        host_accessible: bool,
        ledger: Ledger,
        backing: Backing,
    ) -> Self {
        let inner = Inner {
            device: device.clone(),
            base,
            len,
            host_accessible,
            ledger: Mutex::new(ledger),
            chunks: Mutex::default(),
            pins: RwLock::default(),
            backing,
        };
        Self {
            inner: Arc::new(inner),
            place,
        }
    }

    /// Returns the length in bytes, usable or not.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Returns the side of the bus on which the memory lies.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the same bytes, for copies from that side.
    pub(crate) fn with_place(&self, place: Place) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner, place }
    }

    pub(crate) fn is_managed(&self) -> bool {
        matches!(self.inner.backing, Backing::Managed)
    }

    /// Returns true if the processor can read and write the memory in place.
    pub fn host_accessible(&self) -> bool {
        self.inner.host_accessible
    }

    /// Returns the device that owns the memory, or that reaches it.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns the number of live loans of at least one byte, those of transfers included.
    pub fn live_loans(&self) -> usize {
        self.inner.ledger.lock().live_loans()
    }

    pub(crate) fn base(&self) -> u64 {
        self.inner.base
    }

    pub(crate) fn give_back(&self, range: &Range<usize>, access: Access) {
        self.inner.ledger.lock().give_back(range, access);
    }

    pub(crate) fn split_loan(&self, range: &Range<usize>, at: usize, access: Access) {
        self.inner.ledger.lock().split(range, at, access);
    }

    pub(crate) fn ledger(&self) -> &Mutex<Ledger, { rank::DEVICE_LEAF }> {
        &self.inner.ledger
    }

    /// Returns true if `device` owns these bytes, or reaches them as a peer.
    pub(crate) fn is_reached_by(&self, device: &Device) -> bool {
        let own = self.device();
        let is_granted = |peers: &[usize]| {
            own.info().kind == device.info().kind && peers.contains(&device.info().ordinal)
        };
        own.is_same(device)
            || matches!(&self.inner.backing, Backing::Reserved { peers } if is_granted(peers))
    }

    pub(crate) fn chunks(&self) -> &Mutex<Vec<Chunk>, { rank::CHUNKS }> {
        &self.inner.chunks
    }

    pub(crate) fn pins(&self) -> &RwLock<Vec<Range<usize>>, { rank::DEVICE_LEAF }> {
        &self.inner.pins
    }

    /// Returns true if the byte is known to lie on the device, or in host memory that every device reaches by itself.
    pub(crate) fn is_pinned(&self, offset: usize) -> bool {
        match self.inner.backing {
            _ if self.place == Place::Device => true,
            Backing::Pinned => true,
            // The host back end locks pages for the processor alone.
            Backing::HostPages { .. } if self.device().info().kind == Kind::Cuda => {
                let pins = self.inner.pins.read();
                let after = pins.partition_point(|pin| pin.end <= offset);
                pins.get(after).is_some_and(|pin| pin.start <= offset)
            }
            _ => false,
        }
    }

    /// Returns the number of bytes from `offset` on that one call may copy: up to the next border of a pinned piece.
    pub(crate) fn run_from(&self, offset: usize) -> usize {
        let end = self.inner.len;
        if self.place == Place::Device || !matches!(self.inner.backing, Backing::HostPages { .. }) {
            return end - offset;
        }
        let pins = self.inner.pins.read();
        let after = pins.partition_point(|pin| pin.end <= offset);
        let border = match pins.get(after) {
            Some(pin) if pin.start > offset => pin.start,
            Some(pin) => pin.end,
            None => end,
        };
        border - offset
    }
}

impl Inner {
    /// Returns true in a child process that lacks the pages: their addresses may belong to another mapping there.
    fn is_absent(&self) -> bool {
        let Backing::HostPages { at_fork, owner } = self.backing else {
            return false;
        };
        at_fork == AtFork::Absent && !owner.is_current()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_absent() {
            return;
        }
        let backend = self.device.backend();
        for pin in self.pins.get_mut().drain(..) {
            // SAFETY: the ledger's last loan is gone with the last clone, so no work uses the
            // piece; it was pinned with this range and is unpinned once, here.
            unsafe { backend.unpin(self.base + pin.start as u64, pin.end - pin.start) };
        }
        for Chunk { range, behind } in self.chunks.get_mut().drain(..) {
            // SAFETY: as above: no work uses it, and it was mapped with this very range.
            unsafe { backend.unmap(self.base + range.start as u64, range.len(), &behind) };
        }
        match self.backing {
            // SAFETY: it came from `alloc`, no loan is left, and it is freed here alone.
            Backing::Allocated => unsafe { backend.free(self.base, self.len) },
            // SAFETY: it came from `reserve`, and all that was mapped in it is unmapped.
            Backing::Reserved { .. } => unsafe { backend.release(self.base, self.len) },
            // SAFETY: it came from `pages` and is mapped in this process, no loan is left, and nothing of it is pinned any
            // more.
            Backing::HostPages { .. } => unsafe { pages::release(self.base, self.len) },
            // SAFETY: it came from `alloc_pinned`, no loan is left, and it is freed here alone.
            Backing::Pinned => unsafe { backend.free_pinned(self.base) },
            // SAFETY: it came from `alloc_managed`, no loan is left, and it is freed here alone.
            Backing::Managed => unsafe { backend.free_managed(self.base, self.len) },
            Backing::Foreign(_) => {}
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("place", &self.place)
            .field("base", &format_args!("{:#x}", self.inner.base))
            .field("len", &self.inner.len)
            .field("live_loans", &self.live_loans())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
