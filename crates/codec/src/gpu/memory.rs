//! Memory of containers, and the pinned memory of the kernels' reports.

use std::ops::Range;

use tierflow_device::{Device, HostReservation, Memory, Pinned, Place, ReadLoan, WriteLoan};

use crate::error::{Error, Invalid, Result};

/// Memory to which kernels write a container: device memory, or pinned host memory.
#[derive(Debug)]
pub struct OutputBuffer(pub(super) WriteLoan);

impl OutputBuffer {
    /// Takes device memory, from which the caller copies the container.
    ///
    /// # Errors
    ///
    /// [`Invalid::Memory`] if the memory is not the device's, or the range does not start at a multiple of 16 bytes;
    /// errors of lending.
    pub fn device(memory: &Memory, range: Range<usize>) -> Result<Self> {
        on_device(memory)?;
        let loan = memory.lend_mut(range)?;
        aligned(loan.address())?;
        Ok(Self(loan))
    }

    /// Takes host memory, all of it pinned. The kernels write across the bus as they encode, and the container needs no
    /// device memory.
    ///
    /// # Errors
    ///
    /// As for [`device`](Self::device), and [`Invalid::Memory`] if some of the reservation is not pinned.
    pub fn pinned(host: &HostReservation, range: Range<usize>) -> Result<Self> {
        all_pinned(host)?;
        let loan = host.memory().lend_mut(range)?;
        aligned(loan.address())?;
        Ok(Self(loan))
    }

    /// Returns the range of the memory, in bytes.
    pub fn range(&self) -> Range<usize> {
        self.0.range()
    }
}

/// Memory from which kernels read a container: device memory, or pinned host memory.
#[derive(Debug)]
pub struct Origin(pub(super) ReadLoan);

impl Origin {
    /// Takes device memory.
    ///
    /// # Errors
    ///
    /// As for [`OutputBuffer::device`].
    pub fn device(memory: &Memory, range: Range<usize>) -> Result<Self> {
        on_device(memory)?;
        let loan = memory.lend(range)?;
        aligned(loan.address())?;
        Ok(Self(loan))
    }

    /// Takes host memory, all of it pinned. The kernels read across the bus as they decode.
    ///
    /// # Errors
    ///
    /// As for [`OutputBuffer::pinned`].
    pub fn pinned(host: &HostReservation, range: Range<usize>) -> Result<Self> {
        all_pinned(host)?;
        let loan = host.memory().lend(range)?;
        aligned(loan.address())?;
        Ok(Self(loan))
    }

    /// Returns the range of the memory, in bytes.
    pub fn range(&self) -> Range<usize> {
        self.0.range()
    }
}

fn on_device(memory: &Memory) -> Result<()> {
    match memory.place() {
        Place::Device => Ok(()),
        _ => Err(Invalid::Memory {
            what: "this is no device memory: for host memory, pin a reservation and use `pinned`",
        }
        .into()),
    }
}

fn all_pinned(host: &HostReservation) -> Result<()> {
    if host.pinned_bytes() == host.memory().len() {
        return Ok(());
    }
    let what = "the host memory for a container is not all pinned: pin it first";
    Err(Invalid::Memory { what }.into())
}

pub(super) fn aligned(address: u64) -> Result<()> {
    if address.is_multiple_of(16) {
        return Ok(());
    }
    let what = "what kernels read and write starts at a multiple of 16 bytes";
    Err(Invalid::Memory { what }.into())
}

/// Bytes of a report.
const REPORT_BYTES: usize = 24;

/// The kernels' report: `Report` in kernels/codec_container.cuh.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) stored_bytes: u64,
    pub(super) bound: f64,
    pub(super) outcome: u32,
}

impl Report {
    /// The encoder is done.
    pub(super) const DONE: u32 = 1;
    /// The container does not fit.
    pub(super) const FULL: u32 = 2;
    /// The container is damaged.
    pub(super) const CORRUPT: u32 = 3;

    pub(super) fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        Self {
            stored_bytes: word(0),
            bound: f64::from_bits(word(8)),
            outcome: word(16) as u32,
        }
    }
}

/// Pinned host memory for reports, one for each input in flight.
#[derive(Debug)]
pub(super) struct Reports {
    host: HostReservation,
}

impl Reports {
    const EACH: usize = 64;
    const BYTES: usize = 4096;

    pub(super) fn new(device: &Device) -> Result<Self> {
        let host = device.reserve_host(Self::BYTES)?;
        let len = host.memory().len();
        host.touch(0..len)?;
        match host.pin(0..len)? {
            Pinned::No(why) => Err(Error::Device(tierflow_device::Error::Driver {
                call: "pinning host memory",
                reason: why.to_string(),
            })),
            _ => Ok(Self { host }),
        }
    }

    /// Lends zeroed memory for a report, until the loan is dropped.
    ///
    /// # Errors
    ///
    /// [`tierflow_device::Error::Busy`] if too many inputs are in flight.
    pub(super) fn take(&self) -> Result<WriteLoan> {
        let lend = |start: usize| self.host.memory().lend_mut(start..start + REPORT_BYTES);
        let free = (0..Self::BYTES)
            .step_by(Self::EACH)
            .find_map(|start| lend(start).ok());
        let mut report = free.map_or_else(|| lend(0), Ok)?;
        report.bytes_mut()?.fill(0);
        Ok(report)
    }
}
