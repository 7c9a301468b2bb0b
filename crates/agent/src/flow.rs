//! A route: its two ends, and the pieces that are brought from one to the other.

mod state;

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
        let brought = self.bring_piece(version);
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
        let copied = guarded("bringing a piece", copy);
        copied.map_err(|error| Box::new((Some(key), error)))?;
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
        let here: BTreeSet<PieceKey> = ends.local.own_pieces()?.iter().map(Into::into).collect();
        let external = identities(&ends.external.own_pieces()?);
        // A piece that is newer than the one on external storage was saved since.
        let is_removed = |piece: &&PieceKey| {
            let there = external.get(&piece.version);
            let is_new = there.is_some_and(|there| piece.identity.is_newer_than(there));
            versions.contains(&piece.version) && !is_new
        };
        let removed: BTreeSet<PieceKey> = here.iter().filter(is_removed).copied().collect();
        {
            let mut state = self.state.lock();
            state.settled.retain(|piece| here.contains(piece));
            state.settled.extend(&removed);
        }
        // If the note has no room, the removal makes some, and the client repeats it.
        let noted = self.home.note_removed(&self.route, removed, &here);
        ends.external.remove(versions)?;
        noted
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
pub(crate) mod tests {
    use super::state::{LONGEST_PAUSE, SHORTEST_PAUSE};
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Duration;
    use tierflow_store::{Faults, Region, Snapshot};

    /// Waits for something that must come about.
    pub(crate) fn until(mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(120), "it never comes about");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn between(scratch: &Path, local: &Path, external: &Path) -> Arc<Flow> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let route = Route {
            local: text(local),
            external: text(external),
            rank: 0,
            ranks: 1,
        };
        let home = Arc::new(Home::open(scratch, true).unwrap());
        Arc::new(Flow::new(route, &home))
    }

    /// A route between two directories that are not there.
    fn flow() -> (tempfile::TempDir, Arc<Flow>) {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join("nowhere").join(name);
        let flow = between(home.path(), &path("local"), &path("external"));
        (home, flow)
    }

    /// Removals that hang as long as this lives: a test that fails in the meantime ends.
    pub(crate) struct Hanging(Arc<Faults>);

    impl Hanging {
        pub(crate) fn new(faults: &Arc<Faults>) -> Self {
            faults.removals_hang.store(true, Ordering::Relaxed);
            Self(Arc::clone(faults))
        }
    }

    impl Drop for Hanging {
        fn drop(&mut self) {
            self.0.removals_hang.store(false, Ordering::Relaxed);
        }
    }

    /// A route between two directories, whose start has version 1.
    pub(crate) fn with_version() -> (tempfile::TempDir, Arc<Flow>) {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let flow = between(home.path(), &path("local"), &path("external"));
        save(&flow, 7);
        (home, flow)
    }

    /// Puts faults in front of both ends of a route.
    pub(crate) fn fail(flow: &Flow, faults: &Arc<Faults>) {
        let ends = faults.during(|| flow.ends());
        ends.unwrap();
    }

    /// Saves version 1 on the node, in the place of the one that is there.
    fn save(flow: &Flow, byte: u8) {
        let local = Repository::open(Path::new(&flow.route.local), Options::default()).unwrap();
        local.remove(&BTreeSet::from([1])).unwrap();
        let bytes = [byte; 1000];
        let regions = [Region::new("state", &bytes)];
        local.save(&Snapshot::new(1, &regions)).unwrap();
    }

    fn next(flow: &Flow) -> Option<u64> {
        let mut state = flow.state.lock();
        state.next(Instant::now(), Duration::from_secs(60))
    }

    /// Scans the node, and brings what is found: version 1.
    pub(crate) fn bring(flow: &Flow) {
        flow.scan();
        assert_eq!(next(flow), Some(1));
        flow.bring(1);
    }

    fn remove(flow: &Flow) -> crate::Result<()> {
        flow.remove(&BTreeSet::from([1]))
    }

    fn is_brought(flow: &Flow) -> bool {
        let ends = flow.ends().unwrap();
        !ends.external.own_pieces().unwrap().is_empty()
    }

    /// Returns the first byte of version 1 on external storage.
    fn byte_of(flow: &Flow) -> u8 {
        let piece = flow.ends().unwrap().external.own_piece(1).unwrap();
        piece.read("state").unwrap()[0]
    }

    /// A copy that has the piece open goes on though the piece leaves the node.
    #[test]
    fn a_version_removed_while_it_is_copied_does_not_come_back() {
        let (_home, flow) = with_version();
        flow.scan();
        assert_eq!(next(&flow), Some(1));
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| remove(&flow));
            until(|| !flow.state.lock().removing.is_empty());
            // A removal that does not wait for the copy gets the time to end.
            for _ in (0..200).take_while(|_| !removal.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            flow.scan();
            flow.bring(1);
            removal.join().unwrap().unwrap();
        });
        assert!(!is_brought(&flow));
        flow.scan();
        assert_eq!(next(&flow), None);
    }

    /// The list of the node is older than the removal.
    #[test]
    fn a_version_removed_during_a_scan_does_not_come_back() {
        let (_home, flow) = with_version();
        let found = flow.new_pieces();
        assert_eq!(found.as_ref().unwrap().len(), 1);
        bring(&flow);
        flow.state.lock().just_brought.clear();
        remove(&flow).unwrap();
        flow.scanned(found, true);
        assert_eq!(next(&flow), None);
        flow.scan();
        assert_eq!(next(&flow), None);
    }

    #[test]
    fn a_version_removed_while_its_copy_fails_is_not_tried_again() {
        let (_home, flow) = flow();
        flow.state.lock().waiting.insert(1);
        assert_eq!(next(&flow), Some(1));
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| remove(&flow));
            until(|| !flow.state.lock().removing.is_empty());
            flow.bring(1);
            assert!(removal.join().unwrap().is_err());
        });
        assert!(flow.state.lock().is_idle());
    }

    #[test]
    fn a_piece_saved_under_the_number_of_a_removed_one_is_brought() {
        let (_home, flow) = with_version();
        bring(&flow);
        remove(&flow).unwrap();
        flow.scan();
        assert_eq!(next(&flow), None);
        save(&flow, 8);
        bring(&flow);
        assert_eq!(byte_of(&flow), 8);
    }

    #[test]
    fn a_piece_saved_before_the_older_one_of_its_number_was_removed_is_brought() {
        let (_home, flow) = with_version();
        bring(&flow);
        save(&flow, 8);
        remove(&flow).unwrap();
        bring(&flow);
        assert_eq!(byte_of(&flow), 8);
    }

    /// The removal would take the new piece with the old one.
    #[test]
    fn no_piece_is_brought_while_an_older_one_of_its_number_is_removed() {
        let (_home, flow) = with_version();
        let faults = Arc::<Faults>::default();
        fail(&flow, &faults);
        bring(&flow);
        let before = faults.removals.load(Ordering::Relaxed);
        let begun = std::thread::scope(|scope| {
            let hanging = Hanging::new(&faults);
            let removal = scope.spawn(|| remove(&flow));
            until(|| faults.removals.load(Ordering::Relaxed) > before);
            save(&flow, 8);
            flow.state.lock().watch(1);
            let begun = next(&flow);
            drop(hanging);
            removal.join().unwrap().unwrap();
            begun
        });
        assert_eq!(begun, None);
        assert_eq!(next(&flow), Some(1));
        flow.bring(1);
        assert!(matches!(flow.state.lock().outcome(1), Some(Ok(()))));
        assert_eq!(byte_of(&flow), 8);
    }

    #[test]
    fn who_waits_for_a_version_is_told_that_it_is_removed() {
        let (_home, flow) = with_version();
        flow.state.lock().watch(1);
        remove(&flow).unwrap();
        let outcome = flow.state.lock().outcome(1);
        let message = outcome.unwrap().unwrap_err().message;
        assert!(message.contains("was removed"), "{message}");
    }

    /// The copy under way is that of the removed piece.
    #[test]
    fn a_version_asked_for_anew_is_brought_after_the_copy_of_the_removed_one() {
        let (_home, flow) = with_version();
        flow.state.lock().watch(1);
        assert_eq!(next(&flow), Some(1));
        let told = std::thread::scope(|scope| {
            let removal = scope.spawn(|| remove(&flow));
            until(|| !flow.state.lock().removing.is_empty());
            flow.state.lock().unwatch(1);
            flow.state.lock().watch(1);
            flow.bring(1);
            removal.join().unwrap().unwrap();
            flow.state.lock().outcome(1)
        });
        assert!(told.is_none());
        assert_eq!(next(&flow), Some(1));
        flow.bring(1);
        assert!(matches!(flow.state.lock().outcome(1), Some(Ok(()))));
        assert!(is_brought(&flow));
    }

    #[test]
    fn a_route_that_failed_pauses_but_for_what_is_asked_for() {
        let (_home, flow) = flow();
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
