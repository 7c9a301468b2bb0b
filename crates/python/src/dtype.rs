//! Element types: their names, and how each protocol calls them.

use std::ffi::CStr;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyString, PyType};

use crate::ffi::dlpack::DataType;

/// One element type, in the machine's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DType {
    pub(crate) name: &'static str,
    code: u8,
    bits: u8,
    /// As the module `struct` and NumPy call it, where they do.
    pub(crate) format: Option<&'static CStr>,
    /// As `__cuda_array_interface__` calls it, where it does.
    pub(crate) typestr: Option<&'static str>,
}

const fn plain(
    name: &'static str,
    (code, bits): (u8, u8),
    format: &'static CStr,
    typestr: &'static str,
) -> DType {
    DType {
        name,
        code,
        bits,
        format: Some(format),
        typestr: Some(typestr),
    }
}

const fn unnamed(name: &'static str, code: u8, bits: u8) -> DType {
    DType {
        name,
        code,
        bits,
        format: None,
        typestr: None,
    }
}

const ALL: &[DType] = &[
    plain("uint8", (1, 8), c"B", "|u1"),
    plain("bool", (6, 8), c"?", "|b1"),
    plain("int8", (0, 8), c"b", "|i1"),
    plain("int16", (0, 16), c"h", "<i2"),
    plain("int32", (0, 32), c"i", "<i4"),
    plain("int64", (0, 64), c"q", "<i8"),
    plain("uint16", (1, 16), c"H", "<u2"),
    plain("uint32", (1, 32), c"I", "<u4"),
    plain("uint64", (1, 64), c"Q", "<u8"),
    plain("float16", (2, 16), c"e", "<f2"),
    plain("float32", (2, 32), c"f", "<f4"),
    plain("float64", (2, 64), c"d", "<f8"),
    plain("complex64", (5, 64), c"Zf", "<c8"),
    plain("complex128", (5, 128), c"Zd", "<c16"),
    unnamed("bfloat16", 4, 16),
    unnamed("float8_e4m3fn", 10, 8),
    unnamed("float8_e5m2", 12, 8),
];

/// Other names for them, as NumPy has them.
const ALSO: &[(&str, &str)] = &[
    ("u1", "uint8"),
    ("i1", "int8"),
    ("b1", "bool"),
    ("?", "bool"),
    ("i2", "int16"),
    ("i4", "int32"),
    ("i8", "int64"),
    ("u2", "uint16"),
    ("u4", "uint32"),
    ("u8", "uint64"),
    ("f2", "float16"),
    ("f4", "float32"),
    ("f8", "float64"),
    ("c8", "complex64"),
    ("c16", "complex128"),
    ("half", "float16"),
    ("single", "float32"),
    ("float", "float64"),
    ("double", "float64"),
    ("int", "int64"),
    ("complex", "complex128"),
];

impl DType {
    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        usize::from(self.bits) / 8
    }

    pub(crate) fn dlpack(self) -> DataType {
        DataType {
            code: self.code,
            bits: self.bits,
            lanes: 1,
        }
    }

    /// By its name in NumPy or PyTorch: `float32`, `f4`, `<f4`, `torch.float32`.
    fn named(name: &str) -> Option<Self> {
        let own = name.strip_prefix("torch.").unwrap_or(name);
        let own = own.strip_prefix(['<', '=', '|']).unwrap_or(own);
        let also = ALSO.iter().find(|(also, _)| *also == own);
        let own = also.map_or(own, |(_, own)| *own);
        ALL.iter().find(|dtype| dtype.name == own).copied()
    }

    /// Of whatever names an element type: a text, a type of NumPy, `ml_dtypes`, PyTorch, JAX or Python.
    ///
    /// # Errors
    /// `TypeError` for what is none that slots can have.
    pub(crate) fn of(what: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = what.py();
        let text = |name: Bound<'_, PyAny>| name.extract::<String>().ok();
        let named = if what.is_instance_of::<PyString>() {
            text(what.clone())
        } else if let Ok(kind) = what.cast::<PyType>() {
            let is = |other: &Bound<'_, PyType>| kind.is(other);
            match () {
                () if is(&py.get_type::<PyBool>()) => Some("bool".to_owned()),
                () if is(&py.get_type::<PyInt>()) => Some("int64".to_owned()),
                () if is(&py.get_type::<PyFloat>()) => Some("float64".to_owned()),
                () if is(&py.get_type::<PyComplex>()) => Some("complex128".to_owned()),
                // NumPy's `np.float32` and the like.
                () => Some(
                    kind.name()?
                        .to_string_lossy()
                        .trim_end_matches('_')
                        .to_owned(),
                ),
            }
        } else if let Some(dtype) = what.getattr_opt(intern!(py, "dtype"))? {
            // `jnp.float32`, which is neither a type nor a dtype.
            return Self::of(&dtype);
        } else if let Some(name) = what.getattr_opt(intern!(py, "name"))? {
            is_native(what)?.then(|| text(name)).flatten()
        } else {
            Some(what.str()?.to_string_lossy().into_owned())
        };
        named.as_deref().and_then(Self::named).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|dtype| dtype.name).collect();
            let what = what.repr().map(|repr| repr.to_string());
            PyTypeError::new_err(format!(
                "{} is no element type of a slot: pass one of {}",
                what.as_deref().unwrap_or("that"),
                known.join(", ")
            ))
        })
    }
}

/// Whether a dtype of NumPy's is in the machine's byte order.
fn is_native(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    match dtype.getattr_opt(intern!(dtype.py(), "isnative"))? {
        Some(is_native) => is_native.is_truthy(),
        None => Ok(true),
    }
}
