//! A checkpoint that is being encoded.

use std::sync::Arc;
use std::time::Duration;

use tierflow_device::{ReadLoan, Stream};

use super::flight::{Flight, Pending};
use super::landing::Landing;
use super::report::{RESULT_BYTES, Report};
use super::state::Arena;
use crate::encode::{Last, Summary};
use crate::error::{Error, Result};
use crate::layout::Layout;

/// A checkpoint that the GPU is encoding. It owns the loans, so no other code can touch the bytes meanwhile.
/// Dropping it waits; forgetting it leaks them, which is safe.
#[must_use = "dropping an encoding waits for it"]
#[derive(Debug)]
pub struct Encoding(Pending<(ReadLoan, Landing), Arena, HeaderParts>);

/// What the header of a difference is made from.
#[derive(Debug)]
pub(super) struct HeaderParts {
    /// Writes it to device memory.
    pub(super) side: Arc<Stream>,
    pub(super) layout: Layout,
    pub(super) id: (u64, u32),
    pub(super) seed: u64,
    pub(super) parent: Option<Last>,
}

/// What is left of an encoding.
#[derive(Debug)]
pub struct Encoded {
    /// The loan of the checkpoint.
    pub data: ReadLoan,
    /// The memory of the difference, whose first [`Summary::stored_bytes`] bytes are it if the result
    /// is `Ok`, and unspecified otherwise.
    pub out: Landing,
    /// What the difference is made of.
    pub result: Result<Summary>,
    /// Chunks that differ from the checkpoint before.
    pub changed_chunks: u64,
    /// How long each kernel took, if the lineage was told to [`profile`](super::Lineage::profile).
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

    /// Whether the kernels are through, well or not, so that [`wait`](Self::wait) returns soon.
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// Waits for the kernels, writes the header, and hands the loans back, on failure too.
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
    /// Writes the header. Returns what the difference is made of, and how many chunks changed.
    fn finish(&self, report: &[u8], out: &mut Landing) -> Result<(Summary, u64)> {
        let mut words = [0; RESULT_BYTES];
        words.copy_from_slice(report);
        let report = Report::read(&words);
        let header = report.header(self.layout, self.id, self.seed, self.parent);
        if header.total_bytes() > out.range().len() as u64 {
            return Err(Error::own(self.id.0));
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
