//! A checkpoint that is being encoded.

use std::sync::Arc;
use std::time::Duration;

use tierflow_device::{Event, ReadLoan, Stream, WriteLoan};

use super::landing::Landing;
use super::state::{Arena, RESULT_BYTES, Report};
use crate::encode::{Last, Summary};
use crate::error::{Error, Result};
use crate::layout::Layout;

/// A checkpoint that the GPU is encoding. It owns the loans, so nobody can touch the bytes meanwhile.
/// Dropping it waits; forgetting it leaks them, which harms nobody.
#[must_use = "dropping an encoding waits for it"]
#[derive(Debug)]
pub struct Encoding {
    /// `None` once the loans have been handed out.
    loans: Option<(ReadLoan, Landing)>,
    enqueued: Result<InFlight>,
}

/// What the kernels of one checkpoint use, beyond the loans.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) done: Arc<Event>,
    pub(super) marks: Vec<(&'static str, Event)>,
    /// Alive as long as kernels may use it.
    pub(super) _arena: Arc<Arena>,
    pub(super) report: WriteLoan,
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
    pub(super) fn new(data: ReadLoan, out: Landing, enqueued: Result<InFlight>) -> Self {
        Self {
            loans: Some((data, out)),
            enqueued,
        }
    }

    /// Whether the kernels are through, well or not, so that [`wait`](Self::wait) returns soon.
    pub fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and nothing runs on it any more.
        self.enqueued
            .as_ref()
            .map_or(true, |flight| flight.done.is_done().unwrap_or(true))
    }

    /// Waits for the kernels, writes the header, and hands the loans back, on failure too.
    #[allow(
        clippy::missing_panics_doc,
        reason = "the loans are there until this consumes it"
    )]
    pub fn wait(mut self) -> Encoded {
        let Some((data, mut out)) = self.loans.take() else {
            unreachable!("only `wait` takes the loans, and it consumes the encoding")
        };
        let finished = match &self.enqueued {
            Ok(flight) => flight.finish(&mut out),
            Err(error) => Err(error.clone()),
        };
        let (result, changed_chunks, kernels) = match finished {
            Ok((summary, changed, kernels)) => (Ok(summary), changed, kernels),
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

impl Drop for Encoding {
    fn drop(&mut self) {
        if self.loans.is_some()
            && let Ok(flight) = &self.enqueued
        {
            // Either way nothing uses the bytes afterwards; who drops an encoding wants no result.
            let _ = flight.done.synchronize();
        }
    }
}

impl InFlight {
    #[allow(clippy::type_complexity, reason = "the parts of `Encoded`")]
    fn finish(&self, out: &mut Landing) -> Result<(Summary, u64, Vec<(&'static str, Duration)>)> {
        self.done.synchronize()?;
        let mut report = [0; RESULT_BYTES];
        report.copy_from_slice(self.report.bytes()?);
        let report = Report::read(&report);
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
        let mut kernels = Vec::new();
        for pair in self.marks.windows(2) {
            if let [(_, before), (name, after)] = pair {
                kernels.push((*name, after.elapsed_since(before)?));
            }
        }
        Ok((
            Summary::new(&header, report.collisions),
            report.changed,
            kernels,
        ))
    }
}
