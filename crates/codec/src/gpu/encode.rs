//! Encoding on the GPU.

use std::sync::Arc;

use tierflow_device::{Event, Place, ReadLoan, Stream, WriteLoan};

use super::flight::{Flight, Pending};
use super::kernels::{Encode, Kernels};
use super::memory::{OutputBuffer, Report, Reports, aligned};
use crate::bounded::Bound;
use crate::codec::Codec;
use crate::element::Element;
use crate::error::{Error, Invalid, Result};
use crate::header::Header;
use crate::method::Method;
use crate::planes::BLOCK_BYTES;

/// Bytes of `State` in kernels/codec_container.cuh before its entries for blocks.
const STATE_BYTES: u64 = 64;

/// An encoder for inputs of limited length, one after the other. The encoder holds 8 bytes of device memory for each
/// 16 KiB of the longest input.
#[derive(Debug)]
pub struct Encoder {
    kernels: Kernels,
    most_bytes: u64,
    state: Arc<WriteLoan>,
    reports: Reports,
    /// An event behind the newest input's kernels.
    done: Option<Arc<Event>>,
}

/// An input that the GPU is encoding. The value owns the loans, so no caller can access the bytes meanwhile. Dropping
/// it waits; forgetting it leaks the loans, so that the kernels' memory is never freed or lent again.
#[must_use = "dropping an encoding waits for it"]
#[derive(Debug)]
pub struct Encoding {
    pending: Pending<(ReadLoan, OutputBuffer)>,
    header: Option<Header>,
}

/// Result of an encoding, with the loans.
#[derive(Debug)]
pub struct Encoded {
    /// The loan of the input.
    pub data: ReadLoan,
    /// The memory of the container. The container is its first [`Header::stored_bytes`] bytes if the result is `Ok`;
    /// otherwise the bytes are unspecified.
    pub out: OutputBuffer,
    /// The container's header.
    pub result: Result<Header>,
}

impl Encoder {
    /// Makes an encoder for inputs of up to `most_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`Invalid::TooLong`] if the length of the state overflows; [`tierflow_device::Error`] if memory for the state or the
    /// reports is not available.
    pub fn new(kernels: &Kernels, most_bytes: u64) -> Result<Self> {
        let device = kernels.device();
        let words = most_bytes.div_ceil(BLOCK_BYTES as u64) + STATE_BYTES / 8;
        let bytes = usize::try_from(8 * words).map_err(|_| Invalid::TooLong { len: most_bytes })?;
        let memory = device.alloc(bytes)?;
        Ok(Self {
            kernels: kernels.clone(),
            most_bytes,
            state: Arc::new(memory.lend_mut(0..bytes)?),
            reports: Reports::new(device)?,
            done: None,
        })
    }

    /// Encodes `data`, in device memory that starts at a multiple of 16 bytes, to `out`. If `out` is shorter than
    /// [`Codec::max_encoded_len`], the result may be [`Error::Full`]. Starts after the stream's work so far, and after
    /// this encoder's last input, even if that is on another stream. Returns when the work is enqueued.
    ///
    /// The [`Encoding`] reports errors, together with the loans.
    pub fn encode(
        &mut self,
        stream: &Stream,
        method: &Method,
        element: Element,
        data: ReadLoan,
        out: OutputBuffer,
    ) -> Encoding {
        let (enqueued, header) = match self.enqueue(stream, method, element, &data, &out) {
            Ok((flight, header)) => (Ok(flight), Some(header)),
            Err(error) => (Err(error), None),
        };
        Encoding {
            pending: Pending::new((data, out), enqueued),
            header,
        }
    }

    #[allow(
        unsafe_code,
        reason = "what the kernels reach is held here, for as long as they may reach it"
    )]
    fn enqueue(
        &mut self,
        stream: &Stream,
        method: &Method,
        element: Element,
        data: &ReadLoan,
        out: &OutputBuffer,
    ) -> Result<(Flight, Header)> {
        let device = self.kernels.device();
        let here = |other: &tierflow_device::Device| device.is_same(other);
        if !here(stream.device())
            || !here(data.device())
            || !here(out.0.device())
            || data.place() != Place::Device
        {
            let what =
                "the input, the container and the stream must be on the device of the kernels";
            return Err(Invalid::Memory { what }.into());
        }
        aligned(data.address())?;
        let len = data.len() as u64;
        if len > self.most_bytes {
            return Err(Invalid::Limit {
                raw: len,
                limit: self.most_bytes,
            }
            .into());
        }
        let header = method.header(len, element)?;
        let most = method.max_encoded_len(len, element)?;
        let given = out.0.len() as u64;
        if given < header.payload_at() {
            return Err(Error::Full { given, most });
        }
        let report = self.reports.take()?;
        if let Some(done) = &self.done {
            stream.wait(done)?;
        }
        let pass = Encode {
            header,
            share: match method {
                Method::Bounded(bounded) => match bounded.bound() {
                    Bound::Relative(share) => share,
                    Bound::Absolute(_) | Bound::PointwiseRelative(_) => 0.0,
                },
                Method::Planes(_) => 0.0,
            },
            data: data.address(),
            state: self.state.address(),
            out: out.0.address(),
            capacity: given,
            report: report.address(),
        };
        // SAFETY: the state is this encoder's, long enough for the input, and the stream waits for its earlier users.
        // The loans of `data` and `out` were checked. If the launches succeed, the `Encoding` holds them, and the report's
        // loan, until it has waited for the event behind the launches. Otherwise this function holds them until the stream
        // is synchronised.
        let launched = unsafe { self.kernels.encode(stream, &pass) };
        let done = launched.and_then(|()| Ok(Arc::new(stream.record()?)));
        let done = done.inspect_err(|_| {
            // Launched kernels use the loans until they end.
            let _ = stream.synchronize();
        })?;
        self.done = Some(Arc::clone(&done));
        let flight = Flight {
            done,
            report,
            _used: Some(Arc::clone(&self.state)),
        };
        Ok((flight, header))
    }
}

impl Encoding {
    /// Returns true if the kernels have ended, also by an error, so that [`wait`](Self::wait) returns soon.
    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    /// Waits for the kernels, and returns the loans, also after an error.
    pub fn wait(self) -> Encoded {
        let ((data, out), report) = self.pending.wait();
        let given = out.0.len() as u64;
        let result = report.and_then(|report| match (report.outcome, self.header) {
            (Report::DONE, Some(header)) => Ok(Header {
                stored_bytes: report.stored_bytes,
                bound: report.bound,
                ..header
            }),
            (Report::FULL, _) => Err(Error::Full {
                given,
                most: report.stored_bytes,
            }),
            _ => Err(Error::corrupt("the kernels reported nothing")),
        });
        Encoded { data, out, result }
    }
}
