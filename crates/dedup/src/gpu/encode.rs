//! Checkpoints that the GPU is encoding.

use std::sync::Arc;

use tierflow_device::{ReadLoan, Stream};

use super::flight::{Flight, Pending};
use super::output_buffer::OutputBuffer;
use super::report::{RESULT_BYTES, Report};
use super::state::Arena;
use crate::encode::{CheckpointId, LastCheckpoint, Summary};
use crate::error::{Error, Result};
use crate::layout::Layout;

/// A checkpoint that the GPU is encoding. The value owns the loans, so no other code can touch the bytes meanwhile.
/// Dropping it waits; forgetting it leaks the loans, which is safe.
#[must_use = "dropping an encoding waits for it"]
#[derive(Debug)]
pub struct Encoding(Pending<(ReadLoan, OutputBuffer), Arena, HeaderParts>);

/// Fields of a difference's header that the host knows.
#[derive(Debug)]
pub(super) struct HeaderParts {
    /// The stream that writes the header to device memory.
    pub(super) side: Arc<Stream>,
    pub(super) layout: Layout,
    pub(super) id: CheckpointId,
    pub(super) seed: u64,
    pub(super) parent: Option<LastCheckpoint>,
}

/// Result of an encoding, with the loans.
#[derive(Debug)]
pub struct Encoded {
    /// The loan of the checkpoint.
    pub data: ReadLoan,
    /// The memory of the difference. The difference is its first [`Summary::stored_bytes`] bytes if the result is `Ok`;
    /// otherwise the bytes are unspecified.
    pub out: OutputBuffer,
    /// Sizes and form of the difference.
    pub result: Result<Summary>,
}

impl Encoding {
    /// Makes an encoding. `enqueued` is an error if nothing is in flight.
    pub(super) fn new(
        data: ReadLoan,
        out: OutputBuffer,
        enqueued: Result<(Flight<Arena>, HeaderParts)>,
    ) -> Self {
        Self(Pending::new((data, out), enqueued))
    }

    /// Waits for the kernels, writes the header, and returns the loans, also after an error.
    pub fn wait(self) -> Encoded {
        let ((data, out), result) = self
            .0
            .wait(|difference, report, (_, out)| difference.finish(report, out));
        Encoded { data, out, result }
    }
}

impl HeaderParts {
    /// Writes the header. Returns the summary.
    fn finish(&self, report: &[u8], out: &mut OutputBuffer) -> Result<Summary> {
        let mut words = [0; RESULT_BYTES];
        words.copy_from_slice(report);
        let report = Report::read(&words);
        let header = report.header(self.layout, self.id, self.seed, self.parent);
        if header.total_bytes() > out.range().len() as u64 {
            return Err(Error::own(self.id.version));
        }
        let bytes = header.to_bytes();
        if out.is_on_device() {
            self.side.write(&bytes, &mut out.head)?;
        } else {
            out.head.bytes_mut()?.copy_from_slice(&bytes);
        }
        Ok(Summary::new(&header, report.collisions))
    }
}
