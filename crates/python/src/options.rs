//! What callers write, as the engine takes it.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString, PyTuple};
use tierflow_bind::{Kind as OptionKind, OPTIONS, OptionInfo, Options, Pool, Value, parse};

use crate::errors::{self, OrRaise};
use crate::group::Redundancy;
use crate::pool::HostPool;

/// The options that keywords of `Engine` choose.
///
/// # Errors
/// `TypeError` for keywords that there are not, and for values of other types; `ArgumentError` for values that will not do.
pub(crate) fn of_keywords(py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::default();
    let mut group = None;
    for (key, value) in given.into_iter().flatten() {
        let key: String = key.extract()?;
        let known = OPTIONS.iter().find(|option| option.key == key);
        match (&*key, known) {
            ("group" | "retention", _) | (_, Some(_)) if value.is_none() => {}
            ("group", _) => group = Some(value),
            ("retention", _) => match value.extract::<usize>() {
                Ok(newest) => options.newest = Some(newest),
                Err(_) => value.cast::<Retention>()?.get().tell(py, &mut options)?,
            },
            ("host_pool", _) if value.is_instance_of::<HostPool>() => {
                let pool = value.cast::<HostPool>()?.get().pool.clone();
                options.host_pool = Some(Pool::Given(pool));
            }
            ("redundancy", _) if value.is_instance_of::<Redundancy>() => {
                value.cast::<Redundancy>()?.get().tell(&mut options);
            }
            (_, Some(option)) => {
                set(&mut options, option, &value).map_err(|error| of_option(py, &key, error))?;
            }
            (key, None) => {
                let text = format!("Engine.__new__() got an unexpected keyword argument '{key}'");
                return Err(PyTypeError::new_err(text));
            }
        }
    }
    if let Some(group) = group {
        crate::group::tell(&group, &mut options)?;
    }
    let passes = options.exchange.is_some() || options.ranks.transport.is_some();
    if options.redundancy.is_some() && !passes {
        let text = "redundancy passes between ranks: give group=, such as mpi4py.MPI.COMM_WORLD, or exchange=, a directory that all \
                    nodes see";
        return Err(errors::argument(py, text.to_owned()));
    }
    Ok(options)
}

/// The error of a value that cannot be read, with the option's name.
fn of_option(py: Python<'_>, key: &str, error: PyErr) -> PyErr {
    let said = error.value(py).to_string();
    match () {
        () if said.starts_with(key) => error,
        () if error.is_instance_of::<PyOverflowError>(py) => {
            errors::argument(py, format!("{key}: {said}"))
        }
        () => match error.get_type(py).call1((format!("{key}: {said}"),)) {
            Ok(named) => PyErr::from_value(named),
            Err(_) => error,
        },
    }
}

/// Sets an option to what a caller wrote.
fn set(options: &mut Options, option: &OptionInfo, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = given.py();
    let text;
    let value = match option.kind {
        OptionKind::Bytes => Value::Number(given.extract::<Bytes>()?.0),
        OptionKind::Number => Value::Number(given.extract()?),
        OptionKind::Seconds => Value::Seconds(given.extract()?),
        OptionKind::Flag => Value::Flag(given.extract()?),
        OptionKind::Path => Value::Paths(vec![given.extract()?]),
        OptionKind::Paths => Value::Paths(given.extract::<Directories>()?.0),
        OptionKind::Name(_) if option.key == "device" => {
            text = match given.is_instance_of::<PyInt>() {
                true => format!("cuda:{}", given.extract::<usize>()?),
                // A framework's device is called so.
                false => given.str()?.to_string_lossy().into_owned(),
            };
            Value::Text(&text)
        }
        OptionKind::Name(_) => {
            text = given.extract()?;
            if option.key == "compress" && text.contains("nvcomp-") {
                // What this loads, the engine finds by its name. Where there is no such package, the system may have the library.
                let _ = py
                    .import("nvidia.libnvcomp")
                    .and_then(|package| package.call_method0("load_library"));
            }
            Value::Text(&text)
        }
    };
    let set = options.set(option.key, value).unwrap_or(Ok(()));
    set.or_raise(py)
}

/// A directory, or several.
struct Directories(Vec<PathBuf>);

impl<'py> FromPyObject<'_, 'py> for Directories {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match given.extract() {
            Ok(directory) => Ok(Self(vec![directory])),
            Err(_) if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() => {
                Ok(Self(given.extract()?))
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
            let read = parse::bytes(&text).map(Self);
            return read.map_err(|_| wrong(&format!("{text:?}")));
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

/// Seconds. None is for ever, as is infinity; what is negative is over at once.
pub(crate) fn duration(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None | Some(f64::INFINITY) => Ok(None),
        Some(seconds) => {
            let wrong = || "a time is a number of seconds, not nan".to_owned();
            let time = parse::patience(seconds);
            time.map(Some).ok_or_else(|| errors::argument(py, wrong()))
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
    fn tell(&self, py: Python<'_>, options: &mut Options) -> PyResult<()> {
        options.newest = Some(self.newest);
        options.every = self.every;
        options.younger_than = duration(py, self.younger_than)?;
        Ok(())
    }
}
