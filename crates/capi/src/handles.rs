//! Handles: numbers that C holds instead of pointers, so that the library recognises handles that are closed or belong to another process.
//!
//! The upper half of a handle is the process, the lower half a number that no other open object has, and that is
//! given again after 2^32 others at the earliest.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tierflow_bind::PerProcess;
use tierflow_device::OwnerProcess;

use crate::failure::{Failure, Outcome, Status};

type Table = HashMap<u64, Arc<dyn Any + Send + Sync>>;

static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();
static LAST: AtomicU32 = AtomicU32::new(0);

/// The kinds of objects that handles name, with the header's names for them.
pub(crate) trait Named: Send + Sync + 'static {
    const NAME: &'static str;
}

/// A handle as C passes it. The number may name an object of any kind, or nothing.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Handle<T>(u64, PhantomData<fn() -> T>);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T: Named> Handle<T> {
    pub(crate) const NONE: Self = Self(0, PhantomData);

    /// Gives `value` a handle.
    pub(crate) fn new(value: T) -> Self {
        Self::of(&Arc::new(value))
    }

    /// Gives an object that others hold, too, a handle.
    pub(crate) fn of(value: &Arc<T>) -> Self {
        let mut table = TABLE.get().lock();
        loop {
            let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let handle = u64::from(OwnerProcess::current().id()) << 32 | u64::from(number);
            if let Entry::Vacant(free) = table.entry(handle) {
                free.insert(Arc::clone(value) as _);
                return Self(handle, PhantomData);
            }
        }
    }

    fn at_home(self) -> Outcome {
        let (what, process, own) = (T::NAME, (self.0 >> 32) as u32, OwnerProcess::current().id());
        if self.0 == 0 {
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

    /// Returns the object that the handle names.
    pub(crate) fn get(self) -> Outcome<Arc<T>> {
        self.at_home()?;
        let found = TABLE.get().lock().get(&self.0).cloned();
        let found = found.and_then(|found| found.downcast().ok());
        found.ok_or_else(closed::<T>)
    }

    /// Returns the object that the handle named. The handle names nothing from now on.
    ///
    /// # Errors
    /// `Status::Argument` if the handle is 0, or if another thread's call or an object made of this one uses it: the handle stays.
    /// `Status::Closed` if the handle is closed or belongs to another process.
    pub(crate) fn take(self) -> Outcome<T> {
        self.at_home()?;
        let mut table = TABLE.get().lock();
        let is_one = table.get(&self.0).is_some_and(|found| found.is::<T>());
        let found = if is_one { table.remove(&self.0) } else { None };
        let found: Arc<T> = found
            .and_then(|found| found.downcast().ok())
            .ok_or_else(closed::<T>)?;
        Arc::try_unwrap(found).map_err(|used| {
            table.insert(self.0, used);
            let what = T::NAME;
            Failure::argument(format!(
                "the {what} is in use: give back what it lent, and let its calls end before"
            ))
        })
    }

    /// Names `value` by this handle again: undoes [`take`](Self::take).
    pub(crate) fn put_back(self, value: T) {
        TABLE.get().lock().insert(self.0, Arc::new(value));
    }

    /// Removes the handle from the table: it names nothing from now on.
    pub(crate) fn forget(self) {
        TABLE.get().lock().remove(&self.0);
    }
}

fn closed<T: Named>() -> Failure {
    let text = format!("the {} is closed, or was never there", T::NAME);
    Failure::new(Status::Closed, text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    struct Number(u32);

    impl Named for Number {
        const NAME: &'static str = "number";
    }

    #[test]
    fn numbers_that_begin_anew_replace_no_open_object() {
        let first = Handle::new(Number(1));
        LAST.store((first.0 as u32).wrapping_sub(1), Ordering::Relaxed);
        let second = Handle::new(Number(2));
        assert_eq!(first.get().unwrap().0, 1);
        assert_eq!(second.take().unwrap().0, 2);
        first.forget();
    }
}
