//! Storage that is opened when it is first needed.

use parking_lot::Mutex;
use std::sync::Arc;
use tierflow_store::Result;

/// Something that is opened when it is first needed. Storage may hang, so nothing but another opening and [`wait`](Self::wait) waits while it is
/// opened, and nothing while it is used.
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
    /// Returns what is open.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        self.open.lock().clone()
    }

    /// Returns what is open, after the end of an opening that is under way.
    pub(super) fn wait(&self) -> Option<Arc<T>> {
        let _ended = self.opening.lock();
        self.get()
    }

    /// Returns what is open, and opens it where nothing is.
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
