//! What a caller holds while kernels work for it: the loans, which come back once the kernels are through.

use std::sync::Arc;

use tierflow_device::{Event, WriteLoan};

use super::memory::Report;
use crate::error::Result;

/// Kernels that were launched, and all that they use beyond the caller's loans.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) done: Arc<Event>,
    pub(super) report: WriteLoan,
    /// Alive as long as kernels may use it.
    pub(super) _used: Option<Arc<WriteLoan>>,
}

/// The loans of a caller, for as long as the kernels of a flight may use them. Dropping it waits; forgetting it
/// leaks them, so that the kernels' memory is never freed or lent again.
#[derive(Debug)]
pub(super) struct Pending<L> {
    /// `None` once they have been handed out.
    loans: Option<L>,
    /// An error means that nothing is in flight.
    enqueued: Result<Flight>,
}

impl<L> Pending<L> {
    pub(super) fn new(loans: L, enqueued: Result<Flight>) -> Self {
        Self {
            loans: Some(loans),
            enqueued,
        }
    }

    /// Whether the kernels are through, well or not.
    pub(super) fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and nothing runs on it any more.
        self.enqueued
            .as_ref()
            .map_or(true, |flight| flight.done.is_done().unwrap_or(true))
    }

    /// Waits for the kernels, and hands their report and the loans out, on failure too.
    pub(super) fn wait(mut self) -> (L, Result<Report>) {
        let Some(loans) = self.loans.take() else {
            unreachable!("only `wait` takes the loans, and it consumes this")
        };
        let report = match &self.enqueued {
            Ok(flight) => flight.wait(),
            Err(error) => Err(error.clone()),
        };
        (loans, report)
    }
}

impl<L> Drop for Pending<L> {
    fn drop(&mut self) {
        if self.loans.is_some()
            && let Ok(flight) = &self.enqueued
        {
            // After success and failure alike, no kernel uses the bytes; the caller that drops it wants no result.
            let _ = flight.done.synchronize();
        }
    }
}

impl Flight {
    fn wait(&self) -> Result<Report> {
        self.done.synchronize()?;
        Ok(Report::read(self.report.bytes()?))
    }
}
