//! DLPack's C exchange API: finds tensors and streams of a framework without calls of its Python functions.
//!
//! A type that has the API names a table of functions in `__dlpack_c_exchange_api__`. The table is looked up once for each type; a call
//! then takes some tens of nanoseconds.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use parking_lot::RwLock;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyType};
use tierflow_bind::Span;

use super::dlpack::{Described, Device, Managed, Tensor, VERSION, Version, Versioned};
use super::given::Hold;

const NAME: &CStr = c"dlpack_exchange_api";

#[repr(C)]
struct Header {
    version: Version,
    older: *const Header,
}

type ToManaged = unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int;
type Describe = unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int;
type WorkStream = unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int;

#[repr(C)]
struct Table {
    header: Header,
    allocate: *const c_void,
    to_managed: Option<ToManaged>,
    from_managed: *const c_void,
    /// Describes a tensor in place. Some frameworks have no such function.
    describe: Option<Describe>,
    stream: Option<WorkStream>,
}

/// A framework's table.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    table: NonNull<Table>,
}

// SAFETY: by the format, a table is never changed and lives as long as the process.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// Types that are known at most. At this number, a new type clears the list; a type is looked up anew when it is met again.
const MOST_KNOWN: usize = 64;

/// Types that have a table: mostly a few, but programs may make subclasses of tensors without end. The list holds the types, so that no other
/// type gets the address of one of them.
static KNOWN: RwLock<Vec<(Py<PyType>, Api)>> = RwLock::new(Vec::new());

impl Api {
    /// Returns the table of an object's type; `None` if the type has none of this major version, or the table has no function for streams.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        let kind = object.get_type();
        let is_it = |(known, _): &&(Py<PyType>, Self)| known.as_ptr() == kind.as_ptr();
        if let Some((_, api)) = KNOWN.read().iter().find(is_it) {
            return Some(*api);
        }
        let name = intern!(object.py(), "__dlpack_c_exchange_api__");
        let capsule = kind.getattr_opt(name).ok()??;
        let capsule = capsule.cast::<PyCapsule>().ok()?;
        let mut header: NonNull<Header> = capsule.pointer_checked(Some(NAME)).ok()?.cast();
        loop {
            // SAFETY: a capsule of this name holds such a table, and older ones are linked from it.
            let Header { version, older } = unsafe { header.as_ref() };
            if version.major == VERSION.major {
                break;
            }
            header = NonNull::new(older.cast_mut())?;
        }
        let api = Self {
            table: header.cast(),
        };
        api.table().stream?;
        let mut known = KNOWN.write();
        // A type that is dropped may run code of Python's, which must find the list unlocked.
        let cleared = match known.len() < MOST_KNOWN {
            true => Vec::new(),
            false => std::mem::take(&mut *known),
        };
        known.push((kind.unbind(), api));
        drop(known);
        drop(cleared);
        Some(api)
    }

    fn table(&self) -> &Table {
        // SAFETY: `of` checked that the table is of the major version that has these fields, and a table lives as long as the process.
        unsafe { self.table.as_ref() }
    }

    /// Returns the tensor's description, and the value that keeps its bytes in place beside the object itself. Waits for nothing.
    ///
    /// # Errors
    /// The framework's exceptions, such as that of a tensor without memory.
    pub(crate) fn describe(self, object: &Bound<'_, PyAny>) -> PyResult<(Described, Hold)> {
        let Some(tensor) = self.tensor(object)? else {
            return self.managed(object);
        };
        // SAFETY: shape and strides are the object's, which the caller holds.
        let described = unsafe { tensor.described(None) };
        Ok((described, Hold::Nothing))
    }

    /// Returns the bytes of a tensor whose elements lie in C order, and its device. `None` for all other tensors.
    pub(crate) fn contiguous(self, object: &Bound<'_, PyAny>) -> Option<(Span, Device)> {
        let tensor = self.tensor(object).ok()??;
        // SAFETY: as in `describe`.
        let (span, is_contiguous) = unsafe { tensor.span() };
        (is_contiguous && span.address() != 0).then_some((span, tensor.device))
    }

    /// Appends the numbers that distinguish a tensor's bytes from those of another tensor. Returns false if the framework does not give them.
    pub(crate) fn append_descriptor(
        self,
        object: &Bound<'_, PyAny>,
        numbers: &mut Vec<i64>,
    ) -> bool {
        let Ok(Some(tensor)) = self.tensor(object) else {
            return false;
        };
        // SAFETY: as in `describe`.
        unsafe { tensor.append_descriptor(numbers) };
        true
    }

    /// Returns the framework's description of a tensor, which is valid as long as the tensor is held. Returns `None` if the framework has no
    /// function for that.
    fn tensor(self, object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
        let Some(describe) = self.table().describe else {
            return Ok(None);
        };
        let mut tensor = MaybeUninit::<Tensor>::uninit();
        // SAFETY: the object is alive and has the type of the table, the thread is attached to the interpreter, and `tensor` is a place for
        // the answer.
        let failed = unsafe { describe(object.as_ptr().cast(), tensor.as_mut_ptr()) };
        if failed != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: `describe` reported success, so it filled the tensor.
        Ok(Some(unsafe { tensor.assume_init() }))
    }

    fn managed(self, object: &Bound<'_, PyAny>) -> PyResult<(Described, Hold)> {
        let mut managed = std::ptr::null_mut();
        // SAFETY: as in `describe`.
        let failed = self.table().to_managed.is_none_or(|to_managed| unsafe {
            to_managed(object.as_ptr().cast(), &raw mut managed) != 0
        });
        match NonNull::new(managed) {
            Some(managed) if !failed => {
                let managed = Managed::Versioned(managed);
                Ok((managed.described(), Hold::Managed(managed)))
            }
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// Returns the handle of the stream that the framework gives work to now.
    ///
    /// # Errors
    /// The framework's exceptions.
    pub(crate) fn stream(self, py: Python<'_>, device: Device) -> PyResult<u64> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the thread is attached to the interpreter, and `handle` is a place for the answer.
        let failed = self.table().stream.is_none_or(|stream| unsafe {
            stream(device.kind, device.number, &raw mut handle) != 0
        });
        if failed {
            return Err(PyErr::fetch(py));
        }
        Ok(handle.expose_provenance() as u64)
    }
}
