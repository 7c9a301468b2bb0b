//! The foreign function interface of XLA, as far as the handlers of this crate need it. The structures are those of the header
//! `xla/ffi/api/c_api.h`: each begins with its size and grows only at its end.
//!
//! # The contract
//! Only XLA makes values of these types. A handler gets them with its frame and keeps none of them beyond the call. For the time of the
//! call, their pointers are valid as the header says; those of buffers are valid only in the stage of execution. Each unsafe block here
//! relies on this contract.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use tierflow_bind::Span;

use crate::tape::{Inner, with_tape};

/// A handler's result; `Err` has the message of its error.
pub(crate) type Answer = Result<(), String>;

/// A call of a handler: the bytes that it reads, the bytes that it writes, and the number of the tape.
pub(crate) struct Call {
    pub(crate) arguments: Vec<Span>,
    pub(crate) results: Vec<Span>,
    pub(crate) tape: u64,
    /// The stream that the call is a part of; `None` on the processor.
    pub(crate) stream: Option<u64>,
}

/// The version of the interface that the handlers use. Later versions of XLA have to support it.
const VERSION: (i32, i32) = (0, 1);

const METADATA: i32 = 1;
const EXECUTE: i32 = 3;
const SCALAR: i32 = 3;
const FAILED_PRECONDITION: i32 = 9;

#[repr(C)]
struct Extension {
    size: usize,
    kind: i32,
    next: *mut Extension,
}

#[repr(C)]
struct XlaVersion {
    size: usize,
    extension: *mut Extension,
    major: i32,
    minor: i32,
}

#[repr(C)]
struct Metadata {
    size: usize,
    version: XlaVersion,
    traits: u32,
}

#[repr(C)]
struct MetadataExtension {
    base: Extension,
    metadata: *mut Metadata,
}

#[repr(C)]
struct Buffer {
    size: usize,
    extension: *mut Extension,
    dtype: i32,
    data: *mut c_void,
    rank: i64,
    dims: *const i64,
}

/// The arguments of a call, or its results.
#[repr(C)]
struct Buffers {
    size: usize,
    extension: *mut Extension,
    count: i64,
    kinds: *const i32,
    buffers: *const *const Buffer,
}

#[repr(C)]
struct Scalar {
    dtype: i32,
    value: *const c_void,
}

#[repr(C)]
struct Attributes {
    size: usize,
    extension: *mut Extension,
    count: i64,
    kinds: *const i32,
    names: *const *const c_void,
    values: *const *const c_void,
}

#[repr(C)]
struct ErrorArguments {
    size: usize,
    extension: *mut Extension,
    message: *const c_char,
    code: i32,
}

#[repr(C)]
struct StreamArguments {
    size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    stream: *mut c_void,
}

#[repr(C)]
struct XlaApi {
    size: usize,
    extension: *mut Extension,
    version: XlaVersion,
    internal: *const c_void,
    create_error: unsafe extern "C" fn(*mut ErrorArguments) -> *mut c_void,
    error_message: *const c_void,
    destroy_error: *const c_void,
    register: *const c_void,
    stream: unsafe extern "C" fn(*mut StreamArguments) -> *mut c_void,
}

#[repr(C)]
pub(crate) struct Frame {
    size: usize,
    extension: *mut Extension,
    api: *const XlaApi,
    context: *mut c_void,
    stage: i32,
    arguments: Buffers,
    results: Buffers,
    attributes: Attributes,
}

/// The type of XLA's handlers.
pub(crate) type Handler = extern "C" fn(Option<&mut Frame>) -> *mut c_void;

/// Passes the call to `answer`, and returns an error of `answer` to XLA. `on_gpu` says the platform that the handler is registered for.
fn handle(frame: Option<&mut Frame>, on_gpu: bool, answer: fn(Call) -> Answer) -> *mut c_void {
    let Some(frame) = frame else {
        return ptr::null_mut();
    };
    if frame.tells_metadata() || frame.stage != EXECUTE {
        return ptr::null_mut();
    }
    // The caller is C: a panic must not unwind into it.
    let answered = catch_unwind(AssertUnwindSafe(|| frame.call(on_gpu).and_then(answer)));
    match answered {
        Ok(Ok(())) => ptr::null_mut(),
        Ok(Err(message)) => frame.error(&message),
        Err(_) => frame.error("a handler of Tierflow panicked"),
    }
}

macro_rules! handlers {
    ($($name:ident),*) => {
        $(extern "C" fn $name<const ON_GPU: bool>(frame: Option<&mut Frame>) -> *mut c_void {
            handle(frame, ON_GPU, |call| with_tape(&call, Inner::$name))
        })*

        /// The handlers: name, handler for the processor, handler for a GPU.
        pub(crate) const HANDLERS: &[(&str, Handler, Handler)] =
            &[$((stringify!($name), $name::<false>, $name::<true>)),*];
    };
}

handlers!(begin, save, rewind, load);

impl Frame {
    /// Returns true if XLA only asks for the handler's version, and answers that.
    fn tells_metadata(&mut self) -> bool {
        // SAFETY: the pointer is null, or points to an extension.
        let extension = unsafe { self.extension.as_ref() };
        if extension.is_none_or(|extension| extension.kind != METADATA) {
            return false;
        }
        let asks: *mut MetadataExtension = self.extension.cast();
        // SAFETY: extensions of this kind are of this type.
        let metadata = unsafe { asks.as_ref() }.map_or(ptr::null_mut(), |asks| asks.metadata);
        // SAFETY: the pointer is null, or points to XLA's place for the answer.
        if let Some(metadata) = unsafe { metadata.as_mut() } {
            (metadata.version.major, metadata.version.minor) = VERSION;
        }
        true
    }

    fn call(&self, on_gpu: bool) -> Result<Call, String> {
        Ok(Call {
            arguments: self.arguments.spans()?,
            results: self.results.spans()?,
            tape: self.attributes.number()?,
            stream: on_gpu.then(|| self.stream()).transpose()?,
        })
    }

    fn stream(&self) -> Result<u64, String> {
        let mut arguments = StreamArguments {
            size: size_of::<StreamArguments>(),
            extension: ptr::null_mut(),
            context: self.context,
            stream: ptr::null_mut(),
        };
        let ask = self.api().ok_or("XLA has no functions")?.stream;
        // SAFETY: the function and the context are XLA's own, and `arguments` has a place for the answer. An error is leaked, as the
        // program ends with it.
        let failed = unsafe { ask(&raw mut arguments) };
        match failed.is_null() {
            true => Ok(arguments.stream.expose_provenance() as u64),
            false => Err("XLA does not tell its stream".to_owned()),
        }
    }

    fn error(&self, message: &str) -> *mut c_void {
        let text = std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default();
        let mut arguments = ErrorArguments {
            size: size_of::<ErrorArguments>(),
            extension: ptr::null_mut(),
            message: text.as_ptr(),
            code: FAILED_PRECONDITION,
        };
        let Some(api) = self.api() else {
            return ptr::null_mut();
        };
        // SAFETY: the function is XLA's own and copies the text.
        unsafe { (api.create_error)(&raw mut arguments) }
    }

    fn api(&self) -> Option<&XlaApi> {
        // SAFETY: the table is XLA's own and lives as long as the process. Later versions only have more functions at its end.
        unsafe { self.api.as_ref() }
    }
}

impl Buffers {
    fn spans(&self) -> Result<Vec<Span>, String> {
        // XLA has no other kind of argument.
        let buffers = all(self.buffers, self.count);
        let mut spans = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            // SAFETY: the pointer is XLA's own: the contract above.
            let buffer = unsafe { buffer.as_ref() }.ok_or("XLA passes an array that is none")?;
            let dims = all(buffer.dims, buffer.rank);
            let lengths = dims
                .iter()
                .map(|&length| usize::try_from(length).unwrap_or(0));
            let bytes = width(buffer.dtype)? * lengths.product::<usize>();
            // SAFETY: XLA lays arrays out without gaps, and keeps them until the call is over and the stream has done its work.
            spans.push(unsafe { Span::new(buffer.data.expose_provenance() as u64, bytes) });
        }
        Ok(spans)
    }
}

impl Attributes {
    /// Returns the only attribute, a number of 64 bits.
    fn number(&self) -> Result<u64, String> {
        let kinds = all(self.kinds, self.count);
        let values = all(self.values, self.count);
        let ([SCALAR], [value]) = (kinds, values) else {
            return Err("a call of Tierflow's has one attribute, the tape".to_owned());
        };
        // SAFETY: the kind says that the value is a scalar.
        let scalar = unsafe { value.cast::<Scalar>().as_ref() };
        let scalar = scalar.ok_or("the tape is a number that is none")?;
        match width(scalar.dtype)? {
            // SAFETY: the scalar has 8 bytes, and an unaligned read needs no more.
            8 => Ok(unsafe { scalar.value.cast::<u64>().read_unaligned() }),
            _ => Err("the tape is a number of 64 bits".to_owned()),
        }
    }
}

/// Returns the `count` values at `first`, which are XLA's.
fn all<'call, T>(first: *const T, count: i64) -> &'call [T] {
    match usize::try_from(count) {
        // SAFETY: the contract above.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(first, count) },
        _ => &[],
    }
}

/// Returns the bytes of an element of this type.
fn width(dtype: i32) -> Result<usize, String> {
    Ok(match dtype {
        1 | 2 | 6 | 19 | 20 | 23 | 24 | 25 | 28 | 29 | 33 => 1,
        3 | 7 | 10 | 16 => 2,
        4 | 8 | 11 => 4,
        5 | 9 | 12 | 15 => 8,
        18 => 16,
        _ => {
            return Err(format!(
                "arrays of XLA's element type {dtype} cannot be kept"
            ));
        }
    })
}

/// Makes a capsule of a handler, for `jax.ffi.register_ffi_target`.
///
/// # Errors
/// `MemoryError`.
pub(crate) fn capsule(py: Python<'_>, handler: Handler) -> PyResult<Bound<'_, PyAny>> {
    const NAME: &CStr = c"xla._CUSTOM_CALL_TARGET";
    // SAFETY: the pointer is not null, the name is static, and there is no destructor.
    let capsule = unsafe { ffi::PyCapsule_New(handler as *mut c_void, NAME.as_ptr(), None) };
    if capsule.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: `PyCapsule_New` returned a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
}

/// Returns the address of the number of a run, which has 4 bytes: an address in host memory unless the call has a stream.
pub(crate) fn host_number(span: Span) -> Result<*mut u32, String> {
    match span.bytes() {
        4 => Ok(ptr::with_exposed_provenance_mut(span.address() as usize)),
        bytes => Err(format!(
            "the number of a run has 4 bytes, and this one {bytes}"
        )),
    }
}
