//! Jobs that are preempted.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tierflow_engine::Version;

use crate::engine::Engine;
use crate::errors::OrRaise;
use crate::options;
use crate::patience::watched;

/// Longer than any job runs.
const LONG: Duration = Duration::from_secs(10 * 365 * 86_400);

fn patience(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    let patience = options::duration(py, Some(seconds))?;
    Ok(patience.unwrap_or(LONG).min(LONG))
}

/// What will be durable when a job is preempted, as `Engine.suspend` found it: the version is written straight to the lowest
/// tier, and nothing else moves before it is durable and the application calls again.
#[pyclass(frozen, module = "tierflow")]
pub(crate) struct Suspension {
    found: tierflow_bind::Suspension,
    /// The version that is durable, or will be; `None` if none can be in time.
    #[pyo3(get)]
    version: Option<Version>,
    /// The newest version that was held.
    #[pyo3(get)]
    newest: Option<Version>,
    /// How many seconds it takes; `None` while nothing was measured.
    #[pyo3(get)]
    expected: Option<f64>,
}

impl Suspension {
    pub(crate) fn begin(
        py: Python<'_>,
        engine: &Engine,
        seconds: f64,
        version: Option<Version>,
    ) -> PyResult<Self> {
        let deadline = Instant::now() + patience(py, seconds)?;
        let core = engine.core(py)?;
        let found = py.detach(|| core.suspend(version, deadline)).or_raise(py)?;
        Ok(Self {
            version: found.version,
            newest: found.newest,
            expected: found.expected.map(|time| time.as_secs_f64()),
            found,
        })
    }
}

#[pymethods]
impl Suspension {
    /// Waits until the version is durable, or the deadline. Returns whether it is durable. Ctrl-C ends the wait, too.
    fn wait(&self, py: Python<'_>) -> PyResult<bool> {
        let (is_durable, raised) = watched(|interrupt| py.detach(|| self.found.wait(interrupt)));
        raised.map_or(Ok(()), Err)?;
        is_durable.or_raise(py)
    }

    fn __repr__(&self) -> String {
        let none = || "None".to_owned();
        format!(
            "Suspension(version={}, newest={}, expected={})",
            self.version
                .map_or_else(none, |version| version.to_string()),
            self.newest.map_or_else(none, |version| version.to_string()),
            self.expected.map_or_else(none, |time| time.to_string())
        )
    }
}

/// The notice of a preemption: given by a signal of the batch system, which leaves the job `grace` seconds, or by `give`.
#[pyclass(frozen, module = "tierflow")]
pub(crate) struct Notice {
    notice: tierflow_engine::Notice,
}

#[pymethods]
impl Notice {
    #[new]
    #[pyo3(signature = (signals = Vec::new(), grace = 0.0))]
    fn new(py: Python<'_>, signals: Vec<i32>, grace: f64) -> PyResult<Self> {
        let grace = patience(py, grace)?;
        let notice = match signals.as_slice() {
            [] => Ok(tierflow_engine::Notice::new()),
            signals => tierflow_engine::Notice::on_signals(signals, grace),
        };
        let notice = notice.or_raise(py)?;
        Ok(Self { notice })
    }

    /// The job has `grace` seconds left from now on, unless that was said before.
    fn give(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        self.notice.give(patience(py, grace)?);
        Ok(())
    }

    /// How many seconds are left; `None` until the notice is given.
    #[getter]
    fn left(&self) -> Option<f64> {
        let deadline = self.notice.deadline()?;
        Some(
            deadline
                .saturating_duration_since(Instant::now())
                .as_secs_f64(),
        )
    }
}
