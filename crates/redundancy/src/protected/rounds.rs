//! The thread that protects versions, one after the other, in rounds of all members: each tells which of its versions wait, and
//! they protect the oldest that all have.

use crate::{Error, Exchange, Keep, Pieces, Result, Set, Transport};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tierflow_store::Repository;

/// How long members wait before they look again whether there is a version that all have.
const PAUSE: Duration = Duration::from_millis(5);

/// Which versions wait for their protection.
#[derive(Debug, Default)]
struct State {
    pending: BTreeSet<u64>,
    /// Why nothing is protected any more.
    broken: Option<Error>,
    has_ended: bool,
}

/// What the thread and those who wait for it share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_pending(&self, version: u64) -> bool {
        self.state().pending.contains(&version)
    }

    /// Waits until a version is protected, or was given up.
    pub(super) fn wait(&self, version: u64, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut state = self.state();
        state.pending.insert(version);
        self.changed.notify_all();
        while state.pending.contains(&version) {
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

    /// A version is protected, or not wanted any more.
    pub(super) fn forget(&self, version: u64) {
        self.state().pending.remove(&version);
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// The versions that wait, once there are some; `None` in the end.
    fn next(&self) -> Option<Vec<u64>> {
        let mut state = self.state();
        while state.pending.is_empty() && !state.has_ended {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        (!state.has_ended).then(|| state.pending.iter().copied().collect())
    }

    fn fail(&self, error: Error) {
        self.state().broken = Some(error);
        self.changed.notify_all();
    }
}

/// What the thread works with.
pub(super) struct Rounds {
    pub(super) set: Set,
    pub(super) rank: u32,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) repository: Arc<Repository>,
    pub(super) keep: Arc<Keep>,
    pub(super) shared: Arc<Shared>,
    pub(super) patience: Duration,
}

impl Rounds {
    pub(super) fn run(&self) {
        while let Some(mine) = self.shared.next() {
            match self.round(&mine) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.shared.fail(error);
                    return;
                }
            }
        }
        // Those who still wait for this rank's versions wait in vain, and hear so. If they cannot be told, patience tells them.
        let _told = self.exchange().and_then(|exchange| exchange.leave());
    }

    fn exchange(&self) -> Result<Exchange<'_>> {
        Exchange::new(
            &self.set,
            self.rank,
            &*self.transport,
            &self.keep,
            self.patience,
        )
    }

    /// One round; `false` if this rank ends.
    fn round(&self, mine: &[u64]) -> Result<bool> {
        let exchange = self.exchange()?;
        let Some(all) = exchange.ready(mine, &|| self.shared.has_ended())? else {
            return Ok(false);
        };
        let has = |version: &&u64| all.iter().all(|ready| ready.binary_search(version).is_ok());
        let Some(&version) = mine.iter().find(has) else {
            std::thread::sleep(PAUSE);
            return Ok(true);
        };
        let piece = self.repository.own_piece(version);
        let is_there = exchange.all_have(version, piece.is_ok())?;
        if is_there && let Ok(piece) = piece {
            Pieces::new(&self.repository, exchange, &self.keep).protect_piece(version, &piece)?;
        }
        self.shared.forget(version);
        Ok(true)
    }
}
