//! Values of one process: a fork starts with none, and touches no lock of its parent's. And calls at its end.

#![allow(
    unsafe_code,
    reason = "a value that no lock of the parent's protects; the C library's list of calls at the end"
)]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use tierflow_device::OwnerProcess;

/// A value of this process's, made when it is first asked for, that is never dropped.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<Owned<T>>);

#[derive(Debug)]
struct Owned<T> {
    process: OwnerProcess,
    /// The process that this one is a fork of, if that had one, too.
    parent: Option<OwnerProcess>,
    value: T,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// For a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn owned(&self) -> &'static Owned<T> {
        let process = OwnerProcess::current();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: null, or from `Box::into_raw` below, and never dropped.
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
                // SAFETY: from above, and not shared.
                drop(unsafe { Box::from_raw(made) });
                first
            }
        };
        // SAFETY: from `Box::into_raw`, here or by the thread that came first, and never dropped.
        unsafe { &*kept }
    }

    /// The value of this process.
    pub fn get(&self) -> &'static T {
        &self.owned().value
    }

    /// The process that this one is a fork of, if it had such a value.
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

/// Has a function called when this process returns from `main` or calls `exit`, or when the library is unloaded; of several, the
/// one that was given last comes first. A fork has the same calls. Returns true if there was room for it.
pub fn at_exit(call: extern "C" fn()) -> bool {
    // SAFETY: a function of C's that takes one, which is there until the library is unloaded.
    unsafe { atexit(call) == 0 }
}
