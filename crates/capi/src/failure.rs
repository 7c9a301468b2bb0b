//! Turns failures and panics into statuses and messages for C.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use tierflow_bind::{Failure, Outcome, Status};

thread_local! {
    /// The message of this thread's last failed call.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs a call and turns a panic into a failure.
pub(crate) fn caught<T>(call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned());
        let what = what.unwrap_or_default();
        let text = format!("a defect of tierflow, please report it: {what}");
        Err(Failure::new(Status::Internal, text))
    })
}

/// Runs a call from C: panics do not unwind beyond it, and the message of a failure is kept for [`tf_error_message`].
pub(crate) fn guarded<T>(call: impl FnOnce() -> Outcome<T>) -> Result<T, Status> {
    caught(call).map_err(|failure| {
        let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
        // While the thread ends, its message is gone already, and no call can read it.
        let _noted = MESSAGE.try_with(|message| message.replace(text));
        failure.status
    })
}

/// Runs a call as [`guarded`] does, and returns its `tf_status`.
pub(crate) fn status(call: impl FnOnce() -> Outcome) -> c_int {
    guarded(call).map_or_else(|status| status as c_int, |()| Status::Ok as c_int)
}

/// Exports functions under their names. Each runs its body by [`status`] and returns the `tf_status` to C.
macro_rules! exported {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $body:block)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> std::ffi::c_int {
            crate::failure::status(|| $body)
        })*
    };
}
pub(crate) use exported;

/// Returns the message of this thread's last failed call.
pub(crate) fn message() -> String {
    let read = |message: &RefCell<CString>| message.borrow().to_string_lossy().into_owned();
    MESSAGE.try_with(read).unwrap_or_default()
}

#[unsafe(no_mangle)]
extern "C" fn tf_error_message() -> *const c_char {
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
