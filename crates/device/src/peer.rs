//! Peers: what reaches another device's memory, and memory that other processes reach.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::backend::Exportable;
use crate::device::{Device, round_up};
use crate::error::Result;

/// What the driver says of the way by which one device reaches another's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PeerLink {
    /// The driver's own figure by which it ranks ways: to be compared within one machine, and with
    /// nothing else.
    pub performance_rank: i32,
    /// Whether atomic operations work across it in hardware: over NVLink they do, over PCIe they do
    /// not.
    pub native_atomics: bool,
}

/// Device memory that other processes can map, on the same machine and back end. It has no address of
/// its own: [`Reservation::map_exported`](crate::Reservation::map_exported) gives it one here, and
/// [`Reservation::map_imported`](crate::Reservation::map_imported) in a process that was handed
/// [`fd`](Self::fd).
///
/// The memory is given back when this is dropped and no process maps it any more: it survives the one
/// that exported it for as long as somebody uses it.
///
/// ```
/// # fn main() -> tierflow_device::Result<()> {
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// let chunk = device.export(1 << 20)?;
/// // What another process would do with the descriptor that was sent to it over a socket.
/// let received = chunk.fd().try_clone_to_owned().unwrap();
/// let addresses = device.reserve_for_exported(1 << 20)?;
/// addresses.map_imported(0..1 << 20, received)?;
/// device.stream()?.fill(&mut addresses.memory().lend_mut(0..1 << 20)?, 7)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Exported {
    device: Device,
    len: usize,
    chunk: Arc<dyn Exportable>,
}

impl Exported {
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        const WHAT: &str = "exported memory";
        let len = round_up(len, device.info().granularity, WHAT)?;
        device.within_total(len, WHAT)?;
        Ok(Self {
            device: device.clone(),
            len,
            chunk: device.backend().export(len)?,
        })
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What another process maps it by; to be sent to it over a Unix socket (`SCM_RIGHTS`).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.chunk.fd()
    }

    pub(crate) fn inner(&self) -> Arc<dyn Exportable> {
        Arc::clone(&self.chunk)
    }
}
