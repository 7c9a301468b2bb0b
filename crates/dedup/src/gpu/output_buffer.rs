//! Output memory for differences.

use std::ops::Range;

use tierflow_device::{Device, HostReservation, Kind, Memory, Pinned, Place, WriteLoan};

use crate::container::HEADER_BYTES;
use crate::error::{Error, Invalid, Result};

/// Memory to which kernels write a difference: pinned host memory, or device memory.
#[derive(Debug)]
pub struct OutputBuffer {
    /// The header's bytes, which the host fills.
    pub(super) head: WriteLoan,
    pub(super) body: WriteLoan,
}

impl OutputBuffer {
    /// Takes host memory, all of it pinned. The kernels write across the bus as they gather, and the difference needs
    /// no device memory.
    ///
    /// # Errors
    ///
    /// [`Invalid::Memory`] if some of the reservation is not pinned, or its device is no GPU, or the range does not start
    /// at a multiple of 64 bytes or is shorter than a header; errors of lending.
    pub fn pinned(host: &HostReservation, range: Range<usize>) -> Result<Self> {
        if host.memory().device().info().kind != Kind::Cuda {
            let what = "the memory for a difference is pinned for no GPU: reserve it on one";
            return Err(Invalid::Memory { what }.into());
        }
        if host.pinned_bytes() != host.memory().len() {
            let what =
                "the host memory for a difference is not all pinned: pin it, or take gpu::pinned";
            return Err(Invalid::Memory { what }.into());
        }
        Self::new(host.memory(), range)
    }

    /// Takes device memory, from which the caller copies the difference.
    ///
    /// # Errors
    ///
    /// [`Invalid::Memory`] if the memory is no device memory, or the range does not start at a multiple of 64 bytes or is shorter
    /// than a header; errors of lending.
    pub fn device(memory: &Memory, range: Range<usize>) -> Result<Self> {
        if memory.place() != Place::Device {
            let what = "this is no device memory: take OutputBuffer::pinned for host memory";
            return Err(Invalid::Memory { what }.into());
        }
        Self::new(memory, range)
    }

    fn new(memory: &Memory, range: Range<usize>) -> Result<Self> {
        let start = memory.lend(range.start..range.start)?.address();
        if !start.is_multiple_of(64) || range.len() < HEADER_BYTES {
            let what =
                "memory for a difference starts at a multiple of 64 bytes and holds a header";
            return Err(Invalid::Memory { what }.into());
        }
        let border = range.start + HEADER_BYTES;
        Ok(Self {
            head: memory.lend_mut(range.start..border)?,
            body: memory.lend_mut(border..range.end)?,
        })
    }

    /// Returns the range of the memory, in bytes.
    pub fn range(&self) -> Range<usize> {
        self.head.range().start..self.body.range().end
    }

    pub(super) fn address(&self) -> u64 {
        self.head.address()
    }

    pub(super) fn is_on_device(&self) -> bool {
        self.head.place() == Place::Device
    }
}

/// Allocates at least `len` bytes of pinned host memory, for [`OutputBuffer::pinned`]. Takes about as long as writing them
/// with all threads, and delays other copies for a few hundred microseconds at a time.
///
/// # Errors
///
/// [`tierflow_device::Error`] if the machine has too little memory, or the memory cannot be pinned.
pub fn pinned(device: &Device, len: usize) -> Result<HostReservation> {
    const PIECE: usize = 32 << 20;
    let host = device.reserve_host(len)?;
    let len = host.memory().len();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = len
        .div_ceil(threads)
        .next_multiple_of(HostReservation::GRANULARITY);
    std::thread::scope(|scope| {
        let touch = |start| host.touch(start..len.min(start + share));
        let touchers: Vec<_> = (0..len)
            .step_by(share)
            .map(|start| scope.spawn(move || touch(start)))
            .collect();
        for toucher in touchers {
            toucher.join().unwrap_or(Ok(()))?;
        }
        Ok::<_, tierflow_device::Error>(())
    })?;
    for start in (0..len).step_by(PIECE) {
        if let Pinned::No(why) = host.pin(start..len.min(start + PIECE))? {
            return Err(Error::Device(tierflow_device::Error::Driver {
                call: "pinning host memory",
                reason: why.to_string(),
            }));
        }
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use tierflow_device::{Choice, open};

    use super::*;

    #[test]
    fn memory_that_a_host_device_pinned_is_refused() {
        let device = open(Choice::Host).unwrap();
        let host = device.reserve_host(HostReservation::GRANULARITY).unwrap();
        host.touch(0..host.memory().len()).unwrap();
        let _why_not = host.pin(0..host.memory().len()).unwrap();
        let refused = OutputBuffer::pinned(&host, 0..4096).unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid(Invalid::Memory { what }) if what.contains("no GPU")),
            "{refused}"
        );
    }
}
