//! Python's values of options, converted to the values of `tierflow-bind`.

use std::path::PathBuf;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString, PyTuple};
use tierflow_bind::{
    Failure, Kind as OptionKind, OPTIONS, OptionInfo, Options, Pool, Value, parse,
};

use crate::errors::{Answer, Raised};
use crate::pool::HostPool;

/// Returns the options that keywords of `Engine` choose, over those of the machine's file.
///
/// # Errors
/// `TypeError` if no option has a keyword's name, or a value has another type; `ArgumentError` if a value is wrong, or `redundancy` has no
/// way between the ranks; the errors of the machine's file, and of [`tell`](crate::group::tell).
pub(crate) fn of_keywords(given: Option<&Bound<'_, PyDict>>) -> Answer<Options> {
    let mut options = Options::of_site(|_| true)?;
    let mut group = None;
    for (key, value) in given.into_iter().flatten() {
        let key: String = key.extract()?;
        if key == "group" {
            group = Some(value).filter(|value| !value.is_none());
        } else if key == "retention" || OPTIONS.iter().any(|option| option.key == key) {
            choose(&mut options, &key, &value).map_err(|error| of_option(&key, error))?;
        } else {
            let text = format!("Engine.__new__() got an unexpected keyword argument '{key}'");
            return Err(PyTypeError::new_err(text).into());
        }
    }
    if let Some(group) = group {
        crate::group::tell(&group, &mut options)?;
    }
    let passes = options.exchange.is_some() || options.ranks.transport.is_some();
    if options.redundancy.is_some() && !passes {
        let text = "redundancy passes between ranks: give group=, such as mpi4py.MPI.COMM_WORLD, or exchange=, a directory that all \
                    nodes see";
        return Err(Failure::argument(text).into());
    }
    Ok(options)
}

/// Puts the option's name before the text of an error that its value caused.
fn of_option(key: &str, error: Raised) -> Raised {
    Python::attach(|py| {
        let error = PyErr::from(error);
        let said = error.value(py).to_string();
        let named = format!("{key}: {said}");
        match () {
            () if said.starts_with(key) => error.into(),
            () if error.is_instance_of::<PyOverflowError>(py) => Failure::argument(named).into(),
            () => match error.get_type(py).call1((named,)) {
                Ok(named) => PyErr::from_value(named).into(),
                Err(_) => error.into(),
            },
        }
    })
}

/// Sets an option to a caller's value. A value of `tierflow/_options.py` sets all options that it stands for. None sets nothing.
fn choose(options: &mut Options, key: &str, given: &Bound<'_, PyAny>) -> Answer {
    if given.is_none() {
        return Ok(());
    }
    if let Some(several) = given.getattr_opt(intern!(given.py(), "options"))?
        && ["redundancy", "retention"].contains(&key)
    {
        for (key, value) in several.call0()?.cast::<PyDict>().map_err(PyErr::from)? {
            choose(options, &key.extract::<String>()?, &value)?;
        }
        return Ok(());
    }
    let key = if key == "retention" {
        "keep_newest"
    } else {
        key
    };
    match given.cast::<HostPool>() {
        Ok(pool) if key == "host_pool" => {
            options.host_pool = Some(Pool::Given(pool.get().pool.clone()));
        }
        _ => {
            for option in OPTIONS.iter().filter(|option| option.key == key) {
                set(options, option, given)?;
            }
        }
    }
    Ok(())
}

/// Sets an option to a caller's value, converted to the kind of the option.
fn set(options: &mut Options, option: &OptionInfo, given: &Bound<'_, PyAny>) -> Answer {
    let py = given.py();
    let text;
    let value = match option.kind {
        OptionKind::Bytes => Value::Number(given.extract::<Bytes>()?.0),
        OptionKind::Number => Value::Number(given.extract()?),
        OptionKind::Seconds => Value::Seconds(given.extract()?),
        OptionKind::Flag => Value::Flag(given.extract()?),
        OptionKind::Path => Value::Paths(vec![given.extract()?]),
        OptionKind::Paths => Value::Paths(directories(given)?),
        OptionKind::Name(_) if option.key == "device" => {
            text = match given.is_instance_of::<PyInt>() {
                true => format!("cuda:{}", given.extract::<usize>()?),
                // The text of a framework's device is such a name, too.
                false => given.str()?.to_string_lossy().into_owned(),
            };
            Value::Text(&text)
        }
        OptionKind::Name(_) => {
            text = given.extract()?;
            if option.key == "compress" && text.contains("nvcomp-") {
                // The engine finds the loaded library by its name. Without the package, the system may have the library.
                let _ = py
                    .import("nvidia.libnvcomp")
                    .and_then(|package| package.call_method0("load_library"));
            }
            Value::Text(&text)
        }
    };
    Ok(options.set(option.key, value).unwrap_or(Ok(()))?)
}

/// Converts a directory, or a list or tuple of directories.
fn directories(given: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    match given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        true => given.extract(),
        false => Ok(vec![given.extract()?]),
    }
}

/// A number of bytes that a caller gave as an int, or as a text such as "4GiB".
pub(crate) struct Bytes(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = Raised;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> Answer<Self> {
        let wrong = |what: &str| {
            Failure::argument(format!(
                "{what} is no number of bytes: write one, or a text such as \"512 MiB\" or \"4GiB\""
            ))
        };
        if let Ok(text) = given.cast::<PyString>() {
            let text = text.to_string_lossy();
            let read = parse::bytes(&text).map_err(|_| wrong(&format!("{text:?}")));
            return Ok(Self(read?));
        }
        if !given.hasattr("__index__")? {
            let kind = given.get_type().name()?;
            let text = "a number of bytes is an int or a text such as \"4GiB\", and this is a";
            return Err(PyTypeError::new_err(format!("{text} {kind}")).into());
        }
        let number = given.extract().map_err(|_| wrong(&given.to_string()));
        Ok(Self(number?))
    }
}

/// Returns the number of bytes that an int, or a text such as "4GiB", stands for.
#[pyfunction]
pub(crate) fn number_of_bytes(given: Bytes) -> u64 {
    given.0
}
