//! How versions are protected, one after the other, in rounds of all members: each tells which of its versions wait, and they
//! protect the oldest that all have.

mod shared;

use crate::{Error, Exchange, Keep, Pieces, Result, Set, Transport};
pub(super) use shared::Shared;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::Repository;

/// How long members wait before they look again whether there is a version that all have.
const PAUSE: Duration = Duration::from_millis(5);

/// What a rank works with.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) set: Set,
    pub(super) rank: u32,
    pub(super) start: u64,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) repository: Arc<Repository>,
    pub(super) keep: Arc<Keep>,
    pub(super) shared: Arc<Shared>,
    pub(super) patience: Duration,
}

impl Rounds {
    fn exchange(&self) -> Result<Exchange<'_>> {
        let (transport, keep) = (&*self.transport, &*self.keep);
        let exchange = Exchange::new(&self.set, self.rank, transport, keep, self.patience)?;
        Ok(exchange.of_start(self.start))
    }

    fn pieces(&self) -> Result<Pieces<'_>> {
        Ok(Pieces::new(&self.repository, self.exchange()?, &self.keep))
    }

    /// Brings back what the members of a set lost of a version that they protected. Why it is lost for good, if it is.
    pub(super) fn rebuild(&mut self, version: u64, set: Set) -> Result<Option<Error>> {
        self.set = set;
        match self.pieces()?.rebuild(version) {
            Ok(_) => Ok(None),
            Err(error) if error.lost_version().is_some() || matches!(error, Error::Store(_)) => {
                Ok(Some(error))
            }
            Err(error) => Err(self.leave(error)),
        }
    }

    /// Protects what all members have and nobody protected, as the members ended before they did.
    pub(super) fn protect_rest(&self, elsewhere: &BTreeSet<u64>) -> Result<()> {
        if self.set.bears > 0
            && let Err(error) = self.pieces()?.protect_rest(elsewhere)
        {
            return Err(self.leave(error));
        }
        self.transport.flush(self.patience)
    }

    /// Tells the others that this one takes part no more. Should they not hear it, patience tells them.
    fn leave(&self, error: Error) -> Error {
        let _told = self.exchange().and_then(|exchange| exchange.leave());
        error
    }

    /// Protects what comes, until the end.
    pub(super) fn run(&self) {
        while let Some(mine) = self.shared.next() {
            match self.round(&mine) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.shared.fail(self.leave(error));
                    return;
                }
            }
        }
        // Those who still wait for this rank's versions wait in vain, and hear so.
        let _told = self.exchange().and_then(|exchange| exchange.leave());
    }

    /// One round; `false` if this rank ends.
    fn round(&self, mine: &[u64]) -> Result<bool> {
        let has_ended = || self.shared.has_ended();
        let Some(all) = self.exchange()?.ready(mine, &has_ended)? else {
            return Ok(false);
        };
        match common(mine, &all).next() {
            Some(version) => self.protect(version)?,
            None => std::thread::sleep(PAUSE),
        }
        Ok(true)
    }

    /// One round of all members in calls of the application's, in which they protect all that they have in common.
    pub(super) fn all(&self) -> Result<()> {
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        let mine = self.shared.pending();
        let all = || {
            let all = self.exchange()?.told(&mine)?;
            common(&mine, &all).try_for_each(|version| self.protect(version))?;
            self.transport.flush(self.patience)
        };
        all().inspect_err(|error| self.shared.fail(self.leave(error.clone())))
    }

    fn protect(&self, version: u64) -> Result<()> {
        // It is not removed meanwhile.
        let working = self.shared.work_on(version);
        let piece = self.repository.own_piece(version);
        let is_there = self.exchange()?.all_have(version, piece.is_ok())?;
        if is_there && let Ok(piece) = piece {
            self.pieces()?.protect_piece(version, &piece)?;
        }
        working.done();
        Ok(())
    }
}

/// The versions of this member's that all have, the oldest first.
fn common<'a>(mine: &'a [u64], all: &'a [Vec<u64>]) -> impl Iterator<Item = u64> + 'a {
    let has = |version: &u64| all.iter().all(|ready| ready.binary_search(version).is_ok());
    mine.iter().copied().filter(has)
}
