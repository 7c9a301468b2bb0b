//! A device: its properties and links. `memory` allocates, `stream` makes streams, and so on.

use std::ops::Deref;
use std::sync::Arc;

use crate::backend::Backend;
use crate::error::{Error, Invalid, Result};
use crate::info::{Info, PeerLink};

/// A device: memory to allocate, and streams that copy. Clones are the same device.
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
    shared: Arc<DeviceState>,
}

/// The back end, which all clones of a device share.
#[derive(Debug)]
struct DeviceState {
    why_host: Option<Error>,
    backend: Box<dyn Backend>,
}

impl Device {
    pub(crate) fn new(backend: impl Backend, why_host: Option<Error>) -> Self {
        Self {
            shared: Arc::new(DeviceState {
                why_host,
                backend: Box::new(backend),
            }),
        }
    }

    /// Returns the device's properties.
    pub fn info(&self) -> &Info {
        self.backend().info()
    }

    /// Returns the reason why [`Choice::Auto`](crate::Choice::Auto) took the host back end; `None` if it did not.
    pub fn why_host(&self) -> Option<&Error> {
        self.shared.why_host.as_ref()
    }

    /// Returns the bytes of device memory that are free now; all processes that use the device share them. On the host back end, these are
    /// the bytes that this device has not allocated, whatever other processes use of the machine's memory.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the device failed.
    pub fn free_bytes(&self) -> Result<u64> {
        self.backend().free_bytes()
    }

    /// Returns the link over which this device reaches `peer`'s memory, as the driver reports it; `None` if there is
    /// none. The driver does not know its throughput, which has to be measured.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] or [`Error::Lost`] if the driver does not answer.
    pub fn link_to(&self, peer: &Self) -> Result<Option<PeerLink>> {
        let (mine, theirs) = (self.info(), peer.info());
        if mine.kind != theirs.kind || self.is_same(peer) {
            return Ok(None);
        }
        self.backend().link_to(theirs.ordinal)
    }

    /// Returns the device's address on the PCI bus, as `0000:0F:00.0`; `None` on the host back end. The address stays
    /// when `CUDA_VISIBLE_DEVICES` renumbers devices.
    pub fn bus_id(&self) -> Option<String> {
        self.backend().bus_id()
    }

    /// Returns the NUMA node of main memory next to the device; `None` if the machine has one node, or does not say.
    pub fn numa_node(&self) -> Option<u32> {
        self.backend().numa_node()
    }

    /// Returns true if both are one device with one memory, however often it was opened.
    pub fn is_same(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.info(), other.info());
        mine.kind == theirs.kind && mine.ordinal == theirs.ordinal
    }

    /// Refuses more bytes than the device has, with one error for all drivers, which differ in theirs.
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

pub(crate) fn not_empty(len: usize) -> Result<usize> {
    if len == 0 {
        return Err(Invalid::Empty.into());
    }
    Ok(len)
}

/// Rounds `len` up to a multiple of `granularity`. Returns [`Error::OutOfMemory`] if the result exceeds `isize::MAX`.
pub(crate) fn round_up(len: usize, granularity: usize, what: &'static str) -> Result<usize> {
    len.checked_next_multiple_of(granularity)
        .filter(|&rounded| isize::try_from(rounded).is_ok())
        .ok_or(Error::OutOfMemory {
            what,
            asked: len as u64,
            free: 0,
        })
}
