//! A value that threads wait for. A waiting thread sleeps, and checks the value after every change.

use crate::rank::LEAF;
use crate::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// A value that threads wait for, behind a lock with a [rank](crate::rank).
#[derive(Debug, Default)]
pub struct Monitor<T, const RANK: u8 = LEAF> {
    value: Mutex<T, RANK>,
    changed: Condvar,
}

impl<T, const RANK: u8> Monitor<T, RANK> {
    /// Locks the value, to read it or for changes that no thread waits for.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T, RANK> {
        self.value.lock()
    }

    /// Changes the value and wakes the waiting threads, which check it.
    #[track_caller]
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.value.lock());
        self.changed.notify_all();
        changed
    }

    /// Calls `look` with the value, now and after every change, until it returns something.
    #[track_caller]
    pub fn wait<R>(&self, mut look: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut value = self.value.lock();
        loop {
            if let Some(found) = look(&mut value) {
                return found;
            }
            self.changed.wait(&mut value);
        }
    }

    /// Waits like [`wait`](Self::wait), at most until `deadline`. Returns `None` if `look` returned nothing by then.
    #[track_caller]
    pub fn wait_until<R>(
        &self,
        deadline: Instant,
        mut look: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let mut value = self.value.lock();
        loop {
            let found = look(&mut value);
            if found.is_some() || self.changed.wait_until(&mut value, deadline).timed_out() {
                return found.or_else(|| look(&mut value));
            }
        }
    }
}
