//! The engine that Python's calls share: how it is opened, and how losses are told.

use std::sync::Arc;

use pyo3::prelude::*;
use tierflow_bind::{Door, EngineHandle, Failure, Options};

use crate::errors::{self, Answer};
use crate::ffi::detached::detached;
use crate::logging;
use crate::patience::{raise_interrupt, watched};

/// An engine, which its Python object and its slots hold.
pub(crate) type SharedEngine = Arc<EngineHandle>;

pub(crate) fn open(py: Python<'_>, options: Options) -> Answer<SharedEngine> {
    let door = Door {
        detached,
        lost,
        ranks_meet_at_end: true,
        ..Door::default()
    };
    logging::follow_level(py)?;
    let opened = py.detach(|| EngineHandle::open(options, door));
    raise_interrupt()?;
    Ok(opened?)
}

/// Warns of the versions that were lost with an engine that nobody closed. Called on any thread that drops the engine last.
fn lost(failure: &Failure) {
    let told = logging::aside(|py| errors::warn(py, failure));
    if told.is_none() {
        eprintln!("tierflow: {failure}");
    }
}

/// Ends the engines that are still open when the interpreter ends, and warns of versions that are lost.
#[pyfunction]
pub(crate) fn end_of_process(py: Python<'_>) -> PyResult<()> {
    watched(|interrupt| py.detach(|| tierflow_bind::end_of_process(Some(interrupt)))).1
}
