//! The shape and the element type of a slot.

use pyo3::exceptions::PyOverflowError;
use pyo3::intern;
use pyo3::prelude::*;
use tierflow_bind::Failure;
use tierflow_engine::Version;

use crate::dtype::DType;
use crate::errors::Answer;

// The buffer protocol takes the numbers of a layout as `Py_ssize_t`.
const _: () = assert!(size_of::<isize>() == size_of::<i64>());

/// Shape and element type of a slot, in C order.
#[derive(Debug)]
pub(crate) struct Layout {
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    byte_strides: Vec<i64>,
    bytes: usize,
}

impl Layout {
    /// Makes the layout of an array of this element type and shape.
    ///
    /// # Errors
    /// `ArgumentError` if the array has more bytes than there are addresses.
    pub(crate) fn new(dtype: DType, shape: &[usize]) -> Answer<Self> {
        let text = "the shape has more bytes than there are addresses";
        Ok(Self::counted(dtype, shape).ok_or_else(|| Failure::argument(text))?)
    }

    /// Makes the layout of an array whose shape a caller gave: an int, or a sequence of ints.
    ///
    /// # Errors
    /// `TypeError` if `shape` is neither; `OverflowError` if a number is negative or too large; else as [`Layout::new`].
    pub(crate) fn of(shape: &Bound<'_, PyAny>, dtype: DType) -> Answer<Self> {
        let lengths = match shape.extract::<usize>() {
            Ok(length) => vec![length],
            Err(error) if error.is_instance_of::<PyOverflowError>(shape.py()) => {
                return Err(error.into());
            }
            Err(_) => shape.extract::<Vec<usize>>()?,
        };
        Self::new(dtype, &lengths)
    }

    /// Makes the layout of a version's bytes: flat unless the caller gave a shape, and of bytes unless the caller gave an element type.
    ///
    /// # Errors
    /// `ArgumentError` if the layout does not have as many bytes as the version; `TypeError` if `dtype` is no element type of a slot; else as
    /// [`Layout::of`].
    pub(crate) fn held(
        py: Python<'_>,
        (version, bytes): (Version, u64),
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> Answer<Self> {
        let held = usize::try_from(bytes).unwrap_or(usize::MAX);
        let dtype = match dtype {
            Some(dtype) => DType::of(dtype)?,
            None => DType::of(intern!(py, "uint8"))?,
        };
        let layout = match shape {
            Some(shape) => Self::of(shape, dtype)?,
            None => Self::new(dtype, &[held / dtype.bytes()])?,
        };
        if layout.bytes() == held {
            return Ok(layout);
        }
        let (shape, dtype, bytes) = (layout.shape(), dtype.name, layout.bytes());
        let text = format!(
            "version {version} holds {held} bytes, and {shape:?} of {dtype} are {bytes}: name what was checkpointed"
        );
        Err(Failure::argument(text).into())
    }

    fn counted(dtype: DType, shape: &[usize]) -> Option<Self> {
        let numbers = shape.iter().map(|&length| i64::try_from(length).ok());
        let numbers: Vec<i64> = numbers.collect::<Option<_>>()?;
        let mut strides = vec![1_i64; numbers.len()];
        let mut elements = 1_i64;
        for (stride, &length) in strides.iter_mut().zip(&numbers).rev() {
            *stride = elements;
            elements = elements.checked_mul(length)?;
        }
        let item = i64::try_from(dtype.bytes()).ok()?;
        let bytes = usize::try_from(elements.checked_mul(item)?).ok()?;
        // A dimension of no elements makes no bytes, and the strides of the dimensions before it may be too large nevertheless.
        let byte_strides = strides.iter().map(|stride| stride.checked_mul(item));
        Some(Self {
            dtype,
            shape: numbers,
            byte_strides: byte_strides.collect::<Option<_>>()?,
            strides,
            bytes,
        })
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Returns the strides in elements.
    pub(crate) fn strides(&self) -> &[i64] {
        &self.strides
    }

    pub(crate) fn byte_strides(&self) -> &[i64] {
        &self.byte_strides
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
