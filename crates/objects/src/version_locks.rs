//! Whose turn it is: many versions are written at a time, and each by one thread.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The versions that are being written, or removed.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    versions: Mutex<BTreeSet<u64>>,
    ended: Condvar,
}

impl Saving {
    fn versions(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else has this version in hands.
    pub(crate) fn begin(&self, version: u64) -> Turn<'_> {
        let is_taken = |versions: &mut BTreeSet<u64>| !versions.insert(version);
        let waited = self.ended.wait_while(self.versions(), is_taken);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Turn {
            saving: self,
            version,
        }
    }
}

/// Until it is dropped, nobody else writes this version.
#[derive(Debug)]
pub(crate) struct Turn<'s> {
    saving: &'s Saving,
    version: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.saving.versions().remove(&self.version);
        self.saving.ended.notify_all();
    }
}
