//! Waits that Ctrl-C ends.

use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tierflow_bind::Until;
use tierflow_engine::{Result, Version};

use crate::errors::OrRaise;
use crate::options;

/// All versions that something names, perhaps for ever.
///
/// # Errors
/// Errors of naming them, and the exception of a signal.
pub(crate) fn all_of(py: Python<'_>, versions: &Bound<'_, PyAny>) -> PyResult<Vec<Version>> {
    let mut all = Vec::new();
    for version in versions.try_iter()? {
        all.push(version?.extract::<Version>()?);
        if all.len().is_multiple_of(1 << 16) {
            py.check_signals()?;
        }
    }
    Ok(all)
}

/// Calls something that asks now and then whether to stop waiting, as it is to for a signal. Returns what the signal raised, too.
pub(crate) fn watched<T>(call: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T) -> (T, Option<PyErr>) {
    let raised = Mutex::new(None);
    let is_interrupted = || {
        let signals = Python::try_attach(|py| py.check_signals());
        let Some(Err(error)) = signals else {
            return false;
        };
        *raised.lock() = Some(error);
        true
    };
    let done = call(&is_interrupted);
    (done, raised.into_inner())
}

/// How long a call may wait; without a limit, for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(Duration);

impl Patience {
    /// # Errors
    /// `ArgumentError` for what is no time.
    pub(crate) fn new(py: Python<'_>, timeout: Option<f64>) -> PyResult<Self> {
        let patience = options::duration(py, timeout)?;
        Ok(Self(patience.unwrap_or(Duration::MAX)))
    }

    /// Makes a call without the interpreter that waits so long, and looks for Ctrl-C meanwhile.
    ///
    /// # Errors
    /// `TimedOutError`, those of the call, and what a signal raises.
    pub(crate) fn spend<T: Send>(
        self,
        py: Python<'_>,
        call: impl FnOnce(Until<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let (done, raised) = watched(|interrupt| {
            let until = Until {
                patience: self.0,
                interrupt: Some(interrupt),
            };
            py.detach(|| call(until))
        });
        raised.map_or(Ok(()), Err)?;
        done.or_raise(py)
    }
}
