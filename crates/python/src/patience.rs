//! Waits that Ctrl-C ends.

use std::cell::Cell;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tierflow_bind::{Failure, Until, parse};
use tierflow_engine::Version;

use crate::errors::{Answer, Number, Raised};
use crate::ffi::pending::raise_soon;

/// Collects all versions of an iterable. Ctrl-C ends an iterable without an end.
///
/// # Errors
/// `TypeError` if `versions` is no iterable, or has an item that is no integer; `ArgumentError` if a number is no version; the
/// exceptions of the iterable, and of a signal's handler.
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

thread_local! {
    /// The exception that ended a function of Python's in the middle of a call of this thread, and that the call raises at its end.
    static ON_ITS_WAY: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Keeps an exception of a function that a call of this thread called, if it ends programs: Ctrl-C's `KeyboardInterrupt`, or `SystemExit`.
/// The call itself only has a text for it. The main thread raises the exception as soon as it runs Python again if no call does so before, as in
/// the drop of an engine.
pub(crate) fn keep_interrupt(py: Python<'_>, error: PyErr) {
    if !error.is_instance_of::<PyException>(py) {
        ON_ITS_WAY.set(Some(error));
        raise_soon();
    }
}

/// Raises the exception that [`keep_interrupt`] kept for this thread.
pub(crate) fn raise_interrupt() -> PyResult<()> {
    ON_ITS_WAY.take().map_or(Ok(()), Err)
}

/// Calls `call` with a function that returns true once `call` is to stop waiting: a signal's handler raised an exception. Returns the
/// exception, too.
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
    (done, raised.into_inner().and(raise_interrupt()))
}

/// The longest that a call may wait. `None` and infinity mean for ever; a negative time is over at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeout(pub(crate) Duration);

impl Timeout {
    /// Converts seconds.
    ///
    /// # Errors
    /// `ArgumentError` if `timeout` is not a number (NaN).
    pub(crate) fn new(timeout: Option<f64>) -> Answer<Self> {
        let seconds = timeout.unwrap_or(f64::INFINITY);
        Ok(Self(parse::patience(seconds).map_err(Failure::argument)?))
    }

    /// Calls `call`, which waits for this time at most and stops at Ctrl-C, while this thread is detached from the interpreter: other
    /// threads of Python run meanwhile.
    ///
    /// # Errors
    /// The exception that a signal's handler raised, else the errors of `call`, such as `TimedOutError`.
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
