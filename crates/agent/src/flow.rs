//! A route: its two ends, and the pieces that are brought from one to the other.

mod state;
#[cfg(test)]
pub(crate) mod tests;

use crate::home::{Home, PieceKey};
use crate::protocol::{Failure, Route, RouteStatus};
use parking_lot::{Condvar, Mutex};
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tierflow_store::{
    Error, Identity, Options, PieceInfo, Repository, Result, guarded, left_behind,
};

/// A route's two ends, opened when they are first needed: external storage may not be there when the agent starts.
#[derive(Debug)]
pub(crate) struct Ends {
    local: Repository,
    external: Repository,
}

impl Ends {
    /// Returns true if a piece on the node is to go to external storage. A piece replaces an older one there if it is `asked_for`, or
    /// if the last run that went on from there did so on this node.
    fn is_wanted(
        &self,
        piece: Identity,
        there: Option<&Identity>,
        asked_for: bool,
    ) -> Result<bool> {
        let Some(there) = there else {
            return Ok(true);
        };
        Ok(piece.is_newer_than(there) && (asked_for || self.went_on_here()?))
    }

    /// Returns true if the last run that went on from external storage did so on this node.
    fn went_on_here(&self) -> Result<bool> {
        self.local.was_written_by(&self.external.last_run()?)
    }
}

fn identities(pieces: &[PieceInfo]) -> BTreeMap<u64, Identity> {
    let pieces = pieces.iter();
    pieces
        .map(|piece| (piece.version, piece.identity))
        .collect()
}

/// A route.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) route: Route,
    home: Arc<Home>,
    ends: Mutex<Option<Arc<Ends>>>,
    pub(crate) state: Mutex<State>,
    /// Notified when a copy has ended.
    copied: Condvar,
}

impl Flow {
    pub(crate) fn new(route: Route, home: &Arc<Home>) -> Self {
        Self {
            ends: Mutex::default(),
            state: Mutex::new(State::new(home.removed(&route))),
            copied: Condvar::new(),
            home: Arc::clone(home),
            route,
        }
    }

    fn ends(&self) -> Result<Arc<Ends>> {
        let mut ends = self.ends.lock();
        if let Some(ends) = &*ends {
            return Ok(Arc::clone(ends));
        }
        let options = Options::default()
            .rank(self.route.rank, self.route.ranks)
            .threads(2);
        let opened = Arc::new(Ends {
            local: Repository::read_only(Path::new(&self.route.local), options.clone())?,
            external: Repository::open(Path::new(&self.route.external), options)?,
        });
        Ok(Arc::clone(ends.insert(opened)))
    }

    /// Scans the node for pieces that are not on external storage.
    pub(crate) fn scan(&self) {
        // A client that comes or goes meanwhile makes another scan necessary.
        let began_without_clients = {
            let mut state = self.state.lock();
            state.just_brought.clear();
            state.clients == 0
        };
        let found = guarded("looking for pieces to bring", || self.new_pieces());
        self.scanned(found, began_without_clients);
    }

    /// Takes the result of a scan.
    fn scanned(&self, found: Result<Vec<PieceInfo>>, began_without_clients: bool) {
        let mut state = self.state.lock();
        state.scanning = None;
        match found {
            Ok(pieces) => {
                let left: BTreeSet<u64> = pieces.iter().map(|piece| piece.version).collect();
                state.unreadable.retain(|version, _| left.contains(version));
                let may_reread = state.rereading.is_over(Instant::now());
                let State {
                    waiting,
                    running,
                    removing,
                    settled,
                    unreadable,
                    just_brought,
                    ..
                } = &mut *state;
                let wanted = pieces.iter().filter(|piece| {
                    let version = piece.version;
                    let known = running.contains_key(&version)
                        || removing.contains(&version)
                        || just_brought.contains(&version)
                        || settled.contains(&(*piece).into());
                    !known && (may_reread || !unreadable.contains_key(&version))
                });
                waiting.extend(wanted.map(|piece| piece.version));
                let is_over = waiting.is_empty() && running.is_empty();
                state.trouble.take_if(|_| is_over);
                state.scanned_without_clients = began_without_clients && state.clients == 0;
            }
            // The node's directory is gone: there is nothing to bring.
            Err(_) if state.clients == 0 && is_gone(&self.route.local) => {
                state.waiting.clear();
                state.unreadable.clear();
                state.scanned_without_clients = true;
                let (none, here) = (BTreeSet::new(), BTreeSet::new());
                // Nothing new is written.
                let _forgotten = self.home.note_removed(&self.route, none, &here);
            }
            Err(error) => self.failed(&mut state, &error),
        }
    }

    /// The pieces to be brought.
    fn new_pieces(&self) -> Result<Vec<PieceInfo>> {
        let ends = self.ends()?;
        let local = ends.local.own_pieces()?;
        let external = identities(&ends.external.own_pieces()?);
        let here = identities(&local);
        // Groups agree which versions they remove.
        let mut behind = match self.route.ranks {
            1 => left_behind(&here, &external),
            _ => BTreeSet::new(),
        };
        if !behind.is_empty() && ends.went_on_here()? {
            behind.clear();
        }
        let mut wanted = Vec::with_capacity(local.len());
        for piece in local {
            let there = external.get(&piece.version);
            let is_there = there.is_some_and(|there| there.is_same(&piece.identity));
            let stays = is_there || behind.contains(&piece.version);
            if !stays && ends.is_wanted(piece.identity, there, false)? {
                wanted.push(piece);
            }
        }
        if self.route.ranks > 1 {
            // Completes versions whose last piece came with a crash right after it.
            ends.external.versions()?;
        }
        Ok(wanted)
    }

    /// Brings one piece. Returns its bytes, if it was brought.
    pub(crate) fn bring(&self, version: u64) -> Option<u64> {
        let brought = guarded("bringing a piece", || Ok(self.bring_piece(version)));
        let brought = brought.unwrap_or_else(|panic| Err(Box::new((None, panic))));
        let mut state = self.state.lock();
        state.running.remove(&version);
        state.hanging.remove(&version);
        self.copied.notify_all();
        let is_asked_anew = state.is_to_come(version);
        let (outcome, bytes) = match brought {
            Ok(bytes) => {
                state.brought(version);
                (Ok(()), Some(bytes))
            }
            Err(failure) => {
                let (piece, error) = *failure;
                // If it is gone, it was removed meanwhile.
                let is_settled = matches!(
                    error,
                    Error::NoVersion { .. } | Error::Exists { .. } | Error::GivenUp { .. }
                );
                let is_unreadable = matches!(
                    error,
                    Error::Damaged { .. } | Error::Read { .. } | Error::Argument(_)
                );
                if is_settled {
                    state.settled.extend(piece);
                    state.unreadable.remove(&version);
                } else if state.removing.contains(&version) {
                    // A version that is being removed is not brought any more.
                } else if is_unreadable {
                    state.unreadable(version, &error);
                } else {
                    state.waiting.insert(version);
                    self.failed(&mut state, &error);
                }
                (Err(Failure::from(&error)), None)
            }
        };
        if !is_asked_anew {
            state.tell(version, outcome);
        }
        bytes
    }

    fn bring_piece(
        &self,
        version: u64,
    ) -> std::result::Result<u64, Box<(Option<PieceKey>, Error)>> {
        let ends = self.ends().map_err(|error| Box::new((None, error)))?;
        let piece = ends.local.own_piece(version);
        let piece = piece.map_err(|error| Box::new((None, error)))?;
        let head = piece.head();
        let (version, identity) = (head.version, Identity::of(head));
        let asked_for = self.state.lock().is_asked_for(version);
        let key = PieceKey { version, identity };
        let copy = || {
            let there = ends.external.own_piece(version).ok();
            let there = there.map(|there| Identity::of(there.head()));
            let is_same = there.is_some_and(|there| there.is_same(&identity));
            if !is_same && !ends.is_wanted(identity, there.as_ref(), asked_for)? {
                return Err(Error::Exists { version });
            }
            // The mark of a run says whose copies count. So a piece that an earlier run left is copied without its mark if a run on
            // another node went on meanwhile.
            let goes_on_here = || {
                let last = ends.external.last_run()?;
                Ok::<_, Error>(last.epoch == 0 || ends.local.was_written_by(&last)?)
            };
            if asked_for || goes_on_here()? {
                ends.external.mark(ends.local.last_run()?)?;
            }
            ends.external.copy(&piece)
        };
        copy().map_err(|error| Box::new((Some(key), error)))?;
        Ok(head.payload_length)
    }

    /// Removes versions from external storage, and notes which pieces on the node are not to be brought there again. A route has one
    /// removal at a time.
    pub(crate) fn remove(&self, versions: &BTreeSet<u64>) -> crate::Result<()> {
        let removed = guarded("removing versions", || Ok(self.remove_noted(versions)));
        self.state.lock().removing.clear();
        removed?
    }

    fn remove_noted(&self, versions: &BTreeSet<u64>) -> crate::Result<()> {
        {
            let mut state = self.state.lock();
            state.remove(versions);
            // The removal takes, too, what a copy under way publishes.
            let is_copied =
                |state: &mut State| versions.iter().any(|one| state.running.contains_key(one));
            self.copied.wait_while(&mut state, is_copied);
        }
        let ends = self.ends()?;
        let external = identities(&ends.external.own_pieces()?);
        // A node that cannot be read, and a note that finds no room, do not hold up external storage. The client hears of it, and repeats.
        let noted = self.note_removed(&ends, versions, &external);
        ends.external.remove(versions)?;
        noted
    }

    /// Notes which pieces on the node are not to be brought to external storage again.
    fn note_removed(
        &self,
        ends: &Ends,
        versions: &BTreeSet<u64>,
        external: &BTreeMap<u64, Identity>,
    ) -> crate::Result<()> {
        let before = {
            let mut state = self.state.lock();
            let mut before = std::mem::take(&mut state.removed_up_to);
            before.retain(|version, _| versions.contains(version));
            let known = |version: &u64| {
                let asked = before.get(version).copied().flatten();
                (*version, external.get(version).copied().or(asked))
            };
            state.removed_up_to = versions.iter().map(known).collect();
            before
        };
        let here: BTreeSet<PieceKey> = ends.local.own_pieces()?.iter().map(Into::into).collect();
        let removed: BTreeSet<PieceKey> = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let is_removed = |piece: &&PieceKey| match state.removed_up_to.get(&piece.version) {
                None => false,
                // A newer piece was saved since.
                Some(Some(up_to)) => !piece.identity.is_newer_than(up_to),
                // External storage had none. When the removal was asked for first, all that was here was removed.
                Some(None) => !before.contains_key(&piece.version) || state.settled.contains(piece),
            };
            let removed = here.iter().filter(is_removed).copied().collect();
            state.settled.retain(|piece| here.contains(piece));
            state.settled.extend(&removed);
            removed
        };
        self.home.note_removed(&self.route, removed, &here)
    }

    /// Pauses the route after a failure. Ends that vanished are opened anew.
    fn failed(&self, state: &mut State, error: &Error) {
        state.pause(error.to_string());
        if matches!(error, Error::Vanished { .. } | Error::Open { .. })
            && let Some(mut ends) = self.ends.try_lock()
        {
            *ends = None;
        }
    }

    pub(crate) fn status(&self) -> RouteStatus {
        let state = self.state.lock();
        let pending: BTreeSet<u64> = state
            .waiting
            .iter()
            .chain(state.running.keys())
            .chain(state.unreadable.keys())
            .copied()
            .collect();
        let unreadable = state.unreadable.values().next();
        RouteStatus {
            route: self.route.clone(),
            clients: state.clients,
            pending: pending.into_iter().collect(),
            brought: state.brought,
            trouble: state.trouble.as_ref().or(unreadable).cloned(),
        }
    }
}

/// Returns true if there is no such directory; false if the file system does not say.
fn is_gone(directory: &str) -> bool {
    matches!(Path::new(directory).try_exists(), Ok(false))
}
