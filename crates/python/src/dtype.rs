//! Element types, and the name of each in every protocol.

use std::ffi::CStr;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use tierflow_store::container::{Element, RegionInfo};

use crate::ffi::dlpack::DataType;

/// An element type in the machine's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DType {
    pub(crate) name: &'static str,
    /// The type in the format of checkpoints.
    element: Element,
    code: u8,
    bits: u8,
    /// The format of the module `struct` and of NumPy's buffers; `None` if they have none.
    pub(crate) format: Option<&'static CStr>,
    /// The `typestr` of `__cuda_array_interface__`; `None` if that has none.
    pub(crate) typestr: Option<&'static str>,
}

/// Makes a row of [`ALL`]: DLPack's `(code, bits)`, then the buffer format and the `typestr` of a type that has both.
const fn dtype(
    name: &'static str,
    element: Element,
    (code, bits): (u8, u8),
    words: Option<(&'static CStr, &'static str)>,
) -> DType {
    let (format, typestr) = match words {
        Some((format, typestr)) => (Some(format), Some(typestr)),
        None => (None, None),
    };
    DType {
        name,
        element,
        code,
        bits,
        format,
        typestr,
    }
}

const ALL: &[DType] = &[
    dtype("uint8", Element::U8, (1, 8), Some((c"B", "|u1"))),
    dtype("bool", Element::Bool, (6, 8), Some((c"?", "|b1"))),
    dtype("int8", Element::I8, (0, 8), Some((c"b", "|i1"))),
    dtype("int16", Element::I16, (0, 16), Some((c"h", "<i2"))),
    dtype("int32", Element::I32, (0, 32), Some((c"i", "<i4"))),
    dtype("int64", Element::I64, (0, 64), Some((c"q", "<i8"))),
    dtype("uint16", Element::U16, (1, 16), Some((c"H", "<u2"))),
    dtype("uint32", Element::U32, (1, 32), Some((c"I", "<u4"))),
    dtype("uint64", Element::U64, (1, 64), Some((c"Q", "<u8"))),
    dtype("float16", Element::F16, (2, 16), Some((c"e", "<f2"))),
    dtype("float32", Element::F32, (2, 32), Some((c"f", "<f4"))),
    dtype("float64", Element::F64, (2, 64), Some((c"d", "<f8"))),
    dtype("complex64", Element::C64, (5, 64), Some((c"Zf", "<c8"))),
    dtype("complex128", Element::C128, (5, 128), Some((c"Zd", "<c16"))),
    dtype("bfloat16", Element::Bf16, (4, 16), None),
    dtype("float8_e4m3fn", Element::F8E4M3, (10, 8), None),
    dtype("float8_e5m2", Element::F8E5M2, (12, 8), None),
];

/// Other names of element types: PyTorch's and Python's, each with the name in [`ALL`].
const ALSO: &[(&str, &str)] = &[
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

    /// Finds an element type by its name in NumPy or PyTorch: `float32`, `f4`, `<f4`, `torch.float32`.
    fn named(name: &str) -> Option<Self> {
        let own = name.strip_prefix("torch.").unwrap_or(name);
        let own = own.strip_prefix(['<', '=', '|']).unwrap_or(own);
        let also = ALSO.iter().find(|(also, _)| *also == own);
        let own = also.map_or(own, |(_, own)| *own);
        let is_it = |dtype: &&Self| {
            let short = dtype.typestr.and_then(|typestr| typestr.get(1..));
            dtype.name == own || short == Some(own) || (own == "?" && dtype.name == "bool")
        };
        ALL.iter().find(is_it).copied()
    }

    /// Finds the element type that an object names: a text, or a type of NumPy, `ml_dtypes`, PyTorch, JAX or Python.
    ///
    /// # Errors
    /// `TypeError` if `what` names no element type of a slot.
    pub(crate) fn of(what: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = what.py();
        let text = |name: Bound<'_, PyAny>| name.extract::<String>().ok();
        // `jnp.float32` is neither a type nor a dtype, and has a dtype.
        let dtype = match what.is_instance_of::<PyString>() || what.is_instance_of::<PyType>() {
            true => None,
            false => what.getattr_opt(intern!(py, "dtype"))?,
        };
        let what = dtype.as_ref().unwrap_or(what);
        let named = if what.is_instance_of::<PyString>() {
            text(what.clone())
        } else if let Ok(kind) = what.cast::<PyType>() {
            // A class, such as Python's `float` or NumPy's `np.bool_`.
            let name = kind.name()?.to_string_lossy().into_owned();
            Some(name.trim_end_matches('_').to_owned())
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

/// The element type and the extents of an array, slowest first (C order).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArrayType {
    dtype: DType,
    shape: Vec<u64>,
}

/// Dimensions of a region at most.
const MOST_DIMENSIONS: usize = 8;

impl ArrayType {
    fn new(dtype: Option<DType>, shape: Vec<u64>) -> Option<Self> {
        let dtype = dtype.filter(|_| shape.len() <= MOST_DIMENSIONS)?;
        Some(Self { dtype, shape })
    }

    fn find(is_it: impl Fn(&DType) -> bool, shape: Vec<u64>) -> Option<Self> {
        Self::new(ALL.iter().find(|dtype| is_it(dtype)).copied(), shape)
    }

    /// Finds the type of an array by its elements' format in the module `struct`, and their size in `bytes`. No format stands for bytes.
    pub(crate) fn of_format(format: Option<&CStr>, bytes: usize, shape: Vec<u64>) -> Option<Self> {
        let format = format.map_or(&b"B"[..], CStr::to_bytes);
        let word = format.strip_prefix(b"@").unwrap_or(format);
        let word = word.strip_prefix(b"=").unwrap_or(word);
        let word = word.strip_prefix(b"<").unwrap_or(word);
        // The size of a long depends on the format's prefix, so the code says only the kind.
        let code = match word {
            b"b" | b"h" | b"i" | b"l" | b"q" | b"n" => 0,
            b"B" | b"c" | b"H" | b"I" | b"L" | b"Q" | b"N" => 1,
            b"e" | b"f" | b"d" => 2,
            b"Ze" | b"Zf" | b"Zd" => 5,
            b"?" => 6,
            _ => return None,
        };
        Self::find(|dtype| dtype.code == code && dtype.bytes() == bytes, shape)
    }

    pub(crate) fn of_dlpack(what: DataType, shape: Vec<u64>) -> Option<Self> {
        Self::find(|dtype| dtype.dlpack() == what, shape)
    }

    pub(crate) fn of_typestr(typestr: &str, shape: Vec<u64>) -> Option<Self> {
        Self::find(|dtype| dtype.typestr == Some(typestr), shape)
    }

    /// Finds the type of an array by its attribute `dtype`, if the protocol has no name for its elements.
    pub(crate) fn of_attribute(array: &Bound<'_, PyAny>, shape: Vec<u64>) -> Option<Self> {
        let dtype = array.getattr_opt(intern!(array.py(), "dtype")).ok()??;
        Self::new(DType::of(&dtype).ok(), shape)
    }

    /// Returns the array type that a region was checkpointed as; `None` if it is not known.
    pub(crate) fn of_region(info: &RegionInfo) -> Option<Self> {
        Self::find(|dtype| dtype.element == info.element, info.shape.clone())
    }

    pub(crate) fn element(&self) -> Element {
        self.dtype.element
    }

    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns true for one dimension of bytes, such as a `bytearray`: bytes match every type.
    pub(crate) fn is_flat_bytes(&self) -> bool {
        self.dtype.element == Element::U8 && self.shape.len() == 1
    }
}

impl std::fmt::Display for ArrayType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let extents: Vec<_> = self.shape.iter().map(u64::to_string).collect();
        let comma = if extents.len() == 1 { "," } else { "" };
        write!(
            f,
            "{} of shape ({}{comma})",
            self.dtype.name,
            extents.join(", ")
        )
    }
}

/// Returns true if a dtype is in the machine's byte order, as all are that have no attribute `isnative`.
fn is_native(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    match dtype.getattr_opt(intern!(dtype.py(), "isnative"))? {
        Some(is_native) => is_native.is_truthy(),
        None => Ok(true),
    }
}
