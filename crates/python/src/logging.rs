//! The log of the crates, written to Python's logger `tierflow`.

use std::sync::Arc;

use pyo3::prelude::*;
use tierflow_bind::{Level, LevelFilter, log_to, to_standard_error};

use crate::patience::keep_interrupt;

/// The levels of Python's `logging`, each with the level of the crates' log.
const LEVELS: [(u32, LevelFilter); 4] = [
    (10, LevelFilter::Debug),
    (20, LevelFilter::Info),
    (30, LevelFilter::Warn),
    (50, LevelFilter::Error),
];

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?
        .call_method1("getLogger", ("tierflow",))
}

/// Directs the log to Python's logger, from the level on that the logger has now.
pub(crate) fn follow_level(py: Python<'_>) -> PyResult<()> {
    let asked: u32 = logger(py)?.call_method0("getEffectiveLevel")?.extract()?;
    let level = LEVELS.iter().find(|(level, _)| asked <= *level);
    let level = level.map_or(LevelFilter::Off, |(_, level)| *level);
    log_to(level, Arc::new(write));
    Ok(())
}

/// Calls Python from any thread. Returns `None` if the interpreter has ended. An exception that is set on the thread stays set.
pub(crate) fn aside<T>(call: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    Python::try_attach(|py| {
        let on_its_way = PyErr::take(py);
        let done = call(py);
        if let Some(error) = on_its_way {
            error.restore(py);
        }
        done
    })
}

fn write(level: Level, text: &str) {
    let method = match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        _ => "debug",
    };
    let line = |py: Python<'_>| {
        let written = logger(py).and_then(|logger| logger.call_method1(method, ("%s", text)));
        written.map_err(|error| keep_interrupt(py, error)).is_ok()
    };
    if aside(line) != Some(true) {
        to_standard_error(level, text);
    }
}
