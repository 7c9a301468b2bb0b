//! DLPack's C exchange API: tensors and streams of a framework without a trip through its Python.
//!
//! A type that has it names a table of functions in `__dlpack_c_exchange_api__`. One look-up per type; a call then takes
//! some tens of nanoseconds.

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
    /// Not every framework has it.
    describe: Option<Describe>,
    stream: Option<WorkStream>,
}

/// A framework's table.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    table: NonNull<Table>,
}

// SAFETY: the format has it that a table is never changed and lives as long as the process.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// Types that were seen to have one: a few, as frameworks have one type each. They are kept, so none is another's.
static KNOWN: RwLock<Vec<(Py<PyType>, Api)>> = RwLock::new(Vec::new());

impl Api {
    /// The table of an object's type, if it has one that is understood here and can describe a tensor in place.
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
        KNOWN.write().push((kind.unbind(), api));
        Some(api)
    }

    fn table(&self) -> &Table {
        // SAFETY: a table of the major version that has these fields, and which lives for ever.
        unsafe { self.table.as_ref() }
    }

    /// What the tensor is, and what holds it, beside the object itself. Nothing is waited for.
    ///
    /// # Errors
    /// The framework's, as for a tensor without memory.
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

    /// Appends the numbers that tell a tensor's bytes from those of another one. Returns false if the framework does not give them.
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

    /// The framework's description of a tensor, which is good as long as the tensor is held. `None` if the framework has none in place.
    fn tensor(self, object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
        let Some(describe) = self.table().describe else {
            return Ok(None);
        };
        let mut tensor = MaybeUninit::<Tensor>::uninit();
        // SAFETY: a live object of the type that the table is of, attached to the interpreter, and a place for the answer.
        let failed = unsafe { describe(object.as_ptr().cast(), tensor.as_mut_ptr()) };
        if failed != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: it was filled.
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

    /// The handle of the stream that the framework gives work to now.
    ///
    /// # Errors
    /// The framework's.
    pub(crate) fn stream(self, py: Python<'_>, device: Device) -> PyResult<u64> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: attached to the interpreter, and a place for the answer.
        let failed = self.table().stream.is_none_or(|stream| unsafe {
            stream(device.kind, device.number, &raw mut handle) != 0
        });
        if failed {
            return Err(PyErr::fetch(py));
        }
        Ok(handle.expose_provenance() as u64)
    }
}
