//! libcufile's functions, by name and layout, as cufile.h 1.0 to 1.20 declare them.
//!
//! cudarc's bindings do not fit: they look for other names of the library, panic if a function is missing, and hold
//! status codes in Rust enumerations, where an unknown code of a newer library is undefined behaviour.

use std::error::Error;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

use super::error::{DirectError, StatusCode};

/// The library's handle of a registered file.
pub(super) type FileHandle = *mut c_void;

/// Result of all functions but those that move bytes: the library's code, and the CUDA driver's code if the library's
/// code is 5011.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Status {
    code: c_int,
    cuda: c_int,
}

impl Status {
    pub(super) fn checked(self) -> Result<(), StatusCode> {
        match self.code {
            0 => Ok(()),
            cufile => Err(StatusCode {
                cufile,
                cuda: self.cuda,
            }),
        }
    }
}

/// A file to be registered.
#[repr(C)]
pub(super) struct Description {
    kind: c_int,
    file: FileUnion,
    operations: *const c_void,
}

#[repr(C)]
union FileUnion {
    descriptor: c_int,
    _pointer: *mut c_void,
}

impl Description {
    pub(super) fn of_descriptor(descriptor: c_int) -> Self {
        Self {
            // CU_FILE_HANDLE_TYPE_OPAQUE_FD.
            kind: 1,
            file: FileUnion { descriptor },
            operations: std::ptr::null(),
        }
    }
}

/// Properties of the open driver.
#[repr(C)]
#[derive(Default)]
pub(super) struct Properties {
    /// Version of nvidia-fs; 0.0 where the module is not loaded.
    pub(super) major: c_uint,
    pub(super) minor: c_uint,
    _poll_kib: usize,
    _direct_io_kib: usize,
    /// Supported kinds of storage, one bit each.
    pub(super) storage: c_uint,
    _control: c_uint,
    pub(super) features: c_uint,
    /// Limits. Known versions of the library write four or five; later versions may write more.
    _limits: [c_uint; 29],
}

type Move<P> = unsafe extern "C" fn(FileHandle, P, usize, i64, i64) -> isize;

pub(super) struct Library {
    pub(super) open: unsafe extern "C" fn() -> Status,
    pub(super) close: unsafe extern "C" fn() -> Status,
    pub(super) properties: unsafe extern "C" fn(*mut Properties) -> Status,
    /// `None` before CUDA 12.3.
    pub(super) version: Option<unsafe extern "C" fn(*mut c_int) -> Status>,
    pub(super) register: unsafe extern "C" fn(*mut FileHandle, *mut Description) -> Status,
    pub(super) deregister: unsafe extern "C" fn(FileHandle),
    pub(super) read: Move<*mut c_void>,
    pub(super) write: Move<*const c_void>,
    /// Never unloaded: the library's threads and exit handlers outlive its closing.
    _loaded: ManuallyDrop<libloading::Library>,
}

impl Library {
    pub(super) fn load() -> Result<Self, DirectError> {
        // The loader's words are the error's source.
        let missing = |error: libloading::Error| DirectError::NoLibrary {
            reason: error
                .source()
                .map_or_else(|| error.to_string(), ToString::to_string),
        };
        let load = |name: &str| {
            // SAFETY: loading NVIDIA's library runs its initialisers, which are sound to run at any time.
            unsafe { libloading::Library::new(name) }
        };
        let loaded =
            load("libcufile.so.0").or_else(|error| load("libcufile.so").map_err(|_| error));
        let loaded = ManuallyDrop::new(loaded.map_err(missing)?);
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field that it is assigned to has the type that cufile.h declares the function with.
                unsafe { loaded.get($name) }.map(|function| *function)
            };
        }
        Ok(Self {
            open: function!("cuFileDriverOpen").map_err(missing)?,
            close: function!("cuFileDriverClose_v2")
                .or_else(|_| function!("cuFileDriverClose"))
                .map_err(missing)?,
            properties: function!("cuFileDriverGetProperties").map_err(missing)?,
            version: function!("cuFileGetVersion").ok(),
            register: function!("cuFileHandleRegister").map_err(missing)?,
            deregister: function!("cuFileHandleDeregister").map_err(missing)?,
            read: function!("cuFileRead").map_err(missing)?,
            write: function!("cuFileWrite").map_err(missing)?,
            _loaded: loaded,
        })
    }
}

// The layouts of 64-bit Linux.
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Status>() == 8);
    assert!(size_of::<Description>() == 24);
    assert!(offset_of!(Description, file) == 8);
    assert!(offset_of!(Description, operations) == 16);
    assert!(offset_of!(Properties, storage) == 24);
    assert!(offset_of!(Properties, features) == 32);
    assert!(offset_of!(Properties, _limits) == 36);
};
