//! Errors of the engine as exceptions, sorted by what the caller does next. The classes are in `tierflow/_errors.py`.

use std::ffi::CString;
use std::path::Path;

use pyo3::exceptions::{PyOSError, PyResourceWarning};
use pyo3::prelude::*;
use tierflow_bind::{Failure, Status, System};
use tierflow_device::Error as DeviceError;
use tierflow_engine::Error;
use tierflow_store::Error as StoreError;

/// What every call of the engine's becomes in Python.
pub(crate) trait OrRaise<T> {
    /// # Errors
    /// The exception of this crate's error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for tierflow_engine::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}

/// The exception of an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let exception = sorted(py, error);
    about(py, &exception, &System::from(error));
    exception
}

/// Gives an `OSError` its attributes. Other exceptions have none of them.
fn about(py: Python<'_>, exception: &PyErr, system: &System) {
    if !exception.is_instance_of::<PyOSError>(py) {
        return;
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
}

/// The exception of the class that says what the caller does next.
fn sorted(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Storage(error) => stored(py, error, text),
        Error::Device(error) => device(py, error),
        Error::OtherProcess { .. } => named(py, "ForkedError", text),
        error => named(py, class(error.into()), text),
    }
}

/// The exception of a failure.
pub(crate) fn failed(py: Python<'_>, failure: &Failure) -> PyErr {
    let exception = named(py, class(failure.status), failure.text.clone());
    about(py, &exception, &failure.system);
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
    raised(py, &Error::OtherProcess { owner })
}

/// The device's failure.
pub(crate) fn device(py: Python<'_>, error: &DeviceError) -> PyErr {
    named(py, device_class(error), error.to_string())
}

/// A directory of versions.
pub(crate) fn storage(py: Python<'_>, error: &StoreError) -> PyErr {
    let exception = stored(py, error, error.to_string());
    about(py, &exception, &System::from(error));
    exception
}

/// The timeline or another file.
pub(crate) fn file(py: Python<'_>, path: &Path, error: &std::io::Error) -> PyErr {
    let text = format!("{}: {error}", path.display());
    let exception = named(py, "StorageError", text);
    let system = System {
        errno: error.raw_os_error(),
        path: Some(path.to_owned()),
    };
    about(py, &exception, &system);
    exception
}

fn device_class(error: &DeviceError) -> &'static str {
    match error {
        DeviceError::OutOfMemory { .. } => "NoRoomError",
        DeviceError::Invalid(_) => "ArgumentError",
        _ => "DeviceError",
    }
}

fn stored(py: Python<'_>, error: &StoreError, text: String) -> PyErr {
    match error {
        StoreError::Damaged { .. } | StoreError::Lost { .. } | StoreError::NoVersion { .. } => {
            named(py, "DamagedError", text)
        }
        StoreError::Argument(_) | StoreError::Exists { .. } => argument(py, text),
        _ => named(py, "StorageError", text),
    }
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
