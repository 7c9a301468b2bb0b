//! DLPack 1.x: the structures, and tensors that other libraries pass in capsules.
//!
//! The layouts are those of `dlpack.h`, 1.3. The legacy capsule has the fields of the older major version.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use tierflow_bind::Span;

/// The version that this module reads and writes.
pub(crate) const VERSION: Version = Version { major: 1, minor: 3 };
pub(crate) const CPU: i32 = 1;
pub(crate) const CUDA: i32 = 2;
pub(crate) const CUDA_HOST: i32 = 3;
pub(crate) const CUDA_MANAGED: i32 = 13;
/// The flag of a tensor that must not be written.
pub(crate) const READ_ONLY: u64 = 1;
/// The type code of complex numbers.
pub(crate) const COMPLEX: u8 = 5;
/// The type code of handles: their bytes mean nothing outside their process.
pub(crate) const HANDLES: u8 = 3;

pub(crate) const LEGACY: &CStr = c"dltensor";
pub(crate) const VERSIONED: &CStr = c"dltensor_versioned";
const USED_LEGACY: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) kind: i32,
    pub(crate) number: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: Device,
    pub(crate) dimensions: i32,
    pub(crate) dtype: DataType,
    pub(crate) shape: *mut i64,
    /// Strides in elements; null for C order.
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

#[repr(C)]
pub(crate) struct Legacy {
    pub(crate) tensor: Tensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

#[repr(C)]
pub(crate) struct Versioned {
    pub(crate) version: Version,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

/// The description of a tensor by its producer.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) span: Span,
    /// The extents, slowest first.
    pub(crate) shape: Vec<u64>,
    pub(crate) device: Device,
    pub(crate) dtype: DataType,
    pub(crate) is_contiguous: bool,
    /// `None` if the structure has no flag for it.
    pub(crate) is_read_only: Option<bool>,
}

impl Tensor {
    /// Returns the description of the tensor.
    ///
    /// # Safety
    /// `shape`, and `strides` if it is not null, have `dimensions` numbers.
    pub(super) unsafe fn described(&self, is_read_only: Option<bool>) -> Described {
        // SAFETY: the caller's promise.
        let (span, is_contiguous) = unsafe { self.span() };
        // SAFETY: the caller's promise.
        let shape = unsafe { self.numbers(self.shape) };
        Described {
            span,
            shape: shape
                .iter()
                .map(|&n| u64::try_from(n).unwrap_or(0))
                .collect(),
            device: self.device,
            dtype: self.dtype,
            is_contiguous,
            is_read_only,
        }
    }

    /// Returns the tensor's bytes, and true if its elements lie there in C order without gaps.
    ///
    /// # Safety
    /// As for [`Self::described`].
    pub(super) unsafe fn span(&self) -> (Span, bool) {
        // SAFETY: the caller's promise.
        let shape = unsafe { self.numbers(self.shape) };
        // SAFETY: the caller's promise.
        let strides = unsafe { self.numbers(self.strides) };
        let elements = shape.iter().map(|&n| usize::try_from(n).unwrap_or(0));
        let elements = elements.fold(1_usize, usize::saturating_mul);
        let bits = usize::from(self.dtype.bits) * usize::from(self.dtype.lanes);
        let bytes = elements.saturating_mul(bits).div_ceil(8);
        let address = (self.data.expose_provenance() as u64).wrapping_add(self.byte_offset);
        // SAFETY: by the format, a contiguous tensor has `bytes` bytes at `address` as long as it is held.
        let span = unsafe { Span::new(address, bytes) };
        (span, is_c_order(shape, strides, elements))
    }

    /// Returns the numbers at `from`, one for each dimension; none if `from` is null.
    ///
    /// # Safety
    /// `from` is null, or has `dimensions` numbers.
    unsafe fn numbers(&self, from: *const i64) -> &[i64] {
        let dimensions = usize::try_from(self.dimensions).unwrap_or(0);
        match NonNull::new(from.cast_mut()) {
            // SAFETY: the caller's promise. A tensor without dimensions may have any pointer, which this arm does not read.
            Some(from) if dimensions > 0 => unsafe {
                std::slice::from_raw_parts(from.as_ptr(), dimensions)
            },
            _ => &[],
        }
    }

    /// Appends the numbers that distinguish the tensor's bytes from those of another tensor: address, device, element type, extents and
    /// strides. Two tensors that differ in one of these never append the same numbers.
    ///
    /// # Safety
    /// As for [`Self::described`].
    pub(super) unsafe fn append_descriptor(&self, numbers: &mut Vec<i64>) {
        let DataType { code, bits, lanes } = self.dtype;
        let address = (self.data.expose_provenance() as u64).wrapping_add(self.byte_offset);
        numbers.extend([
            address.cast_signed(),
            i64::from(self.device.kind) << 32 | i64::from(self.device.number),
            i64::from(code) << 32 | i64::from(bits) << 16 | i64::from(lanes),
            i64::from(self.dimensions) << 1 | i64::from(self.strides.is_null()),
        ]);
        for extents in [self.shape, self.strides] {
            // SAFETY: the caller's promise.
            numbers.extend_from_slice(unsafe { self.numbers(extents) });
        }
    }
}

/// Returns true if the elements lie in C order without gaps. Tensors without strides do.
fn is_c_order(shape: &[i64], strides: &[i64], elements: usize) -> bool {
    if strides.is_empty() || elements == 0 {
        return true;
    }
    let mut expected = 1_i64;
    shape.iter().zip(strides).rev().all(|(&length, &stride)| {
        let is_next = length == 1 || stride == expected;
        expected = expected.saturating_mul(length);
        is_next
    })
}

/// A tensor that was taken out of a capsule. Dropping this value gives it back to its producer.
#[derive(Debug)]
pub(crate) enum Managed {
    Legacy(NonNull<Legacy>),
    Versioned(NonNull<Versioned>),
}

impl Managed {
    /// Takes the tensor out of the capsule, which nobody can use after that.
    ///
    /// # Errors
    /// `BufferError` if the capsule holds no tensor, was used before, or is of another major version.
    pub(crate) fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        if let Ok(pointer) = capsule.pointer_checked(Some(VERSIONED)) {
            let pointer: NonNull<Versioned> = pointer.cast();
            rename(capsule, USED_VERSIONED)?;
            let taken = Self::Versioned(pointer);
            // SAFETY: a capsule of this name holds such a structure, and this value owns it since the capsule was renamed. The
            // version is the first field in every major version.
            let version = unsafe { (*pointer.as_ptr()).version };
            if version.major != VERSION.major {
                let (major, minor) = (version.major, version.minor);
                return Err(PyBufferError::new_err(format!(
                    "the array speaks DLPack {major}.{minor}, and {}.x is understood here: update tierflow or the \
                     array's library",
                    VERSION.major
                )));
            }
            return Ok(taken);
        }
        let pointer = capsule.pointer_checked(Some(LEGACY)).map_err(|_| {
            PyBufferError::new_err(
                "__dlpack__ returned a capsule that holds no DLPack tensor, or was used before",
            )
        })?;
        rename(capsule, USED_LEGACY)?;
        Ok(Self::Legacy(pointer.cast()))
    }

    pub(crate) fn described(&self) -> Described {
        match self {
            Self::Legacy(tensor) => {
                // SAFETY: this value owns the structure until it is dropped, and the producer filled it.
                let managed = unsafe { tensor.as_ref() };
                // SAFETY: the producer filled it as the format demands.
                unsafe { managed.tensor.described(None) }
            }
            Self::Versioned(tensor) => {
                // SAFETY: as above.
                let managed = unsafe { tensor.as_ref() };
                let is_read_only = managed.flags & READ_ONLY != 0;
                // SAFETY: as above.
                unsafe { managed.tensor.described(Some(is_read_only)) }
            }
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        /// Calls the producer's own function for its own structure.
        fn delete<T>(tensor: NonNull<T>, deleter: Option<unsafe extern "C" fn(*mut T)>) {
            if let Some(deleter) = deleter {
                // SAFETY: this value owns the structure and deletes it once. The deleter may be called for every major version.
                unsafe { deleter(tensor.as_ptr()) };
            }
        }
        match self {
            // SAFETY: this value owns the structure.
            Self::Legacy(tensor) => delete(*tensor, unsafe { tensor.as_ref() }.deleter),
            // SAFETY: as above.
            Self::Versioned(tensor) => delete(*tensor, unsafe { tensor.as_ref() }.deleter),
        }
    }
}

fn rename(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: the capsule is alive, and the name is static.
    let renamed = unsafe { pyo3::ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) };
    if renamed == 0 {
        return Ok(());
    }
    Err(PyErr::fetch(capsule.py()))
}
