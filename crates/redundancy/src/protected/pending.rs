//! The versions that wait to be protected, shared by the threads that save, protect and wait for them.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_sync::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    /// Versions that are being saved in the repository.
    saving: BTreeSet<u64>,
    /// Versions that are saved, and not protected yet.
    pending: BTreeSet<u64>,
    /// The version that is being protected.
    protecting: Option<u64>,
    /// True if the version in `protecting` was discarded or removed since its protection began.
    is_unwanted: bool,
    /// The error since which nothing is protected any more.
    failure: Option<Error>,
    /// True if the rank protects no more.
    has_ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct PendingVersions {
    state: Mutex<State>,
    changed: Condvar,
    /// Number of blocks that were read to be protected, plus the number of protected versions.
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

    /// Counts progress: a block is about to be protected, or a whole version is.
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

    /// Waits until one saved version, or all saved versions, are protected or discarded.
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

    /// Removes versions. A removed version that is being protected is [unwanted](ProtectingVersion::is_unwanted) from now on.
    pub(crate) fn discard(&self, versions: &BTreeSet<u64>) {
        self.change(|state| {
            state.pending.retain(|version| !versions.contains(version));
            let protecting = state.protecting;
            state.is_unwanted |= protecting.is_some_and(|version| versions.contains(&version));
        });
    }

    /// Waits at most `patience` until a version is not being protected.
    pub(crate) fn wait_unprotected(&self, version: u64, patience: Duration) {
        let begun = Instant::now();
        let mut state = self.state.lock();
        while state.protecting == Some(version) && begun.elapsed() < patience {
            let left = patience.saturating_sub(begun.elapsed());
            self.changed.wait_for(&mut state, left);
        }
    }

    /// Marks a version as being protected until the returned value is dropped. Returns `None` if the version was removed or discarded
    /// since it was saved.
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

    /// Waits until versions are pending, and returns them; `None` once this rank has ended or nothing is protected any more.
    pub(crate) fn next(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        let ends = |state: &State| state.has_ended || state.failure.is_some();
        while state.pending.is_empty() && !ends(&state) {
            self.changed.wait(&mut state);
        }
        (!ends(&state)).then(|| state.pending.iter().copied().collect())
    }

    pub(crate) fn fail(&self, error: Error) {
        self.change(|state| state.failure = Some(error));
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }
}

/// A version that is being saved. If this value is dropped without [`Saving::saved`], the version does not become pending.
#[derive(Debug)]
pub(crate) struct Saving<'a> {
    versions: &'a PendingVersions,
    version: u64,
}

impl Saving<'_> {
    /// Makes the version pending, as it is saved.
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

/// A version that is being protected. If this value is dropped without [`ProtectingVersion::done`], the version stays pending.
#[derive(Debug)]
pub(crate) struct ProtectingVersion<'a> {
    versions: &'a PendingVersions,
    version: u64,
}

impl ProtectingVersion<'_> {
    /// Returns true if the version was discarded or removed since its protection began.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.versions.state.lock().is_unwanted
    }

    /// Removes the version from the pending ones. If the version is unwanted, another version with its number stays pending.
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
        // The wait ends after its patience, and changes nothing.
        versions.wait_unprotected(3, Duration::ZERO);
        first.done();
        assert!(is_pending());
        let second = protect();
        assert!(!second.is_unwanted());
        second.done();
        assert!(!is_pending());
    }
}
