//! Values that belong to one process, and functions that are called at its end. A fork starts without the values, and touches no lock of
//! its parent.

#![allow(
    unsafe_code,
    reason = "a value that no lock of the parent's protects; the C library's list of calls at the end"
)]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use tierflow_device::OwnerProcess;

/// A value of this process, which is made at the first use and never dropped.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<Owned<T>>);

#[derive(Debug)]
struct Owned<T> {
    process: OwnerProcess,
    /// The process that had such a value before, of which this one is a fork.
    parent: Option<OwnerProcess>,
    value: T,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// Makes an empty value, for a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn owned(&self) -> &'static Owned<T> {
        let process = OwnerProcess::current();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or came from `Box::into_raw` below and is never dropped.
        let known = unsafe { found.as_ref() };
        if let Some(known) = known.filter(|known| known.process == process) {
            return known;
        }
        let made = Box::into_raw(Box::new(Owned {
            process,
            parent: known.map(|known| known.process),
            value: T::default(),
        }));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let kept = match self.0.compare_exchange(found, made, order.0, order.1) {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: the pointer was made above, and no other thread has it.
                drop(unsafe { Box::from_raw(made) });
                first
            }
        };
        // SAFETY: the pointer came from `Box::into_raw`, here or on the thread that came first, and is never dropped.
        unsafe { &*kept }
    }

    /// Returns the value of this process.
    pub fn get(&self) -> &'static T {
        &self.owned().value
    }

    /// Returns the number of the process that this one is a fork of, if that process had such a value.
    pub fn parent(&self) -> Option<u32> {
        self.owned().parent.map(OwnerProcess::id)
    }
}

impl<T: Default + Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
}

/// Registers a function that is called when this process returns from `main` or calls `exit`, or when the library is unloaded. The function
/// that was registered last is called first. A fork inherits the list. Returns false if the list is full.
pub fn at_exit(call: extern "C" fn()) -> bool {
    // SAFETY: the C library's `atexit` takes a function, and `call` exists until the library is unloaded.
    unsafe { atexit(call) == 0 }
}
