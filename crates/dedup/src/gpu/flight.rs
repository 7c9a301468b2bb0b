//! Kernels in flight. A value owns the loans of the caller, and returns them when the kernels have ended.

use std::fmt::Debug;
use std::sync::Arc;

use tierflow_device::{Event, WriteLoan};

use crate::error::Result;

/// Launched kernels, and all memory that they use besides the caller's loans.
#[derive(Debug)]
pub(super) struct Flight<U> {
    pub(super) done: Arc<Event>,
    pub(super) report: WriteLoan,
    /// Memory that is kept alive while kernels may use it.
    pub(super) _used: Arc<U>,
}

/// The loans of a caller while kernels may use them, and the data for the steps after the kernels. Dropping it waits;
/// forgetting it leaks the loans, which is safe.
#[derive(Debug)]
pub(super) struct Pending<L, U, T> {
    /// `None` once the loans have been returned.
    loans: Option<L>,
    enqueued: Result<(Flight<U>, T)>,
}

impl<L, U, T> Pending<L, U, T> {
    /// Makes a pending value. `enqueued` is an error if nothing is in flight.
    pub(super) fn new(loans: L, enqueued: Result<(Flight<U>, T)>) -> Self {
        Self {
            loans: Some(loans),
            enqueued,
        }
    }

    /// Waits for the kernels, calls `finish` with their report, and returns the loans, also after an error.
    pub(super) fn wait<R>(
        mut self,
        finish: impl FnOnce(&T, &[u8], &mut L) -> Result<R>,
    ) -> (L, Result<R>) {
        let Some(mut loans) = self.loans.take() else {
            unreachable!("only `wait` takes the loans, and it consumes this")
        };
        let finished = match &self.enqueued {
            Ok((flight, purpose)) => flight
                .wait()
                .and_then(|report| finish(purpose, report, &mut loans)),
            Err(error) => Err(error.clone()),
        };
        (loans, finished)
    }
}

impl<L, U, T> Drop for Pending<L, U, T> {
    fn drop(&mut self) {
        if self.loans.is_some()
            && let Ok((flight, _)) = &self.enqueued
        {
            // Nothing uses the bytes after either result, and a dropped flight reports none.
            let _ = flight.done.synchronize();
        }
    }
}

impl<U> Flight<U> {
    /// Waits for the kernels, and returns their report.
    fn wait(&self) -> Result<&[u8]> {
        self.done.synchronize()?;
        Ok(self.report.bytes()?)
    }
}
