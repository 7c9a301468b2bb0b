//! Handles: numbers that C holds instead of pointers, so that one that is closed, or of another process, is recognised.
//!
//! The upper half of a handle is the process, the lower half a number that is never given twice.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::failure::{Failure, Outcome, Status};
use crate::process::PerProcess;

type Table = HashMap<u64, Arc<dyn Any + Send + Sync>>;

static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();
static LAST: AtomicU32 = AtomicU32::new(0);

/// Gives `value` a handle.
pub(crate) fn insert<T: Send + Sync + 'static>(value: T) -> u64 {
    share(&Arc::new(value))
}

/// Gives what others hold, too, a handle.
pub(crate) fn share<T: Send + Sync + 'static>(value: &Arc<T>) -> u64 {
    let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let handle = u64::from(std::process::id()) << 32 | u64::from(number);
    TABLE.get().lock().insert(handle, Arc::clone(value) as _);
    handle
}

fn at_home(handle: u64, what: &str) -> Outcome {
    let (process, own) = ((handle >> 32) as u32, std::process::id());
    if handle == 0 {
        return Err(Failure::argument(format!("the {what} is 0, which is none")));
    }
    if process != own {
        let text = format!(
            "the {what} belongs to process {process}, of which this one is a fork: open one here, or keep to that process"
        );
        return Err(Failure::new(Status::Closed, text));
    }
    Ok(())
}

fn closed(what: &str) -> Failure {
    let text = format!("the {what} is closed, or was never there");
    Failure::new(Status::Closed, text)
}

/// What a handle names.
pub(crate) fn get<T: Send + Sync + 'static>(handle: u64, what: &str) -> Outcome<Arc<T>> {
    at_home(handle, what)?;
    let found = TABLE.get().lock().get(&handle).cloned();
    let found = found.and_then(|found| found.downcast().ok());
    found.ok_or_else(|| closed(what))
}

/// What a handle named, which names nothing from now on.
///
/// # Errors
/// Also if a call of another thread's, or something made of it, uses it: the handle stays.
pub(crate) fn take<T: Send + Sync + 'static>(handle: u64, what: &str) -> Outcome<T> {
    at_home(handle, what)?;
    let mut table = TABLE.get().lock();
    let is_one = table.get(&handle).is_some_and(|found| found.is::<T>());
    let found = if is_one { table.remove(&handle) } else { None };
    let found: Arc<T> = found
        .and_then(|found| found.downcast().ok())
        .ok_or_else(|| closed(what))?;
    Arc::try_unwrap(found).map_err(|used| {
        table.insert(handle, used);
        Failure::argument(format!(
            "the {what} is in use: give back what it lent, and let its calls end before"
        ))
    })
}

/// Undoes [`take`].
pub(crate) fn put_back<T: Send + Sync + 'static>(handle: u64, value: T) {
    TABLE.get().lock().insert(handle, Arc::new(value));
}

/// Lets a handle name nothing from now on.
pub(crate) fn forget(handle: u64) {
    TABLE.get().lock().remove(&handle);
}
