//! An engine as Python's calls use it.

use std::sync::Arc;

use pyo3::prelude::*;
use tierflow_bind::{Door, EngineHandle, Failure, Options};

use crate::errors::{self, Answer};
use crate::ffi::detached::detached;
use crate::logging;
use crate::patience::watched;

/// An engine and what its calls share.
pub(crate) type SharedEngine = Arc<EngineHandle>;

pub(crate) fn open(py: Python<'_>, options: Options) -> Answer<SharedEngine> {
    let door = Door {
        detached,
        lost,
        ranks_meet_at_end: true,
        ..Door::default()
    };
    logging::follow_level(py)?;
    Ok(py.detach(|| EngineHandle::open(options, door))?)
}

/// Tells which versions were lost with an engine that nobody closed, wherever its last user lets go of it.
fn lost(failure: &Failure) {
    let told = logging::aside(|py| errors::warn(py, failure));
    if told.is_none() {
        eprintln!("tierflow: {failure}");
    }
}

/// Ends the engines that are still there when the interpreter ends, and warns of what is lost by that.
#[pyfunction]
pub(crate) fn end_of_process(py: Python<'_>) -> PyResult<()> {
    watched(|interrupt| py.detach(|| tierflow_bind::end_of_process(Some(interrupt)))).1
}
