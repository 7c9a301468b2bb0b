//! Kernels in flight. A value owns the loans of the caller, and returns them when the kernels have ended.

use std::sync::Arc;

use tierflow_device::{Event, WriteLoan};

use super::memory::Report;
use crate::error::Result;

/// Launched kernels, and all memory that they use besides the caller's loans.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) done: Arc<Event>,
    pub(super) report: WriteLoan,
    /// Memory that is kept alive while kernels may use it.
    pub(super) _used: Option<Arc<WriteLoan>>,
}

/// The loans of a caller while kernels may use them. Dropping it waits; forgetting it leaks the loans, so that the
/// kernels' memory is never freed or lent again.
#[derive(Debug)]
pub(super) struct Pending<L> {
    /// `None` once the loans have been returned.
    loans: Option<L>,
    /// The launched kernels, or an error if nothing is in flight.
    enqueued: Result<Flight>,
}

impl<L> Pending<L> {
    pub(super) fn new(loans: L, enqueued: Result<Flight>) -> Self {
        Self {
            loans: Some(loans),
            enqueued,
        }
    }

    /// Returns true if the kernels have ended, also by an error.
    pub(super) fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and runs nothing any more.
        self.enqueued
            .as_ref()
            .map_or(true, |flight| flight.done.is_done().unwrap_or(true))
    }

    /// Waits for the kernels, and returns their report and the loans, also after an error.
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
            // No kernel uses the bytes after either result, and a dropped flight reports none.
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
