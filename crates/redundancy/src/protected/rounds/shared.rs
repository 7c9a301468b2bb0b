//! Which versions wait for their protection.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct State {
    /// On their way to the repository.
    expected: BTreeSet<u64>,
    /// There, and not protected.
    pending: BTreeSet<u64>,
    /// Which the members protect now.
    working: Option<u64>,
    /// Why nothing is protected any more.
    broken: Option<Error>,
    has_ended: bool,
}

/// What those who save, those who protect and those who wait for it share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// A version is about to be saved.
    pub(crate) fn expect(&self, version: u64) -> Claim<'_> {
        self.change(|state| {
            state.expected.insert(version);
        });
        Claim {
            shared: self,
            version,
        }
    }

    pub(crate) fn is_pending(&self, version: u64) -> bool {
        let state = self.state();
        state.pending.contains(&version) || state.expected.contains(&version)
    }

    pub(crate) fn pending(&self) -> Vec<u64> {
        self.state().pending.iter().copied().collect()
    }

    /// Waits until all that is there, or one version, is protected or was given up.
    pub(crate) fn wait(&self, version: Option<u64>, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut state = self.state();
        let waits = |state: &State| match version {
            Some(version) => state.pending.contains(&version).then_some(version),
            None => state.pending.first().copied(),
        };
        while let Some(version) = waits(&state) {
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Error::Unprotected { version, patience });
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// A version is not wanted any more: once the members are done with it, or patience is.
    pub(crate) fn give_up(&self, version: u64, patience: Duration) {
        let begun = Instant::now();
        let mut state = self.state();
        while state.working == Some(version) && begun.elapsed() < patience {
            let left = patience.saturating_sub(begun.elapsed());
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.pending.remove(&version);
        drop(state);
        self.changed.notify_all();
    }

    /// The members protect a version now.
    pub(crate) fn work_on(&self, version: u64) -> Working<'_> {
        self.change(|state| state.working = Some(version));
        Working {
            shared: self,
            version,
        }
    }

    pub(crate) fn end(&self) {
        self.change(|state| state.has_ended = true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// The versions that wait, once there are some; `None` in the end.
    pub(crate) fn next(&self) -> Option<Vec<u64>> {
        let mut state = self.state();
        while state.pending.is_empty() && !state.has_ended {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        (!state.has_ended).then(|| state.pending.iter().copied().collect())
    }

    pub(crate) fn fail(&self, error: Error) {
        self.change(|state| state.broken = Some(error));
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.state().broken.clone()
    }
}

/// A version on its way to the repository; given up, it did not get there.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    shared: &'a Shared,
    version: u64,
}

impl Claim<'_> {
    /// It is there.
    pub(crate) fn saved(self) {
        self.shared.change(|state| {
            state.pending.insert(self.version);
        });
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.expected.remove(&self.version);
        });
    }
}

/// The members are at a version; given up, it waits again.
#[derive(Debug)]
pub(crate) struct Working<'a> {
    shared: &'a Shared,
    version: u64,
}

impl Working<'_> {
    /// It is protected, or not wanted any more.
    pub(crate) fn done(self) {
        self.shared.change(|state| {
            state.pending.remove(&self.version);
        });
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.shared.change(|state| state.working = None);
    }
}
