//! Transfers: copies in flight, which own their loans.

use std::fmt;

use crate::backend::Mark;
use crate::error::Result;
use crate::loan::{ReadLoan, WriteLoan};

/// A copy in flight. The transfer owns both loans, so no other code can touch the bytes meanwhile.
///
/// Dropping it waits for the copy. Forgetting it leaks the loans: the bytes stay lent and the
/// memory stays allocated, which is safe.
#[must_use = "dropping a transfer waits for it"]
pub struct Transfer {
    /// `None` once the loans have been handed out.
    loans: Option<(ReadLoan, WriteLoan)>,
    /// The mark behind the copy, or an error if nothing is in flight.
    enqueued: Result<Box<dyn Mark>>,
}

/// Result of a transfer, with its loans.
#[derive(Debug)]
pub struct Outcome {
    /// The loan of the source.
    pub src: ReadLoan,
    /// The loan of the destination. The bytes are the source's if the result is `Ok`, and unspecified otherwise.
    pub dst: WriteLoan,
    /// `Ok` if the bytes arrived.
    pub result: Result<()>,
}

impl Transfer {
    /// Makes a transfer. `enqueued` is a mark behind the copy, or an error if nothing of the copy is in flight.
    pub(crate) fn new(src: ReadLoan, dst: WriteLoan, enqueued: Result<Box<dyn Mark>>) -> Self {
        Self {
            loans: Some((src, dst)),
            enqueued,
        }
    }

    /// Returns true if the copy has ended, also by an error, so that [`wait`](Self::wait) returns at once.
    pub fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and runs nothing any more.
        self.enqueued
            .as_ref()
            .map_or(true, |mark| mark.is_done().unwrap_or(true))
    }

    /// Waits for the copy, asleep rather than spinning, and returns the loans, also after an error.
    #[allow(
        clippy::missing_panics_doc,
        reason = "the loans are there until this consumes it"
    )]
    pub fn wait(mut self) -> Outcome {
        let result = self.finish();
        match self.loans.take() {
            Some((src, dst)) => Outcome { src, dst, result },
            None => unreachable!("only `wait` takes the loans, and it consumes the transfer"),
        }
    }

    fn finish(&self) -> Result<()> {
        match &self.enqueued {
            Ok(mark) => mark.synchronize(),
            Err(error) => Err(error.clone()),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.loans.is_some() {
            // Nothing uses the bytes after either result, and a dropped transfer reports none.
            let _ = self.finish();
        }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("done", &self.is_done())
            .finish_non_exhaustive()
    }
}
