//! The classes `Suspension` and `Notice`, for jobs that are preempted.

use std::time::Instant;

use pyo3::prelude::*;
use tierflow_engine::{Notice as OfJob, Version};

use crate::engine::Engine;
use crate::errors::Answer;
use crate::patience::{Timeout, watched};

/// The version that will be durable when a job is preempted, as `Engine.suspend` found it. The engine writes the version straight to the
/// lowest tier. Nothing else moves until the version is durable and the application calls again.
#[pyclass(frozen, module = "tierflow")]
pub(crate) struct Suspension {
    found: tierflow_bind::Suspension,
    /// The version that is durable, or will be; `None` if none can be in time.
    #[pyo3(get)]
    version: Option<Version>,
    /// The newest version that was held.
    #[pyo3(get)]
    newest: Option<Version>,
    /// Seconds until the version is durable; `None` while nothing was measured.
    #[pyo3(get)]
    expected: Option<f64>,
}

impl Suspension {
    pub(crate) fn begin(
        py: Python<'_>,
        engine: &Engine,
        seconds: f64,
        version: Option<Version>,
    ) -> Answer<Self> {
        let Timeout(patience) = Timeout::new(Some(seconds))?;
        let core = engine.core()?;
        let found = py.detach(|| core.suspend(version, patience))?;
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
    /// Waits until the version is durable, or until the deadline. Returns true if it is durable. Ctrl-C ends the wait, too.
    fn wait(&self, py: Python<'_>) -> Answer<bool> {
        let (is_durable, raised) = watched(|interrupt| py.detach(|| self.found.wait(interrupt)));
        raised?;
        Ok(is_durable?)
    }

    fn __repr__(&self) -> String {
        let (version, newest) = (shown(self.version), shown(self.newest));
        let expected = shown(self.expected);
        format!("Suspension(version={version}, newest={newest}, expected={expected})")
    }
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| value.to_string())
}

/// The notice of a preemption: a signal among the `signals` of the batch system gives it, and leaves the job `grace` seconds; or `give` does.
#[pyclass(frozen, module = "tierflow")]
pub(crate) struct Notice(OfJob);

#[pymethods]
impl Notice {
    #[new]
    #[pyo3(signature = (signals = Vec::new(), grace = 0.0))]
    fn new(signals: Vec<i32>, grace: f64) -> Answer<Self> {
        let Timeout(grace) = Timeout::new(Some(grace))?;
        Ok(Self(match signals.as_slice() {
            [] => OfJob::new(),
            signals => OfJob::on_signals(signals, grace)?,
        }))
    }

    /// Gives the notice: the job has `grace` seconds left from now on. A notice that was given before stays as it is.
    fn give(&self, grace: f64) -> Answer {
        let Timeout(grace) = Timeout::new(Some(grace))?;
        self.0.give(grace);
        Ok(())
    }

    /// Seconds that are left; `None` until the notice is given.
    #[getter]
    fn left(&self) -> Option<f64> {
        let left = self.0.deadline()?.saturating_duration_since(Instant::now());
        Some(left.as_secs_f64())
    }
}
