//! What is still to be brought along a route, and who waits for that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tierflow_store::{Identity, PieceInfo};

/// After a failure a route is left alone for so long, then twice as long, up to the longest.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How the last try for a version ended.
pub(crate) type Outcome = Result<(), Failure>;

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
    pub(super) just_brought: BTreeSet<u64>,
    /// Pieces on the node that cannot be read.
    pub(super) unreadable: BTreeSet<PieceKey>,
    /// Versions that were removed from external storage, while they still lie on the node.
    pub(super) removed: BTreeSet<u64>,
    /// By version: how many wait for its outcome.
    watchers: BTreeMap<u64, usize>,
    outcomes: BTreeMap<u64, Outcome>,
    pub(super) pause: Duration,
    paused_until: Option<Instant>,
    pub(crate) trouble: Option<String>,
    pub(crate) brought: u64,
}

/// What tells a piece from an older one of the same number.
pub(super) type PieceKey = (u64, Identity);

pub(super) fn key(piece: &PieceInfo) -> PieceKey {
    (piece.version, piece.identity)
}

impl State {
    pub(super) fn new() -> Self {
        Self {
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
        }
    }

    /// A piece was brought.
    pub(super) fn brought(&mut self, version: u64) {
        self.brought += 1;
        self.just_brought.insert(version);
        self.pause = SHORTEST_PAUSE;
        (self.trouble, self.paused_until) = (None, None);
    }

    /// The route is left alone for a while, longer each time.
    pub(super) fn pause(&mut self, trouble: String) {
        let until = Instant::now() + self.pause;
        self.trouble = Some(trouble);
        self.paused_until = Some(until);
        self.look_at = until;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

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

    /// Whether somebody waits to hear of a version.
    pub(super) fn is_asked_for(&self, version: u64) -> bool {
        self.watchers.contains_key(&version)
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

    pub(super) fn tell(&mut self, version: u64, outcome: Outcome) {
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

    #[test]
    fn what_hangs_is_named_to_those_who_wait_and_to_nobody_twice() {
        let mut state = State::new();
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
    fn what_was_removed_is_not_brought_again_unless_asked_for() {
        let mut state = State::new();
        state.removed.insert(3);
        state.watch(3);
        assert!(!state.removed.contains(&3) && state.waiting.contains(&3));
    }
}
