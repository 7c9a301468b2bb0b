//! A value that threads wait for: who waits sleeps, and looks again at every change.

use parking_lot::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Monitor<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    /// For looks, and for changes that let no thread go on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock()
    }

    /// Changes the value, and has those who wait look at it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.value.lock());
        self.changed.notify_all();
        changed
    }

    /// Looks at the value, now and after every change, until `look` returns something.
    pub(crate) fn wait<R>(&self, mut look: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut value = self.value.lock();
        loop {
            if let Some(found) = look(&mut value) {
                return found;
            }
            self.changed.wait(&mut value);
        }
    }
}
