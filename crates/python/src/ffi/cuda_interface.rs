//! `__cuda_array_interface__`, version 3: the protocol of CUDA's libraries for arrays on a GPU.

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tierflow_bind::Span;

/// The description of an array by its library.
pub(crate) struct Interface {
    pub(crate) span: Span,
    /// The extents, slowest first.
    pub(crate) shape: Vec<u64>,
    /// The element type, as NumPy's `typestr`.
    pub(crate) typestr: String,
    pub(crate) is_read_only: bool,
    pub(crate) is_contiguous: bool,
    pub(crate) has_mask: bool,
    /// The stream whose work makes the array; `None` if a call has nothing to wait for.
    pub(crate) stream: Option<u64>,
}

impl Interface {
    /// Reads the dictionary of an array.
    ///
    /// # Errors
    /// `TypeError` if `interface` is no dict, or an entry has another type; `KeyError` if an entry is missing.
    pub(crate) fn read<'py>(interface: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = interface.py();
        let interface = interface.cast::<PyDict>()?;
        let entry = |name: &Bound<'py, PyString>| {
            let entry = interface.get_item(name)?;
            Ok::<_, PyErr>(entry.filter(|entry| !entry.is_none()))
        };
        let missing =
            || PyKeyError::new_err("__cuda_array_interface__ lacks shape, typestr or data");
        let shape: Vec<usize> = entry(intern!(py, "shape"))?
            .ok_or_else(missing)?
            .extract()?;
        let typestr: String = entry(intern!(py, "typestr"))?
            .ok_or_else(missing)?
            .extract()?;
        let data = entry(intern!(py, "data"))?.ok_or_else(missing)?;
        let (address, is_read_only): (u64, bool) = data.extract()?;
        let item: usize = typestr
            .trim_start_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .map_err(|_| PyTypeError::new_err(format!("typestr {typestr:?} names no size")))?;
        let strides: Option<Vec<i64>> = entry(intern!(py, "strides"))?
            .map(|strides| strides.extract())
            .transpose()?;
        let stream = entry(intern!(py, "stream"))?
            .map(|stream| stream.extract())
            .transpose()?;
        let bytes = shape.iter().fold(item, |bytes, &n| bytes.saturating_mul(n));
        // SAFETY: by the protocol, a contiguous array has these bytes on a GPU as long as it is held.
        let span = unsafe { Span::new(address, bytes) };
        Ok(Self {
            span,
            is_read_only,
            is_contiguous: bytes == 0 || is_c_order(&shape, strides.as_deref(), item),
            has_mask: entry(intern!(py, "mask"))?.is_some(),
            stream,
            shape: shape.iter().map(|&n| n as u64).collect(),
            typestr,
        })
    }
}

/// Returns true if the elements lie in C order without gaps. `strides` are in bytes; `None` means that they do.
fn is_c_order(shape: &[usize], strides: Option<&[i64]>, item: usize) -> bool {
    let Some(strides) = strides else { return true };
    let mut expected = item;
    shape.iter().zip(strides).rev().all(|(&length, &stride)| {
        let is_next = length == 1 || usize::try_from(stride) == Ok(expected);
        expected = expected.saturating_mul(length);
        is_next
    })
}
