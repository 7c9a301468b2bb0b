//! What a caller holds while kernels work for it: the loans, which come back once the kernels are through.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tierflow_device::{Event, WriteLoan};

use crate::error::Result;

/// How long each kernel took.
pub(super) type Times = Vec<(&'static str, Duration)>;

/// Kernels that were launched, and all that they use beyond the caller's loans.
#[derive(Debug)]
pub(super) struct Flight<U> {
    pub(super) done: Arc<Event>,
    /// The start, and the end of each kernel that is timed.
    pub(super) marks: Vec<(&'static str, Event)>,
    pub(super) report: WriteLoan,
    /// Alive as long as kernels may use it.
    pub(super) _used: Arc<U>,
}

/// The loans of a caller, for as long as the kernels of a flight may use them, and what its end is for. Dropping it
/// waits; forgetting it leaks them, which is safe.
#[derive(Debug)]
pub(super) struct Pending<L, U, T> {
    /// `None` once they have been handed out.
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

    /// Whether the kernels are through, well or not.
    pub(super) fn is_done(&self) -> bool {
        // A device that cannot be asked is lost, and nothing runs on it any more.
        self.enqueued
            .as_ref()
            .map_or(true, |(flight, _)| flight.done.is_done().unwrap_or(true))
    }

    /// Waits for the kernels, lets `finish` make something of their report, and hands the loans back, on failure too.
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
            // Either way nothing uses the bytes afterwards; a dropped flight reports no result.
            let _ = flight.done.synchronize();
        }
    }
}

impl<U> Flight<U> {
    /// What the kernels report, once they are through.
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
