//! Waits that Ctrl-C ends.

use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tierflow_bind::{Failure, Until, parse};
use tierflow_engine::Version;

use crate::errors::{Answer, Number, Raised};

/// All versions that something names, perhaps for ever.
///
/// # Errors
/// Errors of naming them, and the exception of a signal.
pub(crate) fn all_of(py: Python<'_>, versions: &Bound<'_, PyAny>) -> Answer<Vec<Version>> {
    let mut all = Vec::new();
    for version in versions.try_iter()? {
        let Number(version) = version?.extract()?;
        all.push(version);
        if all.len().is_multiple_of(1 << 16) {
            py.check_signals()?;
        }
    }
    Ok(all)
}

/// Calls something that asks now and then whether to stop waiting, as it is to for a signal. Returns what the signal raised, too.
pub(crate) fn watched<T>(call: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T) -> (T, PyResult<()>) {
    let raised = Mutex::new(Ok(()));
    let is_interrupted = || {
        let signals = Python::try_attach(|py| py.check_signals());
        let Some(Err(error)) = signals else {
            return false;
        };
        *raised.lock() = Err(error);
        true
    };
    let done = call(&is_interrupted);
    (done, raised.into_inner())
}

/// How long a call may wait. No seconds, and infinity, are for ever; what is negative is over at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeout(pub(crate) Duration);

impl Timeout {
    /// # Errors
    /// `ArgumentError` for what is no time.
    pub(crate) fn new(timeout: Option<f64>) -> Answer<Self> {
        let seconds = timeout.unwrap_or(f64::INFINITY);
        Ok(Self(parse::patience(seconds).map_err(Failure::argument)?))
    }

    /// Makes a call without the interpreter, whose other threads run meanwhile, that waits so long and looks for Ctrl-C.
    ///
    /// # Errors
    /// `TimedOutError`, those of the call, and what a signal raises.
    pub(crate) fn spend<T: Send, E: Send>(
        self,
        py: Python<'_>,
        call: impl FnOnce(Until<'_>) -> Result<T, E> + Send,
    ) -> Answer<T>
    where
        Raised: From<E>,
    {
        let (done, raised) = watched(|interrupt| {
            let until = Until {
                patience: self.0,
                interrupt: Some(interrupt),
            };
            py.detach(|| call(until))
        });
        raised?;
        Ok(done?)
    }
}
