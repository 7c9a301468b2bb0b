//! Checkpoints that the GPU is encoding.

use std::sync::Arc;
use std::time::Duration;

use tierflow_device::{ReadLoan, Stream};

use super::flight::{Flight, Pending};
use super::landing::Landing;
use super::report::{RESULT_BYTES, Report};
use super::state::Arena;
use crate::encode::{CheckpointId, LastCheckpoint, Summary};
use crate::error::{Error, Result};
use crate::layout::Layout;

/// A checkpoint that the GPU is encoding. The value owns the loans, so no other code can touch the bytes meanwhile.
/// Dropping it waits; forgetting it leaks the loans, which is safe.
#[must_use = "dropping an encoding waits for it"]
#[derive(Debug)]
pub struct Encoding(Pending<(ReadLoan, Landing), Arena, HeaderParts>);

/// Fields of a difference's header that the host knows.
#[derive(Debug)]
pub(super) struct HeaderParts {
    /// Writes the header to device memory.
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
    /// The memory of the difference. Its first [`Summary::stored_bytes`] bytes are the difference if the result is
    /// `Ok`, and unspecified otherwise.
    pub out: Landing,
    /// Sizes and form of the difference.
    pub result: Result<Summary>,
    /// Chunks that differ from the checkpoint before.
    pub changed_chunks: u64,
    /// Duration of each kernel, if [`profile`](super::GpuLineage::profile) is on.
    pub kernels: Vec<(&'static str, Duration)>,
}

impl Encoding {
    /// An error means that nothing is in flight.
    pub(super) fn new(
        data: ReadLoan,
        out: Landing,
        enqueued: Result<(Flight<Arena>, HeaderParts)>,
    ) -> Self {
        Self(Pending::new((data, out), enqueued))
    }

    /// Returns true if the kernels have ended, also by an error, so that [`wait`](Self::wait) returns soon.
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// Waits for the kernels, writes the header, and returns the loans, also after an error.
    pub fn wait(self) -> Encoded {
        let ((data, out), finished) = self
            .0
            .wait(|difference, report, (_, out)| difference.finish(report, out));
        let (result, changed_chunks, kernels) = match finished {
            Ok(((summary, changed), kernels)) => (Ok(summary), changed, kernels),
            Err(error) => (Err(error), 0, Vec::new()),
        };
        Encoded {
            data,
            out,
            result,
            changed_chunks,
            kernels,
        }
    }
}

impl HeaderParts {
    /// Writes the header. Returns the summary and the number of changed chunks.
    fn finish(&self, report: &[u8], out: &mut Landing) -> Result<(Summary, u64)> {
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
        Ok((Summary::new(&header, report.collisions), report.changed))
    }
}
