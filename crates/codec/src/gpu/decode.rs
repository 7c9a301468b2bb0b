//! Decoding on the GPU.

use std::sync::Arc;

use tierflow_device::{Place, Stream, WriteLoan};

use super::flight::{Flight, Pending};
use super::kernels::{Decode, Kernels};
use super::memory::{Origin, Report, Reports, aligned};
use crate::error::{Error, Invalid, Result};
use crate::header::Header;

/// A decoder of containers, which may decode several at a time.
#[derive(Debug)]
pub struct Decoder {
    kernels: Kernels,
    reports: Reports,
}

/// A container that the GPU is decoding. The value owns the loans, so no caller can access the bytes meanwhile.
/// Dropping it waits; forgetting it leaks the loans, so that the kernels' memory is never freed or lent again.
#[must_use = "dropping a decoding waits for it"]
#[derive(Debug)]
pub struct Decoding(Pending<(Origin, WriteLoan)>);

/// Result of a decoding, with the loans.
#[derive(Debug)]
pub struct Decoded {
    /// The loan of the container.
    pub container: Origin,
    /// The loan of the output. The bytes are unspecified if the result is an error.
    pub out: WriteLoan,
    /// `Ok` if the container was sound.
    pub result: Result<()>,
}

impl Decoder {
    /// Makes a decoder.
    ///
    /// # Errors
    ///
    /// [`tierflow_device::Error`] if pinned memory for reports is not available.
    pub fn new(kernels: &Kernels) -> Result<Self> {
        Ok(Self {
            kernels: kernels.clone(),
            reports: Reports::new(kernels.device())?,
        })
    }

    /// Decodes the container of `header` to `out`: device memory as long as the container's input, which starts at a
    /// multiple of 16 bytes. Starts after the stream's work so far. Returns when the work is enqueued.
    ///
    /// The [`Decoding`] reports errors, together with the loans.
    pub fn decode(
        &self,
        stream: &Stream,
        header: &Header,
        container: Origin,
        out: WriteLoan,
    ) -> Decoding {
        let enqueued = self.enqueue(stream, header, &container, &out);
        Decoding(Pending::new((container, out), enqueued))
    }

    #[allow(
        unsafe_code,
        reason = "what the kernels reach is held here, for as long as they may reach it"
    )]
    fn enqueue(
        &self,
        stream: &Stream,
        header: &Header,
        container: &Origin,
        out: &WriteLoan,
    ) -> Result<Flight> {
        let device = self.kernels.device();
        let here = |other: &tierflow_device::Device| device.is_same(other);
        if !here(stream.device())
            || !here(out.device())
            || !here(container.0.device())
            || out.place() != Place::Device
        {
            let what =
                "the output, the container and the stream must be on the device of the kernels";
            return Err(Invalid::Memory { what }.into());
        }
        aligned(out.address())?;
        // The kernels read and write as far as the header says.
        header.check()?;
        if out.len() as u64 != header.raw_bytes {
            return Err(Invalid::Length {
                given: out.len() as u64,
                expected: header.raw_bytes,
            }
            .into());
        }
        if (container.0.len() as u64) < header.stored_bytes {
            return Err(Error::corrupt("it is shorter than its header says"));
        }
        let report = self.reports.take()?;
        let pass = Decode {
            header: *header,
            container: container.0.address(),
            out: out.address(),
            report: report.address(),
        };
        // SAFETY: the loans are as long as the header says, and on the kernels' device. If the launch succeeds, the
        // `Decoding` holds them, and the report's loan, until it has waited for the event behind the launch. Otherwise
        // this function holds them until the stream is synchronised.
        let launched = unsafe { self.kernels.decode(stream, &pass) };
        let done = launched.and_then(|()| Ok(Arc::new(stream.record()?)));
        let done = done.inspect_err(|_| {
            // Launched kernels use the loans until they end.
            let _ = stream.synchronize();
        })?;
        Ok(Flight {
            done,
            report,
            _used: None,
        })
    }
}

impl Decoding {
    /// Returns true if the kernels have ended, also by an error, so that [`wait`](Self::wait) returns soon.
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// Waits for the kernels, and returns the loans, also after an error.
    pub fn wait(self) -> Decoded {
        let ((container, out), report) = self.0.wait();
        let result = report.and_then(|report| match report.outcome {
            Report::CORRUPT => Err(Error::corrupt("its blocks are not what was written")),
            _ => Ok(()),
        });
        Decoded {
            container,
            out,
            result,
        }
    }
}
