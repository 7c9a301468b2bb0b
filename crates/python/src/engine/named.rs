//! Names and types of regions: of a checkpoint's arrays, and of arrays to restore to.

use std::collections::HashMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};
use tierflow_bind::Failure;
use tierflow_engine::{Region, RegionInfo, Version};

use super::Engine;
use crate::array::{Arrays, Use};
use crate::dtype::ArrayType;
use crate::errors::Answer;
use crate::order;
use crate::patience::Timeout;

/// The engine's name for the only region of a checkpoint without names.
const UNNAMED: &str = "checkpoint";

/// Arrays without names that become a region each, at most. More arrays are stored as one run of bytes: a region takes up to 4 KiB
/// in a file besides its bytes.
const MOST_UNNAMED: usize = 64;

/// Returns the names and the arrays of a mapping, in its order.
///
/// # Errors
/// `TypeError` if `given` is no mapping, or if a key is no text.
pub(crate) fn parts<'py>(
    given: &Bound<'py, PyAny>,
) -> PyResult<(Vec<String>, Bound<'py, PyTuple>)> {
    let Ok(given) = given.cast::<PyMapping>() else {
        let kind = given.get_type().fully_qualified_name()?;
        let text = format!("regions is a {kind}: pass a dict of names and arrays");
        return Err(PyTypeError::new_err(text));
    };
    let names = given.keys()?.iter().map(|name| name.extract());
    let names = names.collect::<PyResult<_>>()?;
    Ok((names, given.values()?.to_tuple()))
}

/// Returns the names that a caller gave the arrays of a call; `None` if it gave none.
///
/// # Errors
/// `TypeError` if `given` is no sequence of texts, or is a single text.
pub(super) fn names_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<String>>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let is_text = given.is_instance_of::<PyString>();
    let names = given.extract().ok().filter(|_| !is_text);
    names.map(Some).ok_or_else(|| {
        let repr = given.repr().map(|repr| repr.to_string());
        let repr = repr.as_deref().unwrap_or("that");
        PyTypeError::new_err(format!(
            "names={repr} is no list of texts: pass one name for each array, as names=[\"weights\", \"bias\"]"
        ))
    })
}

/// The names and types of the arrays of a checkpoint. Without names, the regions are stored as one run of bytes.
pub(super) struct Checkpointed {
    names: Vec<String>,
    types: Vec<Option<ArrayType>>,
}

impl Checkpointed {
    /// Names the arrays: as `names` says, or by their places if there are at most [`MOST_UNNAMED`].
    ///
    /// # Errors
    /// `ArgumentError` if the numbers of names and arrays differ, or the names are those of arrays without names.
    pub(super) fn new(given: &Arrays, names: Option<Vec<String>>) -> Answer<Self> {
        let types: Vec<_> = given.types().map(Option::<&ArrayType>::cloned).collect();
        let names = match names {
            Some(names) if names.len() != types.len() => {
                let (names, arrays) = (names.len(), types.len());
                let text = format!("there are {names} names for {arrays} arrays: each has its own");
                return Err(Failure::argument(text).into());
            }
            Some(names) if !names.is_empty() && are_unnamed(names.iter().map(String::as_str)) => {
                return Err(Failure::argument(format!(
                    "names={names:?} are the names of arrays without names, which restore returns without them: choose others, or leave \
                     names out"
                ))
                .into());
            }
            Some(names) => names,
            None if types.len() > MOST_UNNAMED => Vec::new(),
            None if types.len() == 1 => vec![UNNAMED.to_owned()],
            None => (0..types.len()).map(unnamed).collect(),
        };
        Ok(Self { names, types })
    }

    /// Gives each region its name and its type, if regions have names.
    pub(super) fn regions<'a>(&'a self, regions: Vec<Region<'a>>) -> Vec<Region<'a>> {
        if self.names.is_empty() {
            return regions;
        }
        let of = regions.into_iter().zip(&self.names).zip(&self.types);
        of.map(|((region, name), array)| match array {
            Some(array) => region.array(name, array.element(), array.shape()),
            None => region.named(name),
        })
        .collect()
    }
}

/// Returns the name of an array without a name, by its place among several.
fn unnamed(index: usize) -> String {
    format!("region-{index}")
}

/// Returns true if the arrays of a checkpoint with these names had no names.
fn are_unnamed<'a>(names: impl Iterator<Item = &'a str> + Clone) -> bool {
    let is_alone = names.clone().eq([UNNAMED]);
    is_alone
        || names
            .enumerate()
            .all(|(index, name)| name == unnamed(index))
}

/// Checks that each array has the type that the region of its name was checkpointed as. A flat array of bytes matches every type. A
/// region of an unknown type matches every array. The engine compares lengths, and finds names that no region has.
///
/// # Errors
/// `ArgumentError` if an element type or a shape differs.
pub(super) fn agree(
    version: Version,
    layout: &[RegionInfo],
    (names, given): (&[String], &Arrays),
) -> Answer {
    let known: HashMap<&str, &RegionInfo> = layout
        .iter()
        .map(|info| (info.name.as_str(), info))
        .collect();
    for (name, array) in names.iter().zip(given.types()) {
        let held = known.get(name.as_str());
        let held = held.and_then(|info| ArrayType::of_region(info));
        let Some(held) = held.filter(|held| !held.is_flat_bytes()) else {
            continue;
        };
        if array.is_some_and(|array| held == *array || array.is_flat_bytes()) {
            continue;
        }
        let array = array.map_or_else(
            || "of a type that files do not have, such as another byte order".to_owned(),
            ToString::to_string,
        );
        return Err(Failure::argument(format!(
            "region {name:?} of version {version} was checkpointed as {held}, and the array for it is {array}: pass \
             one of that type and shape, such as restore({version}) makes, or bytes, such as bytearray(n)"
        ))
        .into());
    }
    Ok(())
}

/// Makes a new NumPy array for a region.
fn empty<'py>(py: Python<'py>, info: &RegionInfo) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let empty = |shape: &[u64], dtype: Bound<'py, PyAny>| {
        let shape = PyTuple::new(py, shape)?;
        numpy.call_method1("empty", (shape, dtype))
    };
    let Some(array) = ArrayType::of_region(info) else {
        let bytes = PyString::new(py, "uint8").into_any();
        return empty(&[info.length], bytes);
    };
    let name = array.dtype().name;
    let dtype = match array.dtype().typestr {
        Some(_) => PyString::new(py, name).into_any(),
        // NumPy has no such type: `ml_dtypes` has it; without that, the elements are opaque bytes.
        None => match py.import("ml_dtypes") {
            Ok(types) => types.getattr(name)?,
            Err(_) => PyString::new(py, array.element().numpy()).into_any(),
        },
    };
    empty(array.shape(), dtype)
}

/// Name, element type, shape and number of bytes of a region. A region without a type is plain bytes.
pub(crate) type Described = (String, Option<&'static str>, Vec<u64>, u64);

/// Describes each region of a layout.
pub(crate) fn described(layout: &[RegionInfo]) -> Vec<Described> {
    let of = |info: &RegionInfo| {
        let array = ArrayType::of_region(info);
        let (dtype, shape) = match &array {
            Some(array) => (Some(array.dtype().name), array.shape().to_vec()),
            None => (None, vec![info.length]),
        };
        (info.name.clone(), dtype, shape, info.length)
    };
    layout.iter().map(of).collect()
}

impl Engine {
    /// Restores a version into new NumPy arrays of the types and shapes that were checkpointed.
    pub(super) fn restore_new<'py>(
        &self,
        py: Python<'py>,
        version: Version,
        stream: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> Answer<Bound<'py, PyAny>> {
        let core = self.core()?;
        let layout = py.detach(|| core.engine.regions(version))?;
        let arrays = layout.iter().map(|info| empty(py, info));
        let arrays = PyTuple::new(py, arrays.collect::<PyResult<Vec<_>>>()?)?;
        self.restore_into(py, version, &arrays, stream, timeout)?;
        if are_unnamed(layout.iter().map(|info| info.name.as_str())) {
            return match layout.as_slice() {
                [info] if info.name == UNNAMED => Ok(arrays.get_item(0)?),
                _ => Ok(PyList::new(py, &arrays)?.into_any()),
            };
        }
        let named = PyDict::new(py);
        for (info, array) in layout.iter().zip(&arrays) {
            named.set_item(&info.name, array)?;
        }
        Ok(named.into_any())
    }

    pub(super) fn restore_into(
        &self,
        py: Python<'_>,
        version: Version,
        arrays: &Bound<'_, PyTuple>,
        stream: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> Answer {
        let patience = Timeout::new(timeout)?;
        let core = self.core()?;
        let mut order = order::behind(&core.streams, stream)?;
        let mut given = Arrays::of(arrays, Use::Write, &mut order)?;
        let mut regions = given.regions_mut();
        let stream = order.stream();
        patience.spend(py, |until| {
            let call = until.of(&core.engine).on(stream);
            call.restore(version, &mut regions)
        })
    }
}
