//! Protects versions one after the other, in rounds of all members of a set: each sends the list of its pending versions, and they
//! protect the oldest that is in all lists.

use super::pending::PendingVersions;
use crate::inventory::ToRebuild;
use crate::{Error, Exchange, ParityStore, Pieces, Rebuilt, Result, Set, Transport};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::{Error as StoreError, Repository, guarded};

/// The time between two rounds in which no version was in all lists.
const PAUSE: Duration = Duration::from_millis(5);

/// A rank's side of the rounds.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) set: Set,
    pub(super) rank: u32,
    pub(super) start: u64,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) repository: Arc<Repository>,
    pub(super) store: Arc<ParityStore>,
    pub(super) pending: Arc<PendingVersions>,
    pub(super) patience: Duration,
}

impl Worker {
    fn exchange(&self) -> Result<Exchange<'_>> {
        let (transport, store) = (&*self.transport, &*self.store);
        let exchange = Exchange::new(&self.set, self.rank, transport, store, self.patience)?;
        Ok(exchange.of_start(self.start))
    }

    fn pieces(&self) -> Result<Pieces<'_>> {
        Ok(Pieces::new(&self.repository, self.exchange()?, &self.store))
    }

    /// Rebuilds what the members of a set lost of a version that they protected. Returns the reason within if it cannot be rebuilt.
    pub(super) fn rebuild(
        &mut self,
        one: &ToRebuild,
    ) -> Result<std::result::Result<Rebuilt, Error>> {
        self.set = one.set.clone();
        let exchange = self.exchange()?.beside(&one.is_elsewhere);
        let pieces = Pieces::new(&self.repository, exchange, &self.store);
        match pieces.rebuild(one.version) {
            Ok(rebuilt) => Ok(Ok(rebuilt)),
            Err(error) if error.lost_version().is_some() || matches!(error, Error::Store(_)) => {
                Ok(Err(error))
            }
            Err(error) => Err(self.leave(error)),
        }
    }

    /// Protects the versions that all members have and that are not protected, as the members ended before they were, or as what
    /// was protected under these numbers was `given_up`. Not those that this rank `need_not` protect.
    pub(super) fn protect_rest(
        &self,
        given_up: &BTreeSet<u64>,
        need_not: &BTreeSet<u64>,
    ) -> Result<()> {
        let protect = || {
            let mut protected = self.store.versions()?;
            protected.retain(|version| !given_up.contains(version));
            self.pieces()?.protect_but(&protected, need_not)
        };
        if self.set.tolerates > 0
            && let Err(error) = protect()
        {
            return Err(self.leave(error));
        }
        self.transport.flush(self.patience)
    }

    /// Tells the others that this rank takes part in no more calls. If that message fails, their calls end after their patience.
    fn leave(&self, error: Error) -> Error {
        let _sent = self.exchange().and_then(|exchange| exchange.leave());
        error
    }

    /// Protects pending versions until this rank ends, or an error. A panic of the application's transport is one.
    pub(super) fn run(&self) {
        let protect = || {
            while let Some(mine) = self.pending.next() {
                if !self.round(&mine)? {
                    break;
                }
            }
            Ok(())
        };
        let ended = guarded("protecting versions", || Ok(protect()));
        if let Err(error) = ended.unwrap_or_else(|panic| Err(panic.into())) {
            self.pending.fail(error);
        }
        // Members that still wait for this rank's list get an error now.
        let leave = || self.exchange().and_then(|exchange| exchange.leave());
        let _sent = guarded("leaving its set", || Ok(leave()));
    }

    /// Protects a version in a round of the set. Returns false if this rank ends.
    fn round(&self, mine: &[u64]) -> Result<bool> {
        let has_ended = || self.pending.has_ended();
        let Some(all) = self.exchange()?.ready(mine, &has_ended)? else {
            return Ok(false);
        };
        match common(mine, &all).next() {
            Some(version) => self.protect(version)?,
            None => std::thread::sleep(PAUSE),
        }
        Ok(true)
    }

    /// Protects the versions that are in the lists of all members, in calls of their applications.
    pub(super) fn protect_all(&self) -> Result<()> {
        if let Some(error) = self.pending.failure() {
            return Err(error);
        }
        let mine = self.pending.pending();
        let protect = || {
            let all = self.exchange()?.ready_now(&mine)?;
            common(&mine, &all).try_for_each(|version| self.protect(version))?;
            self.transport.flush(self.patience)
        };
        protect().inspect_err(|error| self.pending.fail(self.leave(error.clone())))
    }

    fn protect(&self, version: u64) -> Result<()> {
        // Until it is done, a removal of the version waits, and a note that it is discarded does not.
        let protecting = self.pending.protecting(version);
        let own_piece = || self.repository.own_piece(version);
        let piece = match protecting.as_ref().map(|_| own_piece()) {
            // The version was removed or given up since it was saved. A piece that is there and cannot be opened is an error of all
            // members.
            None | Some(Err(StoreError::NoVersion { .. } | StoreError::GivenUp { .. })) => None,
            Some(piece) => Some(piece?),
        };
        let is_on_all = self.exchange()?.all_have(version, piece.is_some())?;
        if is_on_all && let Some(piece) = piece {
            self.store.remove_given_up();
            // No member has anything of an earlier version of this number any more. A version that was discarded meanwhile stays so: the
            // others count on this member's shares, and what they protect does not count.
            let is_wanted = || protecting.as_ref().is_some_and(|it| !it.is_unwanted());
            self.store.take_back(version, self.start, is_wanted)?;
            let pending = Arc::clone(&self.pending);
            // The closure is asked between two blocks.
            let piece = piece.unless(move || {
                pending.go_on();
                false
            });
            self.pieces()?.protect_piece(version, &piece)?;
            self.store.remove_left();
        }
        if let Some(protecting) = protecting {
            protecting.done();
        }
        Ok(())
    }
}

/// The versions of this member that are in all lists, the oldest first.
fn common<'a>(mine: &'a [u64], all: &'a [Vec<u64>]) -> impl Iterator<Item = u64> + 'a {
    let has = |version: &u64| all.iter().all(|ready| ready.binary_search(version).is_ok());
    mine.iter().copied().filter(has)
}
