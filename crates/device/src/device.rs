//! Opening a device, and what it is.

use std::ops::Deref;
use std::sync::Arc;

use crate::backend::{Backend, Behind};
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::error::{Error, Invalid, Result};
use crate::host;
use crate::host_reservation::{HostReservation, Pinned};
use crate::memory::Memory;
use crate::pages;
use crate::peer::{Exported, PeerLink};
use crate::reservation::Reservation;
use crate::stream::Stream;

/// Which device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first GPU if there is a driver and a GPU, else the host back end.
    /// [`Device::why_host`] then says why.
    #[default]
    Auto,
    /// This GPU, or an error.
    Cuda {
        /// The GPU's number, from 0, as `CUDA_VISIBLE_DEVICES` leaves them.
        ordinal: usize,
    },
    /// Plain memory of this machine in the place of a GPU's.
    Host,
}

/// Which back end a device runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An NVIDIA GPU.
    Cuda,
    /// Plain memory; copies are made by the calling thread.
    Host,
}

/// What a device is. Everything but [`free_bytes`](Self::free_bytes) stays as it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The back end.
    pub kind: Kind,
    /// The GPU's number, 0 on the host back end.
    pub ordinal: usize,
    /// The name to show to people.
    pub name: String,
    /// Bytes of device memory.
    pub total_bytes: u64,
    /// Bytes of device memory that were free when the device was opened;
    /// [`Device::free_bytes`] asks anew.
    pub free_bytes: u64,
    /// Multiprocessors of the GPU; threads that can run at once on the host back end.
    pub multiprocessors: u32,
    /// What a [`Reservation`] maps in multiples of, in bytes.
    pub granularity: usize,
    /// The CUDA version that the driver supports, as 1000 × major + 10 × minor; 0 on the host back
    /// end.
    pub driver_version: i32,
    /// Whether the processor can read and write the device's memory in place.
    pub host_accessible: bool,
}

/// Opens a device. It costs a few hundred milliseconds the first time that a process opens a GPU,
/// and nothing on the host back end.
///
/// # Errors
///
/// [`Error::Unavailable`] says what the machine lacks. [`Choice::Auto`] never fails for the lack of
/// a GPU, but a GPU that is there and does not work is an error, not a silent change of back end.
pub fn open(choice: Choice) -> Result<Device> {
    match choice {
        Choice::Host => host::open(host::Options::default()),
        Choice::Cuda { ordinal } => open_gpu(ordinal),
        Choice::Auto => match open_gpu(0) {
            Ok(gpu) => Ok(gpu),
            Err(Error::Unavailable(why)) => Ok(Device::new(
                host::Host::new(host::Options::default()),
                Some(why.into()),
            )),
            Err(broken) => Err(broken),
        },
    }
}

#[cfg(feature = "cuda")]
fn open_gpu(ordinal: usize) -> Result<Device> {
    cuda::open(ordinal).map(|gpu| Device::new(gpu, None))
}

#[cfg(not(feature = "cuda"))]
fn open_gpu(_: usize) -> Result<Device> {
    Err(crate::error::Unavailable::NotBuilt.into())
}

/// A device: memory that can be had, and streams that move it. Clones are the same device.
///
/// ```
/// # fn main() -> tierflow_device::Result<()> {
/// let device = tierflow_device::open(tierflow_device::Choice::Auto)?;
/// let info = device.info();
/// println!("{}: {} of {} bytes free", info.name, device.free_bytes()?, info.total_bytes);
/// if let Some(why) = device.why_host() {
///     println!("running on plain memory: {why}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    why_host: Option<Error>,
    backend: Box<dyn Backend>,
}

impl Device {
    pub(crate) fn new(backend: impl Backend, why_host: Option<Error>) -> Self {
        Self {
            shared: Arc::new(Shared {
                why_host,
                backend: Box::new(backend),
            }),
        }
    }

    /// What the device is.
    pub fn info(&self) -> &Info {
        self.backend().info()
    }

    /// Why [`Choice::Auto`] took the host back end. `None` if it did not, or was not asked.
    pub fn why_host(&self) -> Option<&Error> {
        self.shared.why_host.as_ref()
    }

    /// Bytes of device memory that are free now, for every process that uses the device.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the device failed.
    pub fn free_bytes(&self) -> Result<u64> {
        self.backend().free_bytes()
    }

    /// Allocates `len` bytes of device memory, all usable. What they hold is unspecified.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`], [`Error::OutOfMemory`].
    pub fn alloc(&self, len: usize) -> Result<Memory> {
        self.within_total(not_empty(len)?, "device memory")?;
        Memory::alloc(self, len)
    }

    /// Reserves device addresses that become usable chunk by chunk, as they are mapped. `len` is
    /// rounded up to the granularity. Costs well under a millisecond whatever `len`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`], [`Error::OutOfMemory`] if the addresses do not suffice.
    pub fn reserve(&self, len: usize) -> Result<Reservation> {
        let own = Behind::Device { peers: Vec::new() };
        Reservation::new(self, not_empty(len)?, own)
    }

    /// Reserves device addresses as [`reserve`](Self::reserve) does; what is mapped there may be
    /// read and written by `peers` too. Each of them makes mapping a little dearer.
    ///
    /// # Errors
    ///
    /// Those of [`reserve`](Self::reserve); [`Invalid::OtherDevice`] for a peer that cannot reach
    /// this device's memory.
    pub fn reserve_shared(&self, len: usize, peers: &[Device]) -> Result<Reservation> {
        let mut ordinals = Vec::new();
        for peer in peers.iter().filter(|peer| !peer.is_same(self)) {
            if peer.link_to(self)?.is_none() {
                return Err(Invalid::OtherDevice.into());
            }
            ordinals.push(peer.info().ordinal);
        }
        let behind = Behind::Device { peers: ordinals };
        Reservation::new(self, not_empty(len)?, behind)
    }

    /// Reserves addresses for chunks that processes share: [`Exported`] ones, those that others
    /// exported, and beside them chunks [on a peer](Reservation::map_on). The processor never reaches them in place, even on the host back end, as nothing
    /// keeps another process from writing them at any time. `len` is rounded up to the granularity.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`], [`Error::OutOfMemory`] if the addresses do not suffice.
    pub fn reserve_for_exported(&self, len: usize) -> Result<Reservation> {
        Reservation::for_exported(self, not_empty(len)?)
    }

    /// Takes device memory that other processes can map. `len` is rounded up to the granularity.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`], [`Error::OutOfMemory`]; [`Error::Driver`] or [`Error::System`] where memory
    /// cannot be shared between processes.
    pub fn export(&self, len: usize) -> Result<Exported> {
        Exported::new(self, not_empty(len)?)
    }

    /// Reserves host addresses that become usable chunk by chunk, as the driver puts pinned memory
    /// of a NUMA node behind them. Copies cross the chunks' borders at full speed, and making one
    /// stalls other copies for a third of a millisecond, but it is slow: 6 GB/s on an H100 machine.
    /// `len` is rounded up to the granularity.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end; [`Invalid::Empty`], [`Error::OutOfMemory`].
    pub fn reserve_pinned(&self, len: usize, node: u32) -> Result<Reservation> {
        Reservation::new(self, not_empty(len)?, Behind::Host { node })
    }

    /// Reserves host addresses. They are usable at once, as plain memory that the system provides
    /// on first use; touching and pinning pieces of it ahead makes copies to and from it faster.
    /// `len` is rounded up to pages. Costs microseconds whatever `len`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`], [`Error::OutOfMemory`] if the addresses do not suffice.
    pub fn reserve_host(&self, len: usize) -> Result<HostReservation> {
        HostReservation::new(self, not_empty(len)?)
    }

    /// Allocates `len` bytes of host memory, provided and pinned in one go, which may take seconds
    /// (`cuMemHostAlloc`: 2 to 3 GB/s). On the host back end it is touched and locked, as far as
    /// the memory lock limit allows.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`]; [`Error::OutOfMemory`] if the machine has not so much to give.
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

    /// Allocates `len` bytes of unified (managed) memory, which the driver moves between host and
    /// device as either touches them. All such memory of a process together may take half of what
    /// is free on the device: with more, the driver would spend its time moving pages to and fro.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end; [`Invalid::Empty`]; [`Error::OutOfMemory`] beyond
    /// half of the free memory.
    pub fn alloc_managed(&self, len: usize) -> Result<Memory> {
        Memory::alloc_managed(self, not_empty(len)?)
    }

    /// The way by which this device reaches `peer`'s memory, as the driver tells; `None` if it does
    /// not reach it. What the way carries is not the driver's to say: it has to be measured.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] or [`Error::Lost`] if the driver does not say.
    pub fn link_to(&self, peer: &Self) -> Result<Option<PeerLink>> {
        let (mine, theirs) = (self.info(), peer.info());
        if mine.kind != theirs.kind || self.is_same(peer) {
            return Ok(None);
        }
        self.backend().link_to(theirs.ordinal)
    }

    /// The device's place on the PCI bus, `0000:0F:00.0`, which stays when `CUDA_VISIBLE_DEVICES`
    /// renumbers devices; `None` on the host back end.
    pub fn bus_id(&self) -> Option<String> {
        self.backend().bus_id()
    }

    /// The NUMA node of main memory next to the device. `None` where the machine has one node, or
    /// does not say.
    pub fn numa_node(&self) -> Option<u32> {
        self.backend().numa_node()
    }

    /// A new stream.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] or [`Error::Lost`] if the driver refuses one.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self)
    }

    /// The CUDA side of the device, for kernels; `None` on the host back end.
    #[cfg(feature = "cuda")]
    pub fn as_cuda(&self) -> Option<&cuda::Cuda> {
        self.backend().as_any().downcast_ref()
    }

    /// Whether both are the same memory and the same driver's device, however often it was opened.
    pub fn is_same(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.info(), other.info());
        mine.kind == theirs.kind && mine.ordinal == theirs.ordinal
    }

    /// Refuses what can never be had: drivers differ in what they call it.
    pub(crate) fn within_total(&self, len: usize, what: &'static str) -> Result<()> {
        if len as u64 <= self.info().total_bytes {
            return Ok(());
        }
        Err(Error::OutOfMemory {
            what,
            asked: len as u64,
            free: self.free_bytes()?,
        })
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.shared.backend.deref()
    }
}

fn not_empty(len: usize) -> Result<usize> {
    if len == 0 {
        return Err(Invalid::Empty.into());
    }
    Ok(len)
}

/// `len` rounded up to a multiple of `granularity`, or out of memory where that has no number.
pub(crate) fn round_up(len: usize, granularity: usize, what: &'static str) -> Result<usize> {
    len.checked_next_multiple_of(granularity)
        .filter(|&rounded| isize::try_from(rounded).is_ok())
        .ok_or(Error::OutOfMemory {
            what,
            asked: len as u64,
            free: 0,
        })
}
