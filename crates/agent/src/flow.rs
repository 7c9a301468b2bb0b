//! A route: its two ends, and the pieces that are brought from one to the other.

mod state;

use crate::protocol::{Route, RouteStatus};
use parking_lot::Mutex;
use state::{Failure, PieceKey, State, key};
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

/// A route.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) route: Route,
    ends: Mutex<Option<Arc<Ends>>>,
    pub(crate) state: Mutex<State>,
}

impl Flow {
    pub(crate) fn new(route: Route) -> Self {
        Self {
            route,
            ends: Mutex::default(),
            state: Mutex::new(State::new()),
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
            state.just_removed.clear();
            state.clients == 0
        };
        let found = guarded("looking for pieces to bring", || self.new_pieces());
        self.scanned(found, began_without_clients);
    }

    /// Takes the result of a scan.
    fn scanned(&self, found: Result<(Vec<PieceInfo>, BTreeSet<u64>)>, began_without_clients: bool) {
        let mut state = self.state.lock();
        state.scanning = false;
        match found {
            Ok((pieces, there)) => {
                state.forget_removed(&there);
                let left: BTreeSet<u64> = pieces.iter().map(|piece| piece.version).collect();
                state.unreadable.retain(|version, _| left.contains(version));
                let may_reread = state.rereading.is_over(Instant::now());
                let State {
                    waiting,
                    running,
                    removed,
                    settled,
                    unreadable,
                    just_brought,
                    ..
                } = &mut *state;
                let wanted = pieces.iter().filter(|piece| {
                    let version = piece.version;
                    let known = running.contains_key(&version)
                        || removed.contains(&version)
                        || just_brought.contains(&version)
                        || settled.contains(&key(piece));
                    !known && (may_reread || !unreadable.contains_key(&version))
                });
                waiting.extend(wanted.map(|piece| piece.version));
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

    /// The pieces to be brought, and all versions on the node.
    fn new_pieces(&self) -> Result<(Vec<PieceInfo>, BTreeSet<u64>)> {
        let ends = self.ends()?;
        let local = ends.local.own_pieces()?;
        let there = local.iter().map(|piece| piece.version).collect();
        let external = ends.external.own_pieces()?;
        let external: BTreeMap<u64, Identity> = external
            .iter()
            .map(|piece| (piece.version, piece.identity))
            .collect();
        let here: BTreeMap<u64, Identity> = local
            .iter()
            .map(|piece| (piece.version, piece.identity))
            .collect();
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
        Ok((wanted, there))
    }

    /// Brings one piece. Returns its bytes, if it was brought.
    pub(crate) fn bring(&self, version: u64) -> Option<u64> {
        let brought = self.bring_piece(version);
        let mut state = self.state.lock();
        let is_removed = brought.is_ok() && state.removed.contains(&version);
        if is_removed {
            drop(state);
            // The version counts as running until the old piece is gone: a new one of its number, which a client may ask for
            // meanwhile, would go with it.
            let removed = self.remove_from_end(&BTreeSet::from([version]));
            state = self.state.lock();
            if let Err(error) = removed {
                self.failed(&mut state, &error);
            }
        }
        state.running.remove(&version);
        state.hanging.remove(&version);
        let is_asked_anew = state.is_to_come(version);
        let (outcome, bytes) = match brought {
            Ok(_) if is_removed => (Ok(()), None),
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
                } else if state.removed.contains(&version) {
                    // A removed version is not brought any more.
                } else if is_unreadable {
                    state.unreadable(version, &error);
                } else {
                    state.waiting.insert(version);
                    self.failed(&mut state, &error);
                }
                let source = is_settled || is_unreadable;
                let message = error.to_string();
                (Err(Failure { source, message }), None)
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
        let identity = Identity::of(head);
        let asked_for = self.state.lock().is_asked_for(version);
        let key = (head.version, identity);
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
        let copied = guarded("bringing a piece", copy);
        copied.map_err(|error| Box::new((Some(key), error)))?;
        Ok(head.payload_length)
    }

    /// Removes versions from external storage.
    pub(crate) fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.state.lock().remove(versions);
        // A version that is being copied is removed by the thread that copies it.
        self.remove_from_end(versions)
    }

    fn remove_from_end(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.ends()?.external.remove(versions)
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

#[cfg(test)]
mod tests {
    use super::state::{LONGEST_PAUSE, SHORTEST_PAUSE};
    use super::*;
    use std::time::Duration;
    use tierflow_store::{Region, Snapshot};

    fn flow() -> Flow {
        Flow::new(Route {
            local: "/nonexistent/local".to_owned(),
            external: "/nonexistent/external".to_owned(),
            rank: 0,
            ranks: 1,
        })
    }

    /// A route between two directories, whose start has version 1 in a file of its own.
    fn with_version() -> (tempfile::TempDir, Flow) {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let flow = Flow::new(Route {
            local: path("local"),
            external: path("external"),
            rank: 0,
            ranks: 1,
        });
        save(&flow);
        (home, flow)
    }

    fn save(flow: &Flow) {
        let local = Repository::open(Path::new(&flow.route.local), Options::default()).unwrap();
        let bytes = vec![7; 2 << 20];
        let regions = [Region::new("state", &bytes)];
        local.save(&Snapshot::new(1, &regions)).unwrap();
    }

    fn next(flow: &Flow) -> Option<u64> {
        let mut state = flow.state.lock();
        state.next(Instant::now(), Duration::from_secs(60))
    }

    fn remove(flow: &Flow) -> Result<()> {
        flow.remove(&BTreeSet::from([1]))
    }

    fn is_brought(flow: &Flow) -> bool {
        let ends = flow.ends().unwrap();
        !ends.external.own_pieces().unwrap().is_empty()
    }

    /// A copy that has the piece open goes on though the piece leaves the node: here its file is away while the node is scanned.
    #[test]
    fn a_version_removed_while_it_is_copied_does_not_come_back() {
        let (home, flow) = with_version();
        flow.scan();
        assert_eq!(next(&flow), Some(1));
        remove(&flow).unwrap();
        let file = Path::new(&flow.route.local).join("rank-0/v00000000000000000001.tfc");
        let away = home.path().join("away");
        std::fs::rename(&file, &away).unwrap();
        flow.scan();
        std::fs::rename(&away, &file).unwrap();
        flow.bring(1);
        assert!(!is_brought(&flow));
        flow.scan();
        assert_eq!(next(&flow), None);
    }

    /// The list of the node is older than the version.
    #[test]
    fn a_version_removed_during_a_scan_does_not_come_back() {
        let (_home, flow) = with_version();
        let found = Ok((Vec::new(), BTreeSet::new()));
        flow.scan();
        assert_eq!(next(&flow), Some(1));
        flow.bring(1);
        flow.state.lock().just_brought.clear();
        remove(&flow).unwrap();
        flow.scanned(found, true);
        flow.scan();
        assert_eq!(next(&flow), None);
    }

    #[test]
    fn a_version_removed_while_its_copy_fails_is_not_tried_again() {
        let flow = flow();
        flow.state.lock().waiting.insert(1);
        assert_eq!(next(&flow), Some(1));
        assert!(remove(&flow).is_err());
        flow.bring(1);
        assert!(flow.state.lock().is_idle());
    }

    #[test]
    fn who_waits_for_a_version_is_told_that_it_is_removed() {
        let (_home, flow) = with_version();
        flow.state.lock().watch(1);
        remove(&flow).unwrap();
        let outcome = flow.state.lock().outcome(1);
        assert!(matches!(outcome, Some(Err(Failure { source: true, .. }))));
    }

    /// The copy under way is that of the removed piece.
    #[test]
    fn a_version_asked_for_anew_is_brought_after_the_copy_of_the_removed_one() {
        let (_home, flow) = with_version();
        flow.state.lock().watch(1);
        assert_eq!(next(&flow), Some(1));
        remove(&flow).unwrap();
        flow.state.lock().unwatch(1);
        flow.state.lock().watch(1);
        assert_eq!(next(&flow), None);
        flow.bring(1);
        assert!(flow.state.lock().outcome(1).is_none());
        assert_eq!(next(&flow), Some(1));
        flow.bring(1);
        assert!(matches!(flow.state.lock().outcome(1), Some(Ok(()))));
        assert!(is_brought(&flow));
    }

    #[test]
    fn a_route_that_failed_pauses_but_for_what_is_asked_for() {
        let flow = flow();
        flow.state.lock().waiting.extend([1, 2]);
        assert_eq!(
            flow.state
                .lock()
                .next(Instant::now(), Duration::from_secs(5)),
            Some(1)
        );
        assert_eq!(flow.bring(1), None);
        let mut state = flow.state.lock();
        let now = Instant::now();
        assert!(
            state.trouble.is_some() && state.waiting.contains(&1),
            "it is tried again"
        );
        assert_eq!(state.next(now, Duration::from_secs(5)), None);
        state.watch(2);
        assert_eq!(state.next(now, Duration::from_secs(5)), Some(2));
        drop(state);
        assert_eq!(flow.bring(2), None);
        let mut state = flow.state.lock();
        assert!(matches!(state.outcome(2), Some(Err(_))));
        // Twice as long, and never longer than the longest.
        assert_eq!(state.back_off.pause, 4 * SHORTEST_PAUSE);
        assert_eq!(state.next(now, Duration::from_secs(5)), None);
        assert!(
            state
                .next(now + LONGEST_PAUSE, Duration::from_secs(5))
                .is_some()
        );
    }
}
