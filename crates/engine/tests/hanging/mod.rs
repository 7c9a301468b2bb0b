//! A vault that hangs when it is asked for some versions.
#![allow(
    dead_code,
    reason = "it serves several tests, and not all of them use all of it"
)]

use super::vaults::{Call, Watch};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use tierflow_engine::Version;

/// A vault that hangs when it is asked for some versions.
#[derive(Debug, Default)]
pub(crate) struct Hanging {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    held: BTreeSet<Version>,
    /// Versions that arrived, in order.
    pub(crate) came: Vec<Version>,
}

impl Hanging {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn hold(&self, versions: impl IntoIterator<Item = Version>) {
        self.state().held.extend(versions);
    }

    pub(crate) fn release(&self, version: Version) {
        self.state().held.remove(&version);
        self.changed.notify_all();
    }

    pub(crate) fn release_all(&self) {
        self.state().held.clear();
        self.changed.notify_all();
    }

    fn pass(&self, version: Version) {
        let mut state = self.state();
        state.came.push(version);
        self.changed.notify_all();
        let hangs = |state: &mut State| state.held.contains(&version);
        drop(self.changed.wait_while(state, hangs).unwrap());
    }

    pub(crate) fn wait_until_it_came(&self, version: Version) {
        let is_missing = |state: &mut State| !state.came.contains(&version);
        drop(self.changed.wait_while(self.state(), is_missing).unwrap());
    }
}

impl Watch for Hanging {
    fn meet(&self, call: Call<'_>) -> tierflow_store::Result<()> {
        match call {
            Call::Open(version) | Call::Save(version) => self.pass(version),
            Call::Copy(piece) => self.pass(piece.version()),
            Call::List | Call::Saved(..) | Call::Remove => {}
        }
        Ok(())
    }
}
