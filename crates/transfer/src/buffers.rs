//! Pinned memory of one thread, and the buffers in it.

use crate::Result;
use std::ops::Range;
use tierflow_device::{Device, HostReservation, Memory, ReadLoan, WriteLoan};

/// Bytes of a buffer, and the most bytes of a part in it.
pub const BUFFER_BYTES: u64 = if cfg!(shuttle) { 4096 } else { 4 << 20 };

/// Pinned memory, allocated at first use. Grows to the largest size that a copy needed.
#[derive(Debug)]
pub struct BufferPool {
    device: Device,
    reservation: Option<HostReservation>,
}

impl BufferPool {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            reservation: None,
        }
    }

    /// Returns one buffer of at least `size` bytes.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if there is no memory for it.
    pub fn buffer(&mut self, size: u64) -> Result<Buffer> {
        let memory = self.memory(size)?;
        Ok(Buffer { memory, at: 0 })
    }

    /// Returns buffers of [`BUFFER_BYTES`] for `size` bytes: at most `most`, and at least one.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn at_most(&mut self, most: u64, size: u64) -> Result<Vec<Buffer>> {
        let count = size.div_ceil(BUFFER_BYTES).clamp(1, most);
        let memory = self.memory((count * BUFFER_BYTES).min(size))?;
        let buffer = |index| Buffer {
            memory: memory.clone(),
            at: index * BUFFER_BYTES,
        };
        Ok((0..count).map(buffer).collect())
    }

    /// Returns pinned memory of at least `size` bytes.
    fn memory(&mut self, size: u64) -> Result<Memory> {
        let needed = size.next_multiple_of(HostReservation::GRANULARITY as u64) as usize;
        let reservation = match self.reservation.take() {
            Some(reservation) if reservation.memory().len() >= needed => reservation,
            _ => {
                let reservation = self.device.reserve_host(needed)?;
                // Unpinned memory is slower but works. The pages are allocated at first use, or by the pinning.
                let _ = reservation.pin(0..needed)?;
                reservation
            }
        };
        Ok(self.reservation.insert(reservation).memory().clone())
    }
}

/// A buffer for one part.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    at: u64,
}

impl Buffer {
    /// Lends bytes of the buffer for reading.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the bytes are lent for writing or lie outside of the buffer.
    pub fn lend(&self, bytes: Range<u64>) -> Result<ReadLoan> {
        Ok(self.memory.lend(self.of(bytes))?)
    }

    /// Lends bytes of the buffer for writing.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the bytes are lent or lie outside of the buffer.
    pub fn lend_mut(&self, bytes: Range<u64>) -> Result<WriteLoan> {
        Ok(self.memory.lend_mut(self.of(bytes))?)
    }

    fn of(&self, bytes: Range<u64>) -> Range<usize> {
        (self.at + bytes.start) as usize..(self.at + bytes.end) as usize
    }
}
