//! A route: its two ends, and the pieces that are brought from one to the other.

mod state;
#[cfg(test)]
pub(crate) mod tests;

use crate::ends::{DirectoryId, Ends, PieceKey, Unnoted, identities, is_gone, keys, unused};
use crate::protocol::{Failure, Route, RouteStatus};
use parking_lot::Mutex;
use state::State;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tierflow_store::{Error, Identity, Options, PieceInfo, Result, guarded, left_behind};

impl Ends {
    /// Returns true if a piece on the node has to be copied to external storage. A piece replaces an older piece there if a client asked for it,
    /// or if the last run that continued from external storage ran on this node.
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

    /// Returns true if the last run that continued from external storage ran on this node.
    fn went_on_here(&self) -> Result<bool> {
        self.node()?.was_written_by(&self.external.last_run()?)
    }
}

/// A route.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) route: Route,
    ends: Mutex<Option<Arc<Ends>>>,
    unnoted: Unnoted,
    /// The node's directory when a client took the route, if it had no directory of the rank then.
    taken: Mutex<Option<DirectoryId>>,
    pub(crate) state: Mutex<State>,
    /// True if the route is noted for the next agent.
    pub(crate) is_noted: AtomicBool,
    /// Locked while versions are removed.
    removal: Mutex<()>,
}

impl Flow {
    pub(crate) fn new(route: Route) -> Self {
        Self {
            ends: Mutex::default(),
            unnoted: Unnoted::default(),
            taken: Mutex::default(),
            state: Mutex::new(State::new()),
            is_noted: AtomicBool::new(false),
            removal: Mutex::default(),
            route,
        }
    }

    pub(crate) fn ends(&self) -> Result<Arc<Ends>> {
        let mut ends = self.ends.lock();
        if let Some(ends) = &*ends {
            return Ok(Arc::clone(ends));
        }
        let options = Options::default()
            .rank(self.route.rank, self.route.ranks)
            .threads(2);
        let opened = Ends::open(&self.route, options, Arc::clone(&self.unnoted))?;
        Ok(Arc::clone(ends.insert(Arc::new(opened))))
    }

    /// Notes the node's directory before a client begins to use it. May take long.
    pub(crate) fn look(&self) {
        *self.taken.lock() = unused(&self.route);
    }

    /// Scans the node for pieces that are not on external storage.
    pub(crate) fn scan(&self) {
        // If a client comes or goes during the scan, another scan is necessary.
        let began_without_clients = {
            let mut state = self.state.lock();
            state.just_brought.clear();
            state.clients == 0
        };
        let found = guarded("looking for pieces to bring", || self.new_pieces());
        self.scanned(found, began_without_clients);
    }

    /// Enters the result of a scan in the state.
    fn scanned(&self, found: Result<Vec<PieceInfo>>, began_without_clients: bool) {
        let mut state = self.state.lock();
        state.scanning = None;
        match found {
            Ok(pieces) => {
                let left: BTreeSet<u64> = pieces.iter().map(|piece| piece.version).collect();
                state.unreadable.retain(|version, _| left.contains(version));
                let here: BTreeSet<PieceKey> = keys(&pieces).collect();
                state.settled.retain(|piece| here.contains(piece));
                let may_reread = state.rereading.is_over(Instant::now());
                let State {
                    waiting,
                    running,
                    settled,
                    unreadable,
                    just_brought,
                    ..
                } = &mut *state;
                let wanted = pieces.iter().filter(|piece| {
                    let version = piece.version;
                    let known = running.contains_key(&version)
                        || just_brought.contains(&version)
                        || settled.contains(&(*piece).into());
                    !known && (may_reread || !unreadable.contains_key(&version))
                });
                waiting.extend(wanted.map(|piece| piece.version));
                state.scanned();
                state.scanned_without_clients = began_without_clients && state.clients == 0;
            }
            // The node's directory is gone: there is nothing to bring.
            Err(_) if state.clients == 0 && is_gone(&self.route.local) => {
                state.waiting.clear();
                state.unreadable.clear();
                state.scanned_without_clients = true;
            }
            Err(error) => self.failed(&mut state, &error),
        }
    }

    /// Returns the pieces on the node that have to be brought.
    fn new_pieces(&self) -> Result<Vec<PieceInfo>> {
        let ends = self.ends()?;
        self.remove_returned()?;
        // While there are clients, an engine may be about to make the rank's directory.
        let is_free = self.state.lock().clients == 0;
        if is_free && let Some(unused) = unused(&self.route) {
            if *self.taken.lock() == Some(unused) {
                // The clients ended before their engines made the rank's directory.
                return Ok(Vec::new());
            }
            // Once the file system is mounted, another directory has this path.
            ends.forget_node();
            return Err(Error::Refused {
                path: self.route.local.clone().into(),
                why: "nothing of this rank is in it, as if its file system was not mounted",
            });
        }
        // The mark tells a job's epilogue that the agent brings all pieces up to this time. Without the mark, the epilogue keeps the pieces.
        if self.is_noted.load(Ordering::Acquire) {
            let _kept_without = ends.mark_served();
        }
        let local = ends.node()?.own_pieces()?;
        let removed = ends.removed()?;
        let external = identities(keys(&ends.external.own_pieces()?));
        let here = identities(keys(&local));
        // The ranks of a group agree on the versions that they remove, so only a single rank looks for versions left behind.
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
            let stays =
                is_there || behind.contains(&piece.version) || removed.contains(&(&piece).into());
            if !stays && ends.is_wanted(piece.identity, there, false)? {
                wanted.push(piece);
            }
        }
        if self.route.ranks > 1 {
            // Listing completes versions if a crash came right after their last piece.
            ends.external.versions()?;
        }
        Ok(wanted)
    }

    /// Brings one piece, and returns the bytes that were copied. `None` if it could not be brought, or was there already.
    pub(crate) fn bring(&self, version: u64) -> Option<u64> {
        let brought = guarded("bringing a piece", || Ok(self.bring_piece(version)));
        let brought = brought.unwrap_or_else(|panic| Err(Box::new((None, panic))));
        let mut state = self.state.lock();
        state.running.remove(&version);
        state.hanging.remove(&version);
        let was_removed = state.overtaken.contains(&version);
        let is_heard = !was_removed && !state.is_to_come(version);
        let (outcome, bytes) = match brought {
            Ok(bytes) => {
                state.brought(version);
                (Ok(()), bytes)
            }
            Err(failure) => {
                let (piece, error) = *failure;
                // A piece that is gone from the node was removed meanwhile.
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
                } else if was_removed {
                    // A version that was removed is not brought any more.
                } else if is_unreadable {
                    state.unreadable(version, &error);
                } else {
                    state.waiting.insert(version);
                    self.failed(&mut state, &error);
                }
                (Err(Failure::from(&error)), None)
            }
        };
        if is_heard {
            state.tell(version, outcome);
        }
        drop(state);
        if was_removed {
            let removed = guarded("removing versions", || self.remove_returned());
            if let Err(error) = removed {
                self.failed(&mut self.state.lock(), &error);
            }
        }
        bytes
    }

    fn bring_piece(
        &self,
        version: u64,
    ) -> std::result::Result<Option<u64>, Box<(Option<PieceKey>, Error)>> {
        let ends = self.ends().map_err(|error| Box::new((None, error)))?;
        let node = ends.node().map_err(|error| Box::new((None, error)))?;
        let piece = node.own_piece(version);
        let piece = piece.map_err(|error| Box::new((None, error)))?;
        let head = piece.head();
        let (version, identity) = (head.version, Identity::of(head));
        let key = PieceKey { version, identity };
        let copy = || {
            let mut asked_for = false;
            let is_asked_for = || {
                asked_for = self.state.lock().is_asked_for(version);
                asked_for
            };
            if !ends.may_bring(&key, is_asked_for)? {
                return Err(Error::GivenUp { version });
            }
            let there = ends.external.own_piece(version).ok();
            let there = there.map(|there| Identity::of(there.head()));
            let is_same = there.is_some_and(|there| there.is_same(&identity));
            if !is_same && !ends.is_wanted(identity, there.as_ref(), asked_for)? {
                return Err(Error::Exists { version });
            }
            // The mark of the last run decides whose copies count. If a run on another node continued meanwhile, a piece that an earlier run
            // left here is copied without its mark.
            let goes_on_here = || {
                let last = ends.external.last_run()?;
                Ok::<_, Error>(last.epoch == 0 || node.was_written_by(&last)?)
            };
            if asked_for || goes_on_here()? {
                ends.external.mark(node.last_run()?)?;
            }
            ends.external.copy(&piece)?;
            Ok((!is_same).then_some(head.payload_length))
        };
        copy().map_err(|error| Box::new((Some(key), error)))
    }

    /// Removes versions from external storage, and notes their pieces on the node, so that they are not brought again. Does not wait for a copy
    /// that is under way, as it may hang. A piece that the copy publishes is removed when the copy ends, or by the next agent.
    pub(crate) fn remove(&self, versions: &BTreeSet<u64>) -> crate::Result<()> {
        let _one_at_a_time = self.removal.lock();
        self.state.lock().remove(versions);
        let removed = guarded("removing versions", || Ok(self.ends()?.remove(versions)));
        self.state.lock().removing.clear();
        removed?
    }

    /// Removes pieces that copies published after the pieces were removed.
    fn remove_returned(&self) -> Result<()> {
        let _one_at_a_time = self.removal.lock();
        let ends = self.ends()?;
        let removed = ends.removed()?;
        let ended: BTreeSet<u64> = {
            let mut state = self.state.lock();
            let has_ended = |version: &u64| !state.running.contains_key(version);
            let removed = removed.iter().map(|piece| piece.version);
            let removing = removed.filter(has_ended).collect();
            let ended = state.overtaken.iter().copied().filter(has_ended).collect();
            state.removing = removing;
            ended
        };
        let versions = self.state.lock().removing.clone();
        let removed = guarded("removing versions", || Ok(ends.remove_returned(&versions)?));
        let mut state = self.state.lock();
        state.removing.clear();
        removed?;
        state.overtaken.retain(|version| !ended.contains(version));
        Ok(())
    }

    /// Pauses the route after a failure. If an end vanished, drops it, so that the next use opens it again.
    fn failed(&self, state: &mut State, error: &Error) {
        state.pause(error.to_string());
        if let Error::Vanished { directory } | Error::Open { directory, .. } = error
            && let Some(mut ends) = self.ends.try_lock()
        {
            match &*ends {
                Some(ends) if !directory.starts_with(&self.route.external) => ends.forget_node(),
                _ => *ends = None,
            }
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
        RouteStatus {
            route: self.route.clone(),
            clients: state.clients,
            pending: pending.into_iter().collect(),
            unlisted: 0,
            brought: state.brought,
            trouble: state.trouble(Instant::now()),
        }
    }
}
