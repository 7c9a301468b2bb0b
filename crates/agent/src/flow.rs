//! One route: what is still to be brought along it, and who waits for that.

use crate::protocol::{Route, RouteStatus};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::{Error, Options, Piece, PieceInfo, Repository, Result};

/// After a failure a route is left alone for so long, then twice as long, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A route's two ends, opened when they are first needed: external storage may not be there when the agent starts.
#[derive(Debug)]
pub(crate) struct Ends {
    local: Repository,
    external: Repository,
}

impl Ends {
    /// Whether a piece on the node is newer than the one of the same number on external storage.
    fn is_newer(&self, piece: &Piece) -> bool {
        let head = piece.head();
        let there = self.external.own_piece(head.version);
        there.map_or(true, |there| there.head().created < head.created)
    }
}

/// One route.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) route: Route,
    ends: Mutex<Option<Arc<Ends>>>,
    pub(crate) state: Mutex<State>,
}

/// How the last try for a version ended.
pub(crate) type Outcome = std::result::Result<(), Failure>;

/// Why a version was not brought.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The piece on the node cannot be read: trying again is no use.
    pub(crate) source: bool,
    pub(crate) message: String,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clients: usize,
    /// Versions to be brought.
    pub(crate) waiting: BTreeSet<u64>,
    /// Versions on their way, each with the time by which it should be there.
    pub(crate) running: BTreeMap<u64, Instant>,
    /// Of these, those that took too long.
    pub(crate) hanging: BTreeSet<u64>,
    /// Somebody looks for what is new on the node, or should.
    pub(crate) looking: bool,
    pub(crate) look_at: Instant,
    /// What was found when nobody was on the route any more.
    pub(crate) looked_after_clients: bool,
    /// Versions brought since somebody began to look: what was listed before may name them still.
    just_brought: BTreeSet<u64>,
    /// Pieces on the node that cannot be read.
    unreadable: BTreeSet<PieceKey>,
    /// Versions that were removed from external storage, while they still lie on the node.
    removed: BTreeSet<u64>,
    /// By version: how many wait for its outcome.
    watchers: BTreeMap<u64, usize>,
    outcomes: BTreeMap<u64, Outcome>,
    pause: Duration,
    paused_until: Option<Instant>,
    pub(crate) trouble: Option<String>,
    pub(crate) brought: u64,
}

/// What tells a piece from an older one of the same number.
type PieceKey = (u64, u64, u64);

fn key(piece: &PieceInfo) -> PieceKey {
    (piece.version, piece.run, piece.created)
}

impl Flow {
    pub(crate) fn new(route: Route) -> Self {
        Self {
            route,
            ends: Mutex::default(),
            state: Mutex::new(State {
                clients: 0,
                waiting: BTreeSet::new(),
                running: BTreeMap::new(),
                hanging: BTreeSet::new(),
                looking: false,
                look_at: Instant::now(),
                looked_after_clients: false,
                just_brought: BTreeSet::new(),
                unreadable: BTreeSet::new(),
                removed: BTreeSet::new(),
                watchers: BTreeMap::new(),
                outcomes: BTreeMap::new(),
                pause: SHORTEST_PAUSE,
                paused_until: None,
                trouble: None,
                brought: 0,
            }),
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

    /// Looks for pieces on the node that are not on external storage.
    pub(crate) fn look(&self) {
        // A client that comes or goes meanwhile wants another look.
        let began_without_clients = {
            let mut state = self.state.lock();
            state.just_brought.clear();
            state.clients == 0
        };
        let found = self.new_pieces();
        let mut state = self.state.lock();
        state.looking = false;
        match found {
            Ok((pieces, there)) => {
                state.removed.retain(|version| there.contains(version));
                let State {
                    waiting,
                    running,
                    removed,
                    unreadable,
                    just_brought,
                    ..
                } = &mut *state;
                let wanted = pieces.iter().filter(|piece| {
                    let version = piece.version;
                    let known = running.contains_key(&version)
                        || removed.contains(&version)
                        || just_brought.contains(&version);
                    !known && !unreadable.contains(&key(piece))
                });
                waiting.extend(wanted.map(|piece| piece.version));
                state.looked_after_clients = began_without_clients && state.clients == 0;
            }
            // Nobody can bring what is not there any more.
            Err(_) if state.clients == 0 && !Path::new(&self.route.local).exists() => {
                state.waiting.clear();
                state.looked_after_clients = true;
            }
            Err(error) => self.failed(&mut state, &error),
        }
    }

    /// The pieces to be brought, and all versions on the node.
    fn new_pieces(&self) -> Result<(Vec<PieceInfo>, BTreeSet<u64>)> {
        let ends = self.ends()?;
        let mut local = ends.local.own_pieces()?;
        let there = local.iter().map(|piece| piece.version).collect();
        let external = ends.external.own_pieces()?;
        let external: BTreeSet<PieceKey> = external.iter().map(key).collect();
        local.retain(|piece| !external.contains(&key(piece)));
        if self.route.ranks > 1 {
            // Completes versions whose last piece came with a crash right after it.
            ends.external.versions()?;
        }
        Ok((local, there))
    }

    /// Brings one piece. Returns its bytes, if it was brought.
    pub(crate) fn bring(&self, version: u64) -> Option<u64> {
        let brought = self.bring_piece(version);
        let mut state = self.state.lock();
        state.running.remove(&version);
        state.hanging.remove(&version);
        let (outcome, bytes) = match brought {
            Ok(_) if state.removed.contains(&version) => {
                drop(state);
                let removed = self.remove(BTreeSet::from([version]));
                state = self.state.lock();
                if let Err(error) = removed {
                    self.failed(&mut state, &error);
                }
                (Ok(()), None)
            }
            Ok(bytes) => {
                state.brought += 1;
                state.just_brought.insert(version);
                state.pause = SHORTEST_PAUSE;
                (state.trouble, state.paused_until) = (None, None);
                (Ok(()), Some(bytes))
            }
            Err((piece, error)) => {
                let source = matches!(
                    error,
                    Error::Damaged { .. }
                        | Error::Read { .. }
                        | Error::NoVersion { .. }
                        | Error::Exists { .. }
                        | Error::Argument(_)
                );
                if source {
                    // Gone, it was given up meanwhile.
                    state.unreadable.extend(piece);
                } else {
                    state.waiting.insert(version);
                    self.failed(&mut state, &error);
                }
                let message = error.to_string();
                (Err(Failure { source, message }), None)
            }
        };
        state.tell(version, outcome);
        bytes
    }

    fn bring_piece(&self, version: u64) -> std::result::Result<u64, (Option<PieceKey>, Error)> {
        let ends = self.ends().map_err(|error| (None, error))?;
        let piece = ends.local.own_piece(version);
        let piece = piece.map_err(|error| (None, error))?;
        let head = piece.head();
        let key = (head.version, head.run, head.created);
        let copied = match ends.external.copy(&piece) {
            // The number was used before, for something that was given up: the newer one counts.
            Err(Error::Exists { .. }) if ends.is_newer(&piece) => {
                let removed = ends.external.remove(&BTreeSet::from([version]));
                removed.and_then(|()| ends.external.copy(&piece))
            }
            copied => copied,
        };
        copied.map_err(|error| (Some(key), error))?;
        Ok(head.payload_length)
    }

    /// Removes versions from external storage.
    pub(crate) fn remove(&self, versions: BTreeSet<u64>) -> Result<()> {
        {
            let mut state = self.state.lock();
            state.waiting.retain(|version| !versions.contains(version));
            state.removed.extend(&versions);
        }
        // What is just on its way is removed by whoever brings it.
        self.ends()?.external.remove(&versions)
    }

    /// A try failed: the route is left alone for a while. What vanished is opened anew.
    fn failed(&self, state: &mut State, error: &Error) {
        state.trouble = Some(error.to_string());
        state.paused_until = Some(Instant::now() + state.pause);
        state.look_at = Instant::now() + state.pause;
        state.pause = (state.pause * 2).min(LONGEST_PAUSE);
        if matches!(error, Error::Vanished { .. } | Error::Open { .. })
            && let Some(mut ends) = self.ends.try_lock()
        {
            *ends = None;
        }
    }

    pub(crate) fn status(&self) -> RouteStatus {
        let state = self.state.lock();
        let pending = state.waiting.iter().chain(state.running.keys());
        RouteStatus {
            route: self.route.clone(),
            clients: state.clients,
            pending: pending.copied().collect(),
            brought: state.brought,
            trouble: state.trouble.clone(),
        }
    }
}

impl State {
    /// Somebody wants to hear what becomes of a version, which is brought even if it could not be read before.
    pub(crate) fn watch(&mut self, version: u64) {
        *self.watchers.entry(version).or_default() += 1;
        self.outcomes.remove(&version);
        self.removed.remove(&version);
        self.unreadable.retain(|piece| piece.0 != version);
        if !self.running.contains_key(&version) {
            self.waiting.insert(version);
        }
    }

    /// What became of a version, once it is known.
    pub(crate) fn outcome(&mut self, version: u64) -> Option<Outcome> {
        let outcome = self.outcomes.get(&version).cloned()?;
        self.unwatch(version);
        Some(outcome)
    }

    /// One of those who waited for a version has heard enough.
    pub(crate) fn unwatch(&mut self, version: u64) {
        if let Some(watchers) = self.watchers.get_mut(&version) {
            *watchers -= 1;
            if *watchers == 0 {
                self.watchers.remove(&version);
                self.outcomes.remove(&version);
            }
        }
    }

    fn tell(&mut self, version: u64, outcome: Outcome) {
        if self.watchers.contains_key(&version) {
            self.outcomes.insert(version, outcome);
        }
    }

    /// The next version to bring, if the route is not left alone.
    pub(crate) fn next(&mut self, now: Instant, patience: Duration) -> Option<u64> {
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        // What somebody asks for is tried once, whatever happened before.
        let is_asked_for = |version: &&u64| {
            self.watchers.contains_key(version) && !self.outcomes.contains_key(version)
        };
        let mut waiting = self.waiting.iter();
        let version = *waiting.find(|version| !is_paused || is_asked_for(version))?;
        self.waiting.remove(&version);
        self.running.insert(version, now + patience);
        Some(version)
    }

    /// Names what takes too long to those who wait for it.
    pub(crate) fn name_hanging(&mut self, now: Instant) {
        let late = self.running.iter().filter(|(_, deadline)| **deadline < now);
        let late: Vec<u64> = late.map(|(version, _)| *version).collect();
        for version in late {
            if self.hanging.insert(version) {
                let message = "external storage hangs: it takes longer than it may".to_owned();
                self.trouble = Some(message.clone());
                let source = false;
                self.tell(version, Err(Failure { source, message }));
            }
        }
    }

    /// Nothing is on its way or waits for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && !self.looking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        Flow::new(Route {
            local: "/nonexistent/local".to_owned(),
            external: "/nonexistent/external".to_owned(),
            rank: 0,
            ranks: 1,
        })
    }

    #[test]
    fn what_hangs_is_named_to_those_who_wait_and_to_nobody_twice() {
        let flow = flow();
        let mut state = flow.state.lock();
        let now = Instant::now();
        state.watch(7);
        assert_eq!(state.next(now, Duration::from_secs(5)), Some(7));
        state.name_hanging(now + Duration::from_secs(4));
        assert!(state.outcome(7).is_none());
        state.name_hanging(now + Duration::from_secs(6));
        assert!(matches!(
            state.outcome(7),
            Some(Err(Failure { source: false, .. }))
        ));
        assert_eq!(state.hanging, BTreeSet::from([7]));
        state.name_hanging(now + Duration::from_secs(7));
        assert!(state.outcome(7).is_none(), "nobody waits for it any more");
    }

    #[test]
    fn a_route_in_trouble_is_left_alone_but_for_what_is_asked_for() {
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
        assert_eq!(state.pause, 4 * SHORTEST_PAUSE);
        assert_eq!(state.next(now, Duration::from_secs(5)), None);
        assert!(
            state
                .next(now + LONGEST_PAUSE, Duration::from_secs(5))
                .is_some()
        );
    }

    #[test]
    fn what_was_removed_is_not_brought_again_unless_asked_for() {
        let flow = flow();
        let mut state = flow.state.lock();
        state.removed.insert(3);
        state.watch(3);
        assert!(!state.removed.contains(&3) && state.waiting.contains(&3));
    }
}
