//! Takes trees of arrays and plain values apart for a checkpoint. `tierflow/_tree.py` describes the form, and handles rare values.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyType};

use crate::ffi::exchange::Api;

/// Dimensions of a region at most.
const MOST_DIMENSIONS: usize = 8;

/// Element types that are remembered at most.
const MOST_ELEMENTS: usize = 32;

/// Nested branches of a tree at most: readers of JSON go no deeper, and a thread's stack is limited.
const MOST_LEVELS: usize = 200;

/// The arrays of a tree by their names, the structure in JSON, and true if the arrays' types let an engine take them in as they are.
type Flattened<'py> = (Bound<'py, PyDict>, String, bool);

/// Takes a tree apart. With `pickled`, a value that the structure has no kind for is pickled.
#[pyfunction]
pub(crate) fn flatten<'py>(tree: &Bound<'py, PyAny>, pickled: bool) -> PyResult<Flattened<'py>> {
    let py = tree.py();
    let mut flattening = Flattening {
        arrays: PyDict::new(py),
        text: String::new(),
        is_plain: true,
        pickled,
        way: String::new(),
        open: Vec::new(),
        frameworks: Vec::new(),
        elements: Vec::new(),
        rare: py.import("tierflow._tree")?,
    };
    flattening.node(tree)?;
    Ok((flattening.arrays, flattening.text, flattening.is_plain))
}

/// Returns the addresses, devices, element types, extents and strides of tensors as one run of bytes. Lists that differ in one of these
/// never return the same bytes. The bytes do not tell if PyTorch has deferred a conjugation. Returns `None` if the tensors' framework has no
/// C exchange API.
#[pyfunction]
pub(crate) fn descriptors<'py>(tensors: &Bound<'py, PyList>) -> Option<Bound<'py, PyBytes>> {
    let mut numbers = Vec::with_capacity(8 * tensors.len());
    for tensor in tensors {
        if !Api::of(&tensor)?.append_descriptor(&tensor, &mut numbers) {
            return None;
        }
    }
    let bytes: Vec<u8> = numbers.into_iter().flat_map(i64::to_ne_bytes).collect();
    Some(PyBytes::new(tensors.py(), &bytes))
}

/// The kind of a branch in JSON.
enum Branch<'a> {
    List,
    Tuple,
    Dict,
    /// A branch with fields: its kind, a dataclass or a named tuple, and its class.
    Fields(&'a str, &'a str),
}

struct Flattening<'py> {
    arrays: Bound<'py, PyDict>,
    text: String,
    is_plain: bool,
    pickled: bool,
    /// The way from the root to the current value: names with slashes between them.
    way: String,
    /// The branches on the way, from the root.
    open: Vec<Bound<'py, PyAny>>,
    /// Types that were seen, each with its framework if its values are arrays.
    frameworks: Vec<(Bound<'py, PyType>, Option<String>)>,
    /// Element types that were seen, each with two flags: regions can have it; it is in the machine's byte order.
    elements: Vec<(Bound<'py, PyAny>, (bool, bool))>,
    /// The module `tierflow._tree`, which handles rare values.
    rare: Bound<'py, PyModule>,
}

impl<'py> Flattening<'py> {
    fn node(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        if self.plain(value)? {
            return Ok(());
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            return self.branch(value, &Branch::Dict, &dict.keys(), &dict.values());
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            let copy = list.as_sequence().to_list()?;
            return self.branch(value, &Branch::List, &copy, &copy);
        }
        let framework = self.framework(value)?;
        if let Some(index) = framework
            && self.array(value, index)?
        {
            return Ok(());
        }
        let found = self.rare.call_method1(
            intern!(value.py(), "rare"),
            (value, &self.way, self.pickled, framework.is_some()),
        )?;
        if let Ok(text) = found.cast::<PyString>() {
            self.text.push_str(text.to_str()?);
            return Ok(());
        }
        let (kind, class, keys, values): (String, String, Bound<'py, PyList>, Bound<'py, PyList>) =
            found.extract()?;
        let branch = match &*kind {
            "list" => Branch::List,
            "tuple" => Branch::Tuple,
            "dict" => Branch::Dict,
            kind => Branch::Fields(kind, &class),
        };
        self.branch(value, &branch, &keys, &values)
    }

    /// Writes a value that JSON has, too. Returns false for any other value.
    fn plain(&mut self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        if value.is_none() {
            self.text.push_str("null");
        } else if let Ok(text) = value.cast_exact::<PyString>() {
            match text.to_str() {
                Ok(text) => quoted(&mut self.text, text),
                // The text has half of a character (a lone surrogate).
                Err(_) => return Ok(false),
            }
        } else if let Ok(is_true) = value.cast_exact::<PyBool>() {
            let is_true = is_true.is_true();
            self.text.push_str(if is_true { "true" } else { "false" });
        } else if value.is_exact_instance_of::<PyInt>() {
            self.text.push_str(value.str()?.to_str()?);
        } else if let Ok(number) = value.cast_exact::<PyFloat>()
            && number.value().is_finite()
        {
            self.text.push_str(value.repr()?.to_str()?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns the index in `frameworks` of an array's framework; `None` for a value that is no array.
    fn framework(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Option<usize>> {
        let kind = value.get_type();
        let known = self
            .frameworks
            .iter()
            .position(|(known, _)| known.is(&kind));
        let index = match known {
            Some(index) => index,
            None => {
                let found = self
                    .rare
                    .call_method1(intern!(value.py(), "framework"), (value,))?;
                self.frameworks.push((kind, found.extract()?));
                self.frameworks.len() - 1
            }
        };
        Ok(self.frameworks[index].1.is_some().then_some(index))
    }

    /// Writes an array. Returns false if no region can have its elements or its dimensions.
    fn array(&mut self, array: &Bound<'py, PyAny>, framework: usize) -> PyResult<bool> {
        let py = array.py();
        let element = array.getattr(intern!(py, "dtype"))?;
        let known = self.elements.iter().find(|(known, _)| known.is(&element));
        let (has, is_native) = match known {
            Some((_, known)) => *known,
            None => {
                let found = self
                    .rare
                    .call_method1(intern!(py, "element_of"), (array,))?;
                let found = found.extract()?;
                // Some frameworks make a new `dtype` object for each array.
                if self.elements.len() < MOST_ELEMENTS {
                    self.elements.push((element, found));
                }
                found
            }
        };
        if !has || array.getattr(intern!(py, "ndim"))?.extract::<usize>()? > MOST_DIMENSIONS {
            return Ok(false);
        }
        // A root has no name, and the keys 0 and "0" have the same name. `~2` makes a new one: keys bring only `~0` and `~1`.
        let mut name = match &*self.way {
            "" => "~2".to_owned(),
            way => way.to_owned(),
        };
        while self.arrays.contains(&name)? {
            name.push_str("~2");
        }
        let of = self.frameworks[framework].1.as_deref().unwrap_or_default();
        self.text.push_str("{\"array\":");
        quoted(&mut self.text, &name);
        self.text.push_str(",\"of\":\"");
        self.text.push_str(of);
        self.text.push_str("\"}");
        self.is_plain &= is_native && of != "scalar";
        self.arrays.set_item(name, array)?;
        Ok(true)
    }

    fn branch(
        &mut self,
        value: &Bound<'py, PyAny>,
        branch: &Branch<'_>,
        keys: &Bound<'py, PyList>,
        values: &Bound<'py, PyList>,
    ) -> PyResult<()> {
        let is_open = self.open.iter().any(|open| open.is(value));
        if is_open || self.open.len() == MOST_LEVELS {
            return self.refuse("endless", is_open.into_pyobject(value.py())?.as_any());
        }
        self.open.push(value.clone());
        let end = match branch {
            Branch::List => {
                self.text.push('[');
                "]"
            }
            Branch::Tuple => {
                self.text.push_str("{\"tuple\":[");
                "]}"
            }
            Branch::Dict => {
                self.text.push_str("{\"dict\":[");
                "]}"
            }
            Branch::Fields(kind, class) => {
                self.text.push('{');
                quoted(&mut self.text, kind);
                self.text.push(':');
                quoted(&mut self.text, class);
                self.text.push_str(",\"fields\":[");
                "]}"
            }
        };
        let has_keys = !matches!(branch, Branch::List | Branch::Tuple);
        let here = self.way.len();
        for (index, (key, value)) in keys.iter().zip(values).enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            if here > 0 {
                self.way.push('/');
            }
            if has_keys {
                self.text.push('[');
                if !self.plain(&key)? {
                    self.way.truncate(here);
                    return self.refuse("no_key", &key);
                }
                self.text.push(',');
                self.step(&key)?;
            } else {
                self.way.push_str(&index.to_string());
            }
            self.node(&value)?;
            self.way.truncate(here);
            if has_keys {
                self.text.push(']');
            }
        }
        self.text.push_str(end);
        self.open.pop();
        Ok(())
    }

    /// Appends a key to the way, with `~0` for a tilde and `~1` for a slash.
    fn step(&mut self, key: &Bound<'py, PyAny>) -> PyResult<()> {
        let text = key.str()?;
        for character in text.to_str()?.chars() {
            match character {
                '~' => self.way.push_str("~0"),
                '/' => self.way.push_str("~1"),
                other => self.way.push(other),
            }
        }
        Ok(())
    }

    /// Returns the exception that the function `why` of `tierflow/_tree.py` makes, as an error.
    fn refuse(&self, why: &str, what: &Bound<'py, PyAny>) -> PyResult<()> {
        Err(PyErr::from_value(
            self.rare.call_method1(why, (&self.way, what))?,
        ))
    }
}

/// Appends a text as a string of JSON.
fn quoted(to: &mut String, text: &str) {
    to.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                to.push('\\');
                to.push(character);
            }
            control if control < ' ' => to.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => to.push(other),
        }
    }
    to.push('"');
}
