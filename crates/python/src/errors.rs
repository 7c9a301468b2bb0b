//! Failures as Python's exceptions, sorted by the caller's next step. The classes are in `tierflow/_errors.py`.

use std::ffi::CString;

use pyo3::exceptions::{PyException, PyOSError, PyOverflowError, PyResourceWarning};
use pyo3::prelude::*;
use tierflow_bind::{Failure, Status, System};
use tierflow_device::Error as DeviceError;
use tierflow_engine::{Error, Version};
use tierflow_store::Error as StoreError;

use crate::patience::keep_interrupt;

/// The result of a fallible call in Python. The operator `?` converts failures to exceptions.
pub(crate) type Answer<T = ()> = Result<T, Raised>;

/// An exception on its way to Python.
#[derive(Debug)]
pub(crate) struct Raised(PyErr);

impl Raised {
    /// Makes an exception of a class of `tierflow/_errors.py` from a failure.
    fn of(class: &str, failure: &Failure) -> Self {
        Python::attach(|py| {
            let found = py
                .import("tierflow._errors")
                .and_then(|module| module.getattr(class));
            match found.and_then(|class| class.call1((&failure.text,))) {
                Ok(exception) => Self(about(py, PyErr::from_value(exception), &failure.system)),
                // The interpreter is ending, or the package is incomplete.
                Err(error) => Self(error),
            }
        })
    }

    /// Makes an `ArrayError`: the engine cannot use an array.
    pub(crate) fn array(text: String) -> Self {
        Self::of("ArrayError", &Failure::argument(text))
    }

    /// Sets the exception that caused this one.
    pub(crate) fn because(self, py: Python<'_>, cause: PyErr) -> Self {
        self.0.set_cause(py, Some(cause));
        self
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Raised> for PyErr {
    fn from(Raised(error): Raised) -> Self {
        error
    }
}

impl From<Failure> for Raised {
    fn from(failure: Failure) -> Self {
        let class = match failure.status {
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
        };
        Self::of(class, &failure)
    }
}

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        match error {
            // The engine holds the version, and its bytes are gone: the caller's next step is to try an older one.
            Error::Storage(error @ StoreError::NoVersion { .. }) => {
                Self::of("DamagedError", &error.into())
            }
            Error::Storage(error) => error.into(),
            Error::Device(error) => error.into(),
            Error::OtherProcess { .. } => Self::of("ForkedError", &error.into()),
            error => Failure::from(error).into(),
        }
    }
}

impl From<DeviceError> for Raised {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Unavailable(_) => Self::of("DeviceError", &error.into()),
            error => Failure::from(error).into(),
        }
    }
}

impl From<StoreError> for Raised {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Absent { .. } | StoreError::Unprotected(_) => {
                Self::of("StorageError", &error.into())
            }
            error => Failure::from(error).into(),
        }
    }
}

/// Sets the attributes `errno`, `strerror` and `filename` of an `OSError`. Other exceptions have no such attributes.
fn about(py: Python<'_>, exception: PyErr, system: &System) -> PyErr {
    if !exception.is_instance_of::<PyOSError>(py) {
        return exception;
    }
    let value = exception.value(py);
    // The text has the whole story, so a failure to set an attribute is ignored.
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

/// Warns of a loss. If the program turns warnings into errors, the error goes to `sys.unraisablehook`, as no caller can catch it. An exception
/// that ends programs is kept: see [`keep_interrupt`].
pub(crate) fn warn(py: Python<'_>, failure: &Failure) {
    let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
    let category = py.get_type::<PyResourceWarning>();
    if let Err(error) = PyErr::warn(py, &category, &text, 1) {
        match error.is_instance_of::<PyException>(py) {
            true => error.write_unraisable(py, None),
            false => keep_interrupt(py, error),
        }
    }
}

/// The number of a version that a caller gave.
pub(crate) struct Number(pub(crate) Version);

impl<'py> FromPyObject<'_, 'py> for Number {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Answer<Self> {
        match given.extract() {
            Err(error) if !error.is_instance_of::<PyOverflowError>(given.py()) => Err(error.into()),
            // No number would be left above the largest one for the next version.
            Err(_) | Ok(Version::MAX) => {
                let text = "is no version: versions are whole numbers from 0 to 2^64 - 2";
                Err(Failure::argument(format!("{} {text}", &*given)).into())
            }
            Ok(version) => Ok(Self(version)),
        }
    }
}
