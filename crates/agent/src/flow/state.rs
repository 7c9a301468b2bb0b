//! The versions still to be copied along a route, and the clients that wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tierflow_store::{Identity, PieceInfo};

pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Back-off after failures: a pause, then one twice as long, up to the longest.
#[derive(Debug)]
pub(super) struct BackOff {
    /// The length of the next pause.
    pub(super) pause: Duration,
    until: Option<Instant>,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            pause: SHORTEST_PAUSE,
            until: None,
        }
    }
}

impl BackOff {
    /// Begins a pause. Returns its end.
    fn begin(&mut self) -> Instant {
        let until = Instant::now() + self.pause;
        self.until = Some(until);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        until
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

/// How the last try for a version ended.
pub(crate) type Outcome = Result<(), Failure>;

/// Why a version was not brought.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The piece on the node cannot be read, or is not to be brought: external storage is not at fault.
    pub(crate) source: bool,
    pub(crate) message: String,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clients: usize,
    /// Versions to be brought.
    pub(crate) waiting: BTreeSet<u64>,
    /// Versions being copied, each with its deadline.
    pub(crate) running: BTreeMap<u64, Instant>,
    /// Of these, those past their deadline.
    pub(crate) hanging: BTreeSet<u64>,
    /// A thread scans the node for new pieces, or has that task.
    pub(crate) scanning: bool,
    pub(crate) scan_at: Instant,
    /// The node was scanned after the last client had left the route.
    pub(crate) scanned_without_clients: bool,
    /// Versions brought since the scan began: its listing may still name them.
    pub(super) just_brought: BTreeSet<u64>,
    /// Versions removed since the scan began: its listing may not name them yet.
    pub(super) just_removed: BTreeSet<u64>,
    /// Pieces on the node that are not to be brought: external storage has a newer one, or gave it up.
    pub(super) settled: BTreeSet<PieceKey>,
    /// Versions whose pieces on the node cannot be read, and why. A scan finds them anew after a pause of `rereading`.
    pub(crate) unreadable: BTreeMap<u64, String>,
    pub(super) rereading: BackOff,
    /// Versions that were removed from external storage, while they still lie on the node or are being copied.
    pub(super) removed: BTreeSet<u64>,
    /// By version: how many clients wait for its outcome.
    watchers: BTreeMap<u64, usize>,
    outcomes: BTreeMap<u64, Outcome>,
    /// The pauses of the whole route.
    pub(super) back_off: BackOff,
    pub(crate) trouble: Option<String>,
    pub(crate) brought: u64,
}

/// Distinguishes a piece from an older one of the same number.
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
            scanning: false,
            scan_at: Instant::now(),
            scanned_without_clients: false,
            just_brought: BTreeSet::new(),
            just_removed: BTreeSet::new(),
            settled: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            rereading: BackOff::default(),
            removed: BTreeSet::new(),
            watchers: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            back_off: BackOff::default(),
            trouble: None,
            brought: 0,
        }
    }

    /// A piece was brought.
    pub(super) fn brought(&mut self, version: u64) {
        self.brought += 1;
        self.just_brought.insert(version);
        (self.trouble, self.back_off) = (None, BackOff::default());
        if self.unreadable.remove(&version).is_some() {
            self.rereading = BackOff::default();
        }
    }

    /// A piece could not be read. Those that fail in one pause do not lengthen it.
    pub(super) fn unreadable(&mut self, version: u64, error: &tierflow_store::Error) {
        let why = format!("version {version}: {error}");
        self.unreadable.insert(version, why);
        if self.rereading.is_over(Instant::now()) {
            self.rereading.begin();
        }
    }

    /// Pauses the route, twice as long as the time before.
    pub(super) fn pause(&mut self, trouble: String) {
        self.trouble = Some(trouble);
        self.scan_at = self.back_off.begin();
    }

    /// A client waits for a version, which is brought even if it could not be read before.
    pub(crate) fn watch(&mut self, version: u64) {
        *self.watchers.entry(version).or_default() += 1;
        self.outcomes.remove(&version);
        // The copy of a piece that was removed meanwhile is no copy of this one.
        let was_removed = self.removed.remove(&version);
        self.settled.retain(|piece| piece.0 != version);
        if was_removed || !self.running.contains_key(&version) {
            self.waiting.insert(version);
        }
    }

    /// Returns true if a version waits to be copied, or is being copied.
    pub(super) fn is_to_come(&self, version: u64) -> bool {
        self.waiting.contains(&version) || self.running.contains_key(&version)
    }

    /// Versions are removed, and those that wait are not brought. Clients that wait for these are told so.
    pub(super) fn remove(&mut self, versions: &BTreeSet<u64>) {
        for &version in versions {
            self.unreadable.remove(&version);
            if self.waiting.remove(&version) {
                let message = format!("version {version} was removed before it was brought");
                let source = true;
                self.tell(version, Err(Failure { source, message }));
            }
        }
        self.removed.extend(versions);
        self.just_removed.extend(versions);
    }

    /// Forgets the removals of versions that can come back no more: a whole scan did not find them, and none is being copied.
    pub(super) fn forget_removed(&mut self, there: &BTreeSet<u64>) {
        let (running, lately) = (&self.running, &self.just_removed);
        self.removed.retain(|version| {
            there.contains(version) || running.contains_key(version) || lately.contains(version)
        });
    }

    /// Returns true if a client waits for a version.
    pub(super) fn is_asked_for(&self, version: u64) -> bool {
        self.watchers.contains_key(&version)
    }

    /// The outcome of a version, once it is known, for one of the clients that wait for it.
    pub(crate) fn outcome(&mut self, version: u64) -> Option<Outcome> {
        let outcome = self.outcomes.get(&version).cloned()?;
        self.unwatch(version);
        Some(outcome)
    }

    /// Ends the wait of a client for a version.
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

    /// The next version to bring, unless the route pauses.
    pub(crate) fn next(&mut self, now: Instant, patience: Duration) -> Option<u64> {
        let is_paused = !self.back_off.is_over(now);
        // A version that a client asks for is tried once, even during a pause.
        let is_asked_for = |version: &&u64| {
            self.watchers.contains_key(version) && !self.outcomes.contains_key(version)
        };
        let mut waiting = self.waiting.iter();
        let version = *waiting.find(|version| {
            let may_begin = !self.running.contains_key(version);
            may_begin && (!is_paused || is_asked_for(version))
        })?;
        self.waiting.remove(&version);
        self.running.insert(version, now + patience);
        Some(version)
    }

    /// Tells the clients that wait for a version past its deadline that storage hangs.
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

    /// Nothing is being copied, scanned or waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && !self.scanning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_named_to_each_waiting_client_once() {
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
        assert!(
            state.outcome(7).is_none(),
            "no client waits for it any more"
        );
    }

    #[test]
    fn what_was_removed_is_not_brought_again_unless_asked_for() {
        let mut state = State::new();
        state.removed.insert(3);
        state.watch(3);
        assert!(!state.removed.contains(&3) && state.waiting.contains(&3));
    }
}
