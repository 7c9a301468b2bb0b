//! Locks of versions: many versions are written at a time, each by one thread.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The versions that a thread writes or removes.
#[derive(Debug, Default)]
pub(crate) struct VersionLocks {
    locked: Mutex<BTreeSet<u64>>,
    unlocked: Condvar,
}

impl VersionLocks {
    fn locked(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread has locked this version.
    pub(crate) fn lock(&self, version: u64) -> VersionLock<'_> {
        let is_locked = |versions: &mut BTreeSet<u64>| !versions.insert(version);
        let waited = self.unlocked.wait_while(self.locked(), is_locked);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        VersionLock {
            locks: self,
            version,
        }
    }
}

/// While it lives, no other thread writes or removes this version.
#[derive(Debug)]
pub(crate) struct VersionLock<'l> {
    locks: &'l VersionLocks,
    version: u64,
}

impl Drop for VersionLock<'_> {
    fn drop(&mut self) {
        self.locks.locked().remove(&self.version);
        self.locks.unlocked.notify_all();
    }
}
