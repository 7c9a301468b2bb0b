//! Memory that other processes map.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::backend::Exportable;
use crate::device::{Device, not_empty, round_up};
use crate::error::Result;

/// Device memory, without an address, that other processes on the same machine and back end can map.
/// [`Reservation::map_exported`](crate::Reservation::map_exported) gives the memory an address in this process, and
/// [`Reservation::map_imported`](crate::Reservation::map_imported) in a process that received [`fd`](Self::fd).
///
/// The memory is freed when this value is dropped and no process maps the memory any more. So it survives the process
/// that exported it for as long as another one maps it.
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

impl Device {
    /// Allocates device memory that other processes can map. `len` is rounded up to the granularity.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`](crate::Invalid::Empty); [`Error::OutOfMemory`](crate::Error::OutOfMemory);
    /// [`Error::Driver`](crate::Error::Driver) or [`Error::System`](crate::Error::System) if processes cannot share
    /// memory.
    pub fn export(&self, len: usize) -> Result<Exported> {
        Exported::new(self, not_empty(len)?)
    }
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

    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the device that owns the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the descriptor by which another process maps the memory. Send it over a Unix socket (`SCM_RIGHTS`).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.chunk.fd()
    }

    pub(crate) fn inner(&self) -> Arc<dyn Exportable> {
        Arc::clone(&self.chunk)
    }
}
