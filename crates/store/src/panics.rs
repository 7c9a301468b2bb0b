//! Catches panics of code that others wrote.

use crate::{Error, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `call` and turns its panic into an error, so that the calling thread lives on. `doing` names the work, as in "writing".
///
/// # Errors
/// The errors of `call`, and [`Error::Panicked`] if it panicked.
pub fn guarded<T>(doing: &'static str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        Err(Error::Panicked {
            doing,
            message: message(&*payload),
        })
    })
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it did not say why".to_owned())
}
