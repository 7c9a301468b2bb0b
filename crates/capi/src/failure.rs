//! Failures, sorted by what the caller does next, and how they reach C.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tierflow_device::Error as DeviceError;
use tierflow_engine::{BuildError, Error};
use tierflow_store::Error as StoreError;

/// The codes of `enum tf_status` in `tierflow.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    Ok = 0,
    /// Correct the call, or the options.
    Argument = 1,
    /// Ask for another version.
    Unknown = 2,
    /// Make room, then call again.
    NoRoom = 3,
    /// Wait again, or go on without it.
    TimedOut = 4,
    /// Some versions are not on the lowest tier: see why, and wait again.
    Stalled = 5,
    /// Go on from an older version.
    Damaged = 6,
    /// See to the storage.
    Storage = 7,
    /// See to the device.
    Device = 8,
    /// Start all ranks together, as many as there were.
    Group = 9,
    /// What was named is closed, or another process's.
    Closed = 10,
    /// A defect of the library: report it.
    Internal = 11,
}

/// A call that did not do as asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Status::Argument, text)
    }

    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(Status::Storage, format!("{}: {error}", path.display()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Unknown { .. } | Error::Discarded { .. } => Status::Unknown,
            Error::NoRoom { .. } => Status::NoRoom,
            Error::TimedOut { .. } => Status::TimedOut,
            Error::Stalled { .. } => Status::Stalled,
            Error::OtherProcess { .. } => Status::Closed,
            Error::Build(BuildError::OtherGroup { .. } | BuildError::OtherRun { .. }) => {
                Status::Group
            }
            Error::Build(BuildError::Unreadable { .. }) => Status::Storage,
            Error::Internal { .. } => Status::Internal,
            Error::Storage(error) => of_storage(error),
            Error::Device(error) => of_device(error),
            Error::Damaged(_) => Status::Damaged,
            Error::Pool(_) => Status::Storage,
            Error::Thread(_) => Status::Device,
            _ => Status::Argument,
        };
        Self::new(status, error.to_string())
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::new(of_device(&error), error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(of_storage(&error), error.to_string())
    }
}

impl From<tierflow_redundancy::Error> for Failure {
    fn from(error: tierflow_redundancy::Error) -> Self {
        Self::new(Status::Storage, error.to_string())
    }
}

fn of_storage(error: &StoreError) -> Status {
    match error {
        StoreError::Damaged { .. } | StoreError::Lost { .. } => Status::Damaged,
        StoreError::NoVersion { .. } => Status::Unknown,
        StoreError::Absent { .. } | StoreError::Unprotected(_) => Status::Group,
        StoreError::Argument(_) | StoreError::Exists { .. } => Status::Argument,
        _ => Status::Storage,
    }
}

fn of_device(error: &DeviceError) -> Status {
    match error {
        DeviceError::OutOfMemory { .. } => Status::NoRoom,
        DeviceError::Invalid(_) | DeviceError::Unavailable(_) => Status::Argument,
        _ => Status::Device,
    }
}

thread_local! {
    /// What the last failed call of this thread says.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs a call from C: panics do not unwind beyond it, and a failure is kept for [`tf_error_message`].
pub(crate) fn guarded<T>(call: impl FnOnce() -> Outcome<T>) -> Result<T, Status> {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned());
        let what = what.unwrap_or_default();
        let text = format!("a defect of tierflow, please report it: {what}");
        Err(Failure::new(Status::Internal, text))
    });
    outcome.map_err(|failure| {
        let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
        // At a thread's end it cannot be read any more.
        let _noted = MESSAGE.try_with(|message| message.replace(text));
        failure.status
    })
}

/// [`guarded`], as a `tf_status`.
pub(crate) fn status(call: impl FnOnce() -> Outcome) -> c_int {
    guarded(call).map_or_else(|status| status as c_int, |()| Status::Ok as c_int)
}

/// What the last call of this thread that failed says.
pub(crate) fn message() -> String {
    let read = |message: &RefCell<CString>| message.borrow().to_string_lossy().into_owned();
    MESSAGE.try_with(read).unwrap_or_default()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_error_message() -> *const c_char {
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
