//! The versions that wait to be protected, shared by the threads that save, protect and wait for them.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_sync::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    /// Being saved in the repository.
    saving: BTreeSet<u64>,
    /// Saved, and not protected.
    pending: BTreeSet<u64>,
    /// Being protected.
    protecting: Option<u64>,
    /// The version that is being protected was discarded or removed since that began.
    is_unwanted: bool,
    /// The error since which nothing is protected any more.
    failure: Option<Error>,
    /// The rank protects no more.
    has_ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct PendingVersions {
    state: Mutex<State>,
    changed: Condvar,
    /// Counts the blocks that were read to be protected, and the versions that are.
    progress: AtomicU64,
}

impl PendingVersions {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Enters a version that is about to be saved.
    pub(crate) fn saving(&self, version: u64) -> Saving<'_> {
        self.change(|state| {
            state.saving.insert(version);
        });
        Saving {
            versions: self,
            version,
        }
    }

    /// A block of a version is about to be protected, or all of it is.
    pub(crate) fn go_on(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    pub(crate) fn is_pending(&self, version: u64) -> bool {
        let state = self.state.lock();
        state.pending.contains(&version) || state.saving.contains(&version)
    }

    pub(crate) fn pending(&self) -> Vec<u64> {
        self.state.lock().pending.iter().copied().collect()
    }

    /// Waits until one saved version, or all, are protected or discarded.
    pub(crate) fn wait(&self, version: Option<u64>, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut state = self.state.lock();
        let waits = |state: &State| match version {
            Some(version) => state.pending.contains(&version).then_some(version),
            None => state.pending.first().copied(),
        };
        while let Some(version) = waits(&state) {
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Error::Unprotected { version, patience });
            }
            self.changed.wait_for(&mut state, left);
        }
        Ok(())
    }

    /// Removes versions. One that is being protected is [unwanted](ProtectingVersion::is_unwanted) from now on.
    pub(crate) fn discard(&self, versions: &BTreeSet<u64>) {
        self.change(|state| {
            state.pending.retain(|version| !versions.contains(version));
            let protecting = state.protecting;
            state.is_unwanted |= protecting.is_some_and(|version| versions.contains(&version));
        });
    }

    /// Waits until a version is not being protected, for `patience` at most.
    pub(crate) fn wait_unprotected(&self, version: u64, patience: Duration) {
        let begun = Instant::now();
        let mut state = self.state.lock();
        while state.protecting == Some(version) && begun.elapsed() < patience {
            let left = patience.saturating_sub(begun.elapsed());
            self.changed.wait_for(&mut state, left);
        }
    }

    /// Marks a version that is being protected from now on, unless it was removed or discarded since it was saved.
    pub(crate) fn protecting(&self, version: u64) -> Option<ProtectingVersion<'_>> {
        let mut state = self.state.lock();
        state.pending.contains(&version).then(|| {
            state.protecting = Some(version);
            state.is_unwanted = false;
            ProtectingVersion {
                versions: self,
                version,
            }
        })
    }

    pub(crate) fn end(&self) {
        self.change(|state| state.has_ended = true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Waits until versions are pending, and returns them; `None` once this rank has ended.
    pub(crate) fn next(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        while state.pending.is_empty() && !state.has_ended {
            self.changed.wait(&mut state);
        }
        (!state.has_ended).then(|| state.pending.iter().copied().collect())
    }

    pub(crate) fn fail(&self, error: Error) {
        self.change(|state| state.failure = Some(error));
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }
}

/// A version that is being saved. Dropped, it was not.
#[derive(Debug)]
pub(crate) struct Saving<'a> {
    versions: &'a PendingVersions,
    version: u64,
}

impl Saving<'_> {
    /// Makes the version pending: it was saved.
    pub(crate) fn saved(self) {
        self.versions.change(|state| {
            state.pending.insert(self.version);
        });
    }
}

impl Drop for Saving<'_> {
    fn drop(&mut self) {
        self.versions.change(|state| {
            state.saving.remove(&self.version);
        });
    }
}

/// A version that is being protected. Dropped, it stays pending.
#[derive(Debug)]
pub(crate) struct ProtectingVersion<'a> {
    versions: &'a PendingVersions,
    version: u64,
}

impl ProtectingVersion<'_> {
    /// Returns true if the version was discarded or removed since.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.versions.state.lock().is_unwanted
    }

    /// Ends the version's wait. Another that was saved under the number of an unwanted one waits on.
    pub(crate) fn done(self) {
        self.versions.go_on();
        self.versions.change(|state| {
            if !state.is_unwanted {
                state.pending.remove(&self.version);
            }
        });
    }
}

impl Drop for ProtectingVersion<'_> {
    fn drop(&mut self) {
        self.versions.change(|state| state.protecting = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_waits_though_the_discarded_version_is_protected() {
        let versions = PendingVersions::default();
        let is_pending = || versions.is_pending(3);
        let protect = || versions.protecting(3).unwrap();
        versions.saving(3).saved();
        let first = protect();
        versions.discard(&BTreeSet::from([3]));
        assert!(first.is_unwanted() && !is_pending());
        versions.saving(3).saved();
        // The wait is over after its patience, and takes nothing away.
        versions.wait_unprotected(3, Duration::ZERO);
        first.done();
        assert!(is_pending());
        let second = protect();
        assert!(!second.is_unwanted());
        second.done();
        assert!(!is_pending());
    }
}
