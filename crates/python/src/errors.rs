//! Errors of the engine as exceptions, sorted by what the caller does next. The classes are in `tierflow/_errors.py`.

use std::ffi::CString;
use std::path::Path;

use pyo3::exceptions::{PyOSError, PyResourceWarning};
use pyo3::prelude::*;
use tierflow_bind::{Failure, Status, System};
use tierflow_device::Error as DeviceError;
use tierflow_engine::Error;
use tierflow_store::Error as StoreError;

/// The result of a fallible call in Python.
pub(crate) trait OrRaise<T> {
    /// # Errors
    /// The exception of the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Raise> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| error.raised(py))
    }
}

/// An error that has an exception.
pub(crate) trait Raise {
    /// The exception, of the class that says what the caller does next.
    fn raised(&self, py: Python<'_>) -> PyErr;
}

impl Raise for Error {
    fn raised(&self, py: Python<'_>) -> PyErr {
        let class = match self {
            Self::Storage(error) => return error.raised(py),
            Self::Device(error) => return error.raised(py),
            Self::OtherProcess { .. } => "ForkedError",
            error => class(error.into()),
        };
        about(py, named(py, class, self.to_string()), &self.into())
    }
}

impl Raise for Failure {
    fn raised(&self, py: Python<'_>) -> PyErr {
        let exception = named(py, class(self.status), self.text.clone());
        about(py, exception, &self.system)
    }
}

impl Raise for DeviceError {
    fn raised(&self, py: Python<'_>) -> PyErr {
        let class = match self {
            Self::OutOfMemory { .. } => "NoRoomError",
            Self::Invalid(_) => "ArgumentError",
            _ => "DeviceError",
        };
        named(py, class, self.to_string())
    }
}

impl Raise for StoreError {
    fn raised(&self, py: Python<'_>) -> PyErr {
        let class = match self {
            Self::Damaged { .. } | Self::Lost { .. } | Self::NoVersion { .. } => "DamagedError",
            Self::Argument(_) | Self::Exists { .. } => "ArgumentError",
            _ => "StorageError",
        };
        about(py, named(py, class, self.to_string()), &self.into())
    }
}

/// Gives an `OSError` its attributes. Other exceptions have none of them.
fn about(py: Python<'_>, exception: PyErr, system: &System) -> PyErr {
    if !exception.is_instance_of::<PyOSError>(py) {
        return exception;
    }
    let value = exception.value(py);
    // The text says it all, whether or not the attributes can be set.
    if let Some(errno) = system.errno {
        let _ = value.setattr("errno", errno);
        let words = std::io::Error::from_raw_os_error(errno).to_string();
        let words = words.split(" (os error").next().unwrap_or_default();
        let _ = value.setattr("strerror", words);
    }
    if let Some(path) = &system.path {
        let _ = value.setattr("filename", path.display().to_string());
    }
    exception
}

/// Warns of what was lost. Where warnings are errors, it is told as one that nobody can catch.
pub(crate) fn warn(py: Python<'_>, failure: &Failure) {
    let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
    let category = py.get_type::<PyResourceWarning>();
    if let Err(error) = PyErr::warn(py, &category, &text, 1) {
        error.write_unraisable(py, None);
    }
}

/// The class of each status.
fn class(status: Status) -> &'static str {
    match status {
        Status::Unknown => "UnknownVersionError",
        Status::NoRoom => "NoRoomError",
        Status::TimedOut => "TimedOutError",
        Status::Stalled => "StalledError",
        Status::Damaged => "DamagedError",
        Status::Storage => "StorageError",
        Status::Device => "DeviceError",
        Status::Closed => "ClosedError",
        Status::Ok | Status::Internal => "TierflowError",
        Status::Argument | Status::Group => "ArgumentError",
    }
}

/// A call that must be written another way.
pub(crate) fn argument(py: Python<'_>, text: String) -> PyErr {
    named(py, "ArgumentError", text)
}

/// An array that will not do.
pub(crate) fn array(py: Python<'_>, text: String) -> PyErr {
    named(py, "ArrayError", text)
}

/// The engine, or the slot, is no more.
pub(crate) fn closed(py: Python<'_>, text: &str) -> PyErr {
    named(py, "ClosedError", text.to_owned())
}

/// A fork of the process that built the engine.
pub(crate) fn forked(py: Python<'_>, owner: u32) -> PyErr {
    Error::OtherProcess { owner }.raised(py)
}

/// The timeline or another file.
pub(crate) fn file(py: Python<'_>, path: &Path, error: &std::io::Error) -> PyErr {
    let text = format!("{}: {error}", path.display());
    let system = System {
        errno: error.raw_os_error(),
        path: Some(path.to_owned()),
    };
    about(py, named(py, "StorageError", text), &system)
}

/// One of the classes of `tierflow/_errors.py`.
fn named(py: Python<'_>, class: &str, text: String) -> PyErr {
    let found = py
        .import("tierflow._errors")
        .and_then(|module| module.getattr(class));
    match found.and_then(|class| class.call1((text,))) {
        Ok(exception) => PyErr::from_value(exception),
        // The interpreter ends, or the package is not whole.
        Err(error) => error,
    }
}
