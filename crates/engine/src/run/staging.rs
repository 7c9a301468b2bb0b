//! Pinned memory of one thread, and the parts of it that bytes pass through between a device and storage.

use crate::Result;
use std::ops::Range;
use tierflow_device::{Device, HostReservation, Memory, ReadLoan, WriteLoan};

/// Bytes that move at a time through a pinned buffer between the device and storage, and its size.
pub(super) const STAGED: u64 = if cfg!(shuttle) { 4096 } else { 4 << 20 };

/// Pinned memory that is made when it is first needed: most runs never need any.
#[derive(Debug)]
pub(super) struct Pinned {
    device: Device,
    reservation: Option<HostReservation>,
}

impl Pinned {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            reservation: None,
        }
    }

    /// One buffer, of `size` bytes at least.
    pub(super) fn buffer(&mut self, size: u64) -> Result<Staging> {
        let memory = self.memory(size)?;
        Ok(Staging { memory, at: 0 })
    }

    /// As many buffers of [`STAGED`] bytes as there are parts of `size` bytes, `most` at most and one at least.
    pub(super) fn at_most(&mut self, most: u64, size: u64) -> Result<Vec<Staging>> {
        let count = size.div_ceil(STAGED).clamp(1, most);
        let memory = self.memory((count * STAGED).min(size))?;
        let buffer = |index| Staging {
            memory: memory.clone(),
            at: index * STAGED,
        };
        Ok((0..count).map(buffer).collect())
    }

    /// Pinned memory of `size` bytes at least.
    fn memory(&mut self, size: u64) -> Result<Memory> {
        let needed = size.next_multiple_of(HostReservation::GRANULARITY as u64) as usize;
        let reservation = match self.reservation.take() {
            Some(reservation) if reservation.memory().len() >= needed => reservation,
            _ => {
                let reservation = self.device.reserve_host(needed)?;
                // Unpinned, it is slower and as right. Its pages come as they are used, or with pinning.
                let _ = reservation.pin(0..needed)?;
                reservation
            }
        };
        Ok(self.reservation.insert(reservation).memory().clone())
    }
}

/// Room for one part.
#[derive(Debug)]
pub(super) struct Staging {
    memory: Memory,
    at: u64,
}

impl Staging {
    pub(super) fn lend(&self, bytes: Range<u64>) -> Result<ReadLoan> {
        Ok(self.memory.lend(self.of(bytes))?)
    }

    pub(super) fn lend_mut(&self, bytes: Range<u64>) -> Result<WriteLoan> {
        Ok(self.memory.lend_mut(self.of(bytes))?)
    }

    fn of(&self, bytes: Range<u64>) -> Range<usize> {
        (self.at + bytes.start) as usize..(self.at + bytes.end) as usize
    }
}
