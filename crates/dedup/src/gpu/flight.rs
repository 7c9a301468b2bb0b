//! Work of kernels in flight: it owns the loans of the caller, and returns them when the kernels have ended.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tierflow_device::{Event, WriteLoan};

use crate::error::Result;

/// Duration of each kernel.
pub(super) type Times = Vec<(&'static str, Duration)>;

/// Launched kernels, and all memory that they use besides the caller's loans.
#[derive(Debug)]
pub(super) struct Flight<U> {
    pub(super) done: Arc<Event>,
    /// An event at the start, and one at the end of each timed kernel.
    pub(super) marks: Vec<(&'static str, Event)>,
    pub(super) report: WriteLoan,
    /// Kept alive for as long as kernels may use it.
    pub(super) _used: Arc<U>,
}

/// The loans of a caller while kernels may use them, and the data to finish with. Dropping it waits; forgetting it
/// leaks the loans, which is safe.
#[derive(Debug)]
pub(super) struct Pending<L, U, T> {
    /// `None` once the loans have been returned.
    loans: Option<L>,
    enqueued: Result<(Flight<U>, T)>,
}

impl<L, U, T> Pending<L, U, T> {
    /// An error means that nothing is in flight.
    pub(super) fn new(loans: L, enqueued: Result<(Flight<U>, T)>) -> Self {
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
            .map_or(true, |(flight, _)| flight.done.is_done().unwrap_or(true))
    }

    /// Waits for the kernels, calls `finish` with their report, and returns the loans, also after an error.
    pub(super) fn wait<R>(
        mut self,
        finish: impl FnOnce(&T, &[u8], &mut L) -> Result<R>,
    ) -> (L, Result<(R, Times)>) {
        let Some(mut loans) = self.loans.take() else {
            unreachable!("only `wait` takes the loans, and it consumes this")
        };
        let finished = match &self.enqueued {
            Ok((flight, purpose)) => flight.wait().and_then(|report| {
                let result = finish(purpose, report, &mut loans)?;
                Ok((result, flight.times()?))
            }),
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

    fn times(&self) -> Result<Times> {
        let mut times = Vec::new();
        for pair in self.marks.windows(2) {
            if let [(_, before), (name, after)] = pair {
                times.push((*name, after.elapsed_since(before)?));
            }
        }
        Ok(times)
    }
}
