//! A slot for storage that is opened when it is first needed.

use parking_lot::Mutex;
use std::sync::Arc;
use tierflow_store::Result;

/// An object that is opened when it is first needed. Storage may hang: while one thread opens the object, only [`wait`](Self::wait) and another
/// opening wait. No call waits while the object is used.
#[derive(Debug)]
pub(super) struct OpenSlot<T> {
    opening: Mutex<()>,
    pub(super) open: Mutex<Option<Arc<T>>>,
}

impl<T> Default for OpenSlot<T> {
    fn default() -> Self {
        Self {
            opening: Mutex::default(),
            open: Mutex::default(),
        }
    }
}

impl<T> OpenSlot<T> {
    /// Returns the object, if it is open.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        self.open.lock().clone()
    }

    /// Waits for the end of an opening that is under way, and returns the object, if it is open.
    pub(super) fn wait(&self) -> Option<Arc<T>> {
        let _ended = self.opening.lock();
        self.get()
    }

    /// Returns the object, and opens it first if it is not open.
    pub(super) fn get_or_open(&self, open: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        if let Some(open) = self.get() {
            return Ok(open);
        }
        let _one_at_a_time = self.opening.lock();
        if let Some(open) = self.get() {
            return Ok(open);
        }
        let opened = Arc::new(open()?);
        *self.open.lock() = Some(Arc::clone(&opened));
        Ok(opened)
    }
}
