//! What callers write, as the engine takes it.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString, PyTuple};
use tierflow_device::Choice;
use tierflow_engine::{
    AfterRestore, BadCompression, Compression, EngineBuilder, Flush, ScratchTier, Tier,
};

use crate::errors;

/// What a caller may leave out.
pub(crate) trait With: Sized {
    /// Sets what was given.
    fn with<T>(self, given: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match given {
            Some(given) => set(self, given),
            None => self,
        }
    }
}

impl With for EngineBuilder {}

/// A directory, or several.
pub(crate) enum Directories {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

impl Directories {
    /// A tier of scratch files there.
    pub(crate) fn scratch(self) -> ScratchTier {
        match self {
            Self::One(directory) => Tier::scratch(directory),
            Self::Several(directories) => Tier::scratch_over(directories),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Directories {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match given.extract() {
            Ok(directory) => Ok(Self::One(directory)),
            Err(_) if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() => {
                Ok(Self::Several(given.extract()?))
            }
            Err(error) => Err(error),
        }
    }
}

/// Bytes: a number, or a text such as "4GiB".
pub(crate) struct Bytes(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let wrong = |what: &str| {
            errors::argument(
                py,
                format!(
                    "{what} is no number of bytes: write one, or a text such as \"512 MiB\" or \"4GiB\""
                ),
            )
        };
        if let Ok(text) = given.cast::<PyString>() {
            let text = text.to_string_lossy();
            return bytes(&text)
                .map(Self)
                .ok_or_else(|| wrong(&format!("{text:?}")));
        }
        if !given.hasattr("__index__")? {
            let kind = given.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "a number of bytes is an int or a text such as \"4GiB\", and this is a {kind}"
            )));
        }
        let number = given.extract::<u64>().map(Self);
        number.map_err(|_| wrong(&given.to_string()))
    }
}

/// # Errors
/// `ArgumentError` for a text that does not say how to compress.
pub(crate) fn compression(py: Python<'_>, text: &str) -> PyResult<Compression> {
    if text.contains("nvcomp-") {
        // What this loads, the engine finds by its name. Where there is no such package, the system may have the library.
        let _ = py
            .import("nvidia.libnvcomp")
            .and_then(|package| package.call_method0("load_library"));
    }
    let how: Result<_, BadCompression> = text.parse();
    how.map_err(|bad| errors::argument(py, format!("compress={text:?}: {bad}")))
}

/// What a number of bytes, or a text such as "4GiB", says.
#[pyfunction]
pub(crate) fn number_of_bytes(given: Bytes) -> u64 {
    given.0
}

impl Bytes {
    pub(crate) fn to_usize(&self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().replace('_', "");
    let ByteSize(bytes) = text.parse().ok()?;
    // More than there can be is read as the most.
    (bytes < u64::MAX).then_some(bytes)
}

/// "auto", "host", "cuda", "cuda:1", the GPU's number, or a framework's device that is called so.
pub(crate) fn choice(device: Option<&Bound<'_, PyAny>>) -> PyResult<Choice> {
    let Some(device) = device else {
        return Ok(Choice::Auto);
    };
    if device.is_instance_of::<PyInt>() {
        let ordinal = device.extract()?;
        return Ok(Choice::Cuda { ordinal });
    }
    let text = device.str()?.to_string_lossy().into_owned();
    let chosen = match text.as_str() {
        "auto" => Some(Choice::Auto),
        "host" | "cpu" => Some(Choice::Host),
        "cuda" => Some(Choice::Cuda { ordinal: 0 }),
        other => other
            .strip_prefix("cuda:")
            .and_then(|number| number.parse().ok())
            .map(|ordinal| Choice::Cuda { ordinal }),
    };
    chosen.ok_or_else(|| {
        errors::argument(
            device.py(),
            format!("{text:?} is no device: write \"auto\", \"host\", \"cuda\" or \"cuda:1\""),
        )
    })
}

pub(crate) fn after_restore(py: Python<'_>, name: &str) -> PyResult<AfterRestore> {
    match name {
        "keep" => Ok(AfterRestore::Keep),
        "discard" => Ok(AfterRestore::Discard),
        other => Err(errors::argument(
            py,
            format!("after_restore is \"keep\" or \"discard\", not {other:?}"),
        )),
    }
}

pub(crate) fn flush(py: Python<'_>, name: &str) -> PyResult<Flush> {
    match name {
        "eager" => Ok(Flush::Eager),
        "needed" => Ok(Flush::Needed),
        other => Err(errors::argument(
            py,
            format!("flush is \"eager\" or \"needed\", not {other:?}"),
        )),
    }
}

/// Seconds. None is for ever, as is infinity; what is negative is over at once.
pub(crate) fn duration(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None | Some(f64::INFINITY) => Ok(None),
        Some(seconds) if seconds.is_nan() => Err(errors::argument(
            py,
            "a time is a number of seconds, not nan".to_owned(),
        )),
        Some(seconds) => {
            let most = Duration::from_secs(u64::from(u32::MAX));
            let given = Duration::try_from_secs_f64(seconds.max(0.0));
            Ok(Some(given.unwrap_or(most)))
        }
    }
}

/// Which versions stay, of those that outlive the engine: the newest so many, every so many-th, and those younger than so many
/// seconds.
#[pyclass(frozen, from_py_object, module = "tierflow")]
#[derive(Clone, Debug)]
pub(crate) struct Retention {
    #[pyo3(get)]
    newest: usize,
    #[pyo3(get)]
    every: Option<u64>,
    #[pyo3(get)]
    younger_than: Option<f64>,
}

#[pymethods]
impl Retention {
    #[new]
    #[pyo3(signature = (newest = 1, *, every = None, younger_than = None))]
    fn new(newest: usize, every: Option<u64>, younger_than: Option<f64>) -> Self {
        Self {
            newest,
            every,
            younger_than,
        }
    }

    fn __repr__(&self) -> String {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "None".to_owned());
        format!(
            "tierflow.Retention({}, every={}, younger_than={})",
            self.newest,
            or_none(self.every.map(|every| every.to_string())),
            or_none(self.younger_than.map(|age| age.to_string())),
        )
    }
}

impl Retention {
    pub(crate) fn rules(&self, py: Python<'_>) -> PyResult<tierflow_engine::Retention> {
        let mut rules = tierflow_engine::Retention::newest(self.newest);
        if let Some(every) = self.every {
            rules = rules.and_every(every);
        }
        if let Some(age) = duration(py, self.younger_than)? {
            rules = rules.and_younger_than(age);
        }
        Ok(rules)
    }
}
