//! Waits that Ctrl-C ends.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tierflow_engine::{Engine, Error, Result, Version, Within};

use crate::errors;
use crate::options;

/// How often a wait checks for signals (Ctrl-C).
const SLICE: Duration = Duration::from_millis(50);

/// All versions that something names, perhaps for ever.
///
/// # Errors
/// Those of naming them, and what a signal raises.
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

/// How long a call may wait; without a limit, for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    whole: Option<Duration>,
    left: Option<Duration>,
}

impl Patience {
    /// # Errors
    /// `ArgumentError` for what is no time.
    pub(crate) fn new(py: Python<'_>, timeout: Option<f64>) -> PyResult<Self> {
        let whole = options::duration(py, timeout)?;
        Ok(Self { whole, left: whole })
    }

    /// The engine for one slice of the wait.
    pub(crate) fn of<'engine>(&self, engine: &'engine Engine) -> Within<'engine> {
        let left = self.left.unwrap_or(Duration::MAX);
        engine.within(left).sliced(SLICE)
    }

    /// Calls again until there is an answer, or the time is over, and looks for Ctrl-C in between.
    ///
    /// # Errors
    /// `TimedOutError`, those of the call, and what a signal raises.
    pub(crate) fn spend<T>(
        self,
        py: Python<'_>,
        mut call: impl FnMut(Python<'_>, &Self) -> PyResult<Result<T>>,
    ) -> PyResult<T> {
        let begun = Instant::now();
        let mut rest = self;
        loop {
            match call(py, &rest)? {
                Err(Error::TimedOut { .. }) => py.check_signals()?,
                answer => return answer.map_err(|error| errors::raised(py, &error)),
            }
            rest.left = self
                .whole
                .map(|whole| whole.saturating_sub(begun.elapsed()));
            if let (Some(patience), Some(Duration::ZERO)) = (self.whole, rest.left) {
                return Err(errors::raised(py, &Error::TimedOut { patience }));
            }
        }
    }
}
