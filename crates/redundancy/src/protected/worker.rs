//! Protecting versions one after the other, in rounds of all members of a set. In a round, each member sends the list of its pending
//! versions, and the members protect the oldest version that is in all lists.

use super::pending::PendingVersions;
use crate::inventory::ToRebuild;
use crate::{Error, Exchange, ParityStore, Pieces, Rebuilt, Result, Set, Transport};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::{Error as StoreError, Repository, guarded};

/// The time between a round in which no version was in all lists and the next round.
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

    /// Rebuilds the pieces and the parity that the members of a set lost of a version. The inner error is the reason why the version
    /// cannot be rebuilt; after the outer error, this rank takes part in no more calls.
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

    /// Protects the versions that all members have and that are not protected: the members ended before, or the protected versions of
    /// these numbers were `given_up`. Leaves out the versions that this rank `need_not` protect.
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
        if self.set.tolerates > 0 {
            match protect() {
                Ok(_) => {}
                // The start needs no space. All members know, and protect nothing from now on.
                Err(error @ Error::Unstored { .. }) => self.pending.fail(error),
                Err(error) => return Err(self.leave(error)),
            }
        }
        self.transport.flush(self.patience)
    }

    /// Tells the other members that this rank takes part in no more calls, and returns `error`. If the message fails, their calls end
    /// after their patience.
    fn leave(&self, error: Error) -> Error {
        let _sent = self.exchange().and_then(|exchange| exchange.leave());
        error
    }

    /// Protects pending versions until this rank ends, or an error occurs. A panic of the application's transport counts as an error.
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
        // Other members that wait for this rank's list get an error now.
        let leave = || self.exchange().and_then(|exchange| exchange.leave());
        let _sent = guarded("leaving its set", || Ok(leave()));
    }

    /// Takes part in a round of the set, which protects at most one version. Returns false if this rank ends.
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
        // While `protecting` lives, a removal of the version waits; a note that the version is discarded does not wait.
        let protecting = self.pending.protecting(version);
        let own_piece = || self.repository.own_piece(version);
        let piece = match protecting.as_ref().map(|_| own_piece()) {
            // The version was removed or given up since it was saved. If the piece is there and cannot be opened, that is an error for
            // all members.
            None | Some(Err(StoreError::NoVersion { .. } | StoreError::GivenUp { .. })) => None,
            Some(piece) => Some(piece?),
        };
        let is_on_all = self.exchange()?.all_have(version, piece.is_some())?;
        if is_on_all && let Some(piece) = piece {
            self.store.remove_given_up();
            // No member has files of an earlier version of this number any more. A version that was discarded meanwhile stays discarded.
            // The version is protected nevertheless, as the other members need this member's shards, but the protection does not count.
            let is_wanted = || protecting.as_ref().is_some_and(|it| !it.is_unwanted());
            self.store.take_back(version, self.start, is_wanted)?;
            let pending = Arc::clone(&self.pending);
            // The closure is called between two blocks: it counts progress, and cancels nothing.
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

/// Returns the versions of this member that are in all lists, the oldest first.
fn common<'a>(mine: &'a [u64], all: &'a [Vec<u64>]) -> impl Iterator<Item = u64> + 'a {
    let has = |version: &u64| all.iter().all(|ready| ready.binary_search(version).is_ok());
    mine.iter().copied().filter(has)
}
