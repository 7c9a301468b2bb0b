//! Transfers: copies in flight, which own what they use.

use std::fmt;

use crate::backend::Mark;
use crate::error::Result;
use crate::loan::{ReadLoan, WriteLoan};

/// A copy in flight. It owns both loans, so no other code can touch the bytes meanwhile.
///
/// Dropping it waits for the copy. Forgetting it leaks the loans: the bytes stay lent and the
/// memory stays allocated, which is safe.
#[must_use = "dropping a transfer waits for it"]
pub struct Transfer {
    /// `None` once the loans have been handed out.
    loans: Option<(ReadLoan, WriteLoan)>,
    /// An error means that nothing is in flight.
    enqueued: Result<Box<dyn Mark>>,
}

/// What a transfer gives back when it is over.
#[derive(Debug)]
pub struct Outcome {
    /// The loan of the source.
    pub src: ReadLoan,
    /// The loan of the destination, whose bytes are the source's if the result is `Ok`, and
    /// unspecified otherwise.
    pub dst: WriteLoan,
    /// Whether the bytes arrived.
    pub result: Result<()>,
}

impl Transfer {
    /// `enqueued` is a mark behind the copy, or an error with nothing of it in flight.
    pub(crate) fn new(src: ReadLoan, dst: WriteLoan, enqueued: Result<Box<dyn Mark>>) -> Self {
        Self {
            loans: Some((src, dst)),
            enqueued,
        }
    }

    /// Whether the copy is over, well or not, so that [`wait`](Self::wait) returns at once.
    pub fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and nothing runs on it any more.
        self.enqueued
            .as_ref()
            .map_or(true, |mark| mark.is_done().unwrap_or(true))
    }

    /// Waits for the copy, asleep rather than spinning, and hands the loans back, on failure too.
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
            // Either way nothing uses the bytes afterwards; a dropped transfer reports no result.
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
