//! A device. What can be had of one is made where it is: memory in `memory`, streams in `stream`, and so on.

use std::ops::Deref;
use std::sync::Arc;

use crate::backend::Backend;
use crate::error::{Error, Invalid, Result};
use crate::info::{Info, PeerLink};

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

    /// Why [`Choice::Auto`](crate::Choice::Auto) took the host back end. `None` if it did not, or was not asked.
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

pub(crate) fn not_empty(len: usize) -> Result<usize> {
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
