//! The traits of a back end. A folder that implements them and passes `conformance` (feature `testing`) is a new back
//! end.
//!
//! The rest of the crate validates arguments; a back end trusts them. Every range that reaches it is in bounds, mapped
//! and lent to the caller for as long as the work takes. Lengths are never zero.

use std::any::Any;
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::advice::{Advice, RangeAttribute};
use crate::device::Device;
use crate::error::Result;
use crate::info::Info;
use crate::info::PeerLink;
use crate::info::Place;
use crate::pinned::Pinned;

/// A device: its memory, and streams of work on it.
///
/// # Safety
///
/// Memory that `alloc` returned, or that `reserve` returned and `map` made usable, has that length and is exclusively
/// the caller's until `free`, `unmap` and `release`. If [`Info::host_accessible`], plain pointers may read and write
/// it, and its bytes are initialised.
pub(crate) unsafe trait Backend: Debug + Send + Sync + 'static {
    fn info(&self) -> &Info;

    /// Bytes of device memory that are free at this moment.
    fn free_bytes(&self) -> Result<u64>;

    /// Allocates `len` bytes of device memory and returns the address.
    fn alloc(&self, len: usize) -> Result<u64>;

    /// # Safety
    /// `address` and `len` are of one `alloc` that has not been freed, and no work uses it.
    unsafe fn free(&self, address: u64, len: usize);

    /// Reserves `len` bytes of addresses without memory and returns the first. `len` is a multiple of the granularity
    /// of the chunks that will be mapped there.
    fn reserve(&self, len: usize) -> Result<u64>;

    /// Returns the granularity of chunks of this kind in bytes: the length of a chunk is a multiple of it. An error if
    /// the back end has no chunks of this kind.
    fn granularity(&self, behind: &ChunkMemory) -> Result<usize>;

    /// Puts memory behind a part of a reservation.
    ///
    /// # Safety
    /// The range lies in a live reservation, is aligned to the granularity, and nothing of it is
    /// mapped.
    unsafe fn map(&self, address: u64, len: usize, behind: &ChunkMemory) -> Result<()>;

    /// # Safety
    /// The three arguments are those of one `map` that has not been undone, and no work uses the memory.
    unsafe fn unmap(&self, address: u64, len: usize, behind: &ChunkMemory);

    /// # Safety
    /// `address` and `len` are of one `reserve` that has not been released, with nothing mapped.
    unsafe fn release(&self, address: u64, len: usize);

    /// Locks host memory in place so that the device can reach it directly.
    ///
    /// # Safety
    /// The range is readable and writable host memory that stays mapped until `unpin`, aligned to
    /// pages, with nothing of it pinned.
    unsafe fn pin(&self, address: u64, len: usize) -> Result<Pinned>;

    /// # Safety
    /// `address` and `len` are of one successful `pin` that has not been undone, and no work uses
    /// it.
    unsafe fn unpin(&self, address: u64, len: usize);

    /// Allocates `len` bytes of pinned host memory in one call of the driver and returns the address; an error if there
    /// is no driver.
    fn alloc_pinned(&self, len: usize) -> Result<u64>;

    /// # Safety
    /// `address` is of one `alloc_pinned` that has not been freed, and no work uses it.
    unsafe fn free_pinned(&self, address: u64);

    /// Allocates `len` bytes that the driver moves between host and device at each access, and returns the address; an
    /// error if there is no such driver.
    fn alloc_managed(&self, len: usize) -> Result<u64>;

    /// # Safety
    /// `address` and `len` are of one `alloc_managed` that has not been freed, and no work uses it.
    unsafe fn free_managed(&self, address: u64, len: usize);

    /// Tells the driver how managed bytes will be used. No content changes.
    ///
    /// # Safety
    /// The range lies in one live `alloc_managed`.
    unsafe fn advise(&self, address: u64, len: usize, advice: Advice) -> Result<()>;

    /// Returns the place last advised for managed bytes, or last prefetched to; `None` if there is none, or not one for
    /// all bytes.
    ///
    /// # Safety
    /// The range lies in one live `alloc_managed`.
    unsafe fn range_attribute(
        &self,
        address: u64,
        len: usize,
        what: RangeAttribute,
    ) -> Result<Option<Place>>;

    /// Allocates `len` bytes of device memory without an address, which other processes can map. `len` is a multiple of
    /// the granularity.
    fn export(&self, len: usize) -> Result<Arc<dyn Exportable>>;

    /// Returns the link over which this device reaches the memory of device `peer` of the same kind; `None` if there is
    /// no such link.
    fn link_to(&self, peer: usize) -> Result<Option<PeerLink>>;

    /// Returns the NUMA node next to the device; `None` where the machine does not say.
    fn numa_node(&self) -> Option<u32>;

    /// Returns the device's address on the PCI bus, if it has one.
    fn bus_id(&self) -> Option<String>;

    fn queue(&self) -> Result<Box<dyn Queue>>;

    fn as_any(&self) -> &dyn Any;
}

/// The memory that `Backend::map` puts behind addresses.
#[derive(Debug)]
pub(crate) enum ChunkMemory {
    /// Memory of the device, which the devices of these numbers may reach too.
    Device { peers: Vec<usize> },
    /// Pinned memory of this node of the host.
    Host { node: u32 },
    /// Memory of another device of the same kind that this one reaches.
    Peer { device: Device },
    /// Memory of a device of this process that others can map too.
    Exported(Arc<dyn Exportable>),
    /// Memory that another process exported.
    Imported(OwnedFd),
}

/// The back end's half of an [`Exported`](crate::Exported). Dropping it frees the memory once no process maps it any
/// more.
pub(crate) trait Exportable: Debug + Send + Sync + 'static {
    /// The descriptor by which another process maps the memory.
    fn fd(&self) -> BorrowedFd<'_>;
    fn as_any(&self) -> &dyn Any;
}

/// Addresses, sides of the bus and length of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) src: u64,
    pub(crate) src_place: Place,
    pub(crate) dst: u64,
    pub(crate) dst_place: Place,
    pub(crate) len: usize,
    /// True if every device is known to access both ends without the driver's help, as kernels do.
    pub(crate) is_pinned: bool,
}

/// The back end's half of a [`Stream`](crate::Stream): work that runs in the order of its calls.
///
/// # Safety
///
/// When `synchronize` returns `Ok`, or an error that means that the device is lost, nothing that
/// was enqueued before still touches memory. The same holds for a mark that is done.
pub(crate) unsafe trait Queue: Debug + Send + Sync + 'static {
    /// Enqueues a copy. An error means that this copy was not enqueued, or only in part.
    ///
    /// # Safety
    /// Until the copy is done the source is readable and not written, the destination is writable and
    /// used by this copy alone, and the two do not overlap.
    unsafe fn copy(&self, copy: Copy) -> Result<()>;

    /// Enqueues many copies, in any order. An error means that some copies may not have been enqueued.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), of each of them; no source overlaps the destination of another.
    unsafe fn copy_many(&self, copies: &[Copy]) -> Result<()> {
        copies.iter().try_for_each(|copy| {
            // SAFETY: the caller's promise.
            unsafe { self.copy(*copy) }
        })
    }

    /// # Safety
    /// Until the fill is done the destination is writable and used by this fill alone.
    unsafe fn fill(&self, dst: u64, len: usize, byte: u8) -> Result<()>;

    /// Enqueues the move of managed bytes to one side of the bus. No content changes.
    ///
    /// # Safety
    /// The range lies in one `alloc_managed` that is not freed until the move is done.
    unsafe fn prefetch(&self, address: u64, len: usize, to: Place) -> Result<()>;

    fn synchronize(&self) -> Result<()>;

    /// Records a mark behind all work enqueued so far.
    fn record(&self, mark: MarkKind) -> Result<Box<dyn Mark>>;

    /// Makes work enqueued from now on start after `mark`, which is of this kind of back end.
    fn wait(&self, mark: &dyn Mark) -> Result<()>;

    fn as_any(&self) -> &dyn Any;
}

/// Kinds of marks, by how threads and streams wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// Threads wait, asleep.
    End,
    /// Threads wait asleep; streams wait.
    Event,
    /// Threads wait spinning; streams wait; the mark has a time stamp.
    Timed,
}

/// The back end's half of an [`Event`](crate::Event).
pub(crate) trait Mark: Debug + Send + Sync + 'static {
    fn is_done(&self) -> Result<bool>;
    fn synchronize(&self) -> Result<()>;
    /// Time from `earlier`, a mark of the same kind of back end, to this one.
    fn elapsed_since(&self, earlier: &dyn Mark) -> Result<Duration>;
    fn as_any(&self) -> &dyn Any;
}
