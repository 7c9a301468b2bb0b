//! The versions still to be copied along a route, and the clients that wait for them.

use crate::ends::PieceKey;
use crate::protocol::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Pauses after failures: each is twice as long as the one before, up to [`LONGEST_PAUSE`].
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
    /// Begins a pause, and returns its end.
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

const HANGS: &str = "external storage hangs: it takes longer than it may";

/// The result of the last try to bring a version.
pub(crate) type Outcome = Result<(), Failure>;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clients: usize,
    /// Versions that wait to be brought.
    pub(crate) waiting: BTreeSet<u64>,
    /// Versions being copied, each with its deadline.
    pub(crate) running: BTreeMap<u64, Instant>,
    /// Versions being removed from external storage. No copy of them begins meanwhile, as the removal would remove the new piece.
    pub(super) removing: BTreeSet<u64>,
    /// Versions in `running` whose copies are past their deadline.
    pub(crate) hanging: BTreeSet<u64>,
    /// Versions that were removed while they were copied. Pieces that these copies publish are removed afterwards.
    pub(super) overtaken: BTreeSet<u64>,
    /// The deadline of the scan for new pieces, while a thread scans.
    pub(crate) scanning: Option<Instant>,
    pub(crate) scan_at: Instant,
    /// True if the node was scanned after the last client had left the route.
    pub(crate) scanned_without_clients: bool,
    /// Versions brought since the scan began. The scan's listing may still have them as new.
    pub(super) just_brought: BTreeSet<u64>,
    /// Pieces on the node that are not brought: external storage has a newer piece, or gave the version up, or a client removed it.
    pub(super) settled: BTreeSet<PieceKey>,
    /// Versions whose pieces on the node cannot be read, with the errors. A scan tries them again after a pause of `rereading`.
    pub(crate) unreadable: BTreeMap<u64, String>,
    pub(super) rereading: BackOff,
    /// Number of clients that wait for the outcome of a version, by version.
    watchers: BTreeMap<u64, usize>,
    outcomes: BTreeMap<u64, Outcome>,
    /// The pauses of the whole route.
    pub(super) back_off: BackOff,
    /// The error of the last try, if it failed.
    failure: Option<String>,
    /// True if no piece could be brought when the agent was told to end. The next agent brings the rest.
    gave_up: bool,
    pub(crate) brought: u64,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            clients: 0,
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
            removing: BTreeSet::new(),
            hanging: BTreeSet::new(),
            overtaken: BTreeSet::new(),
            scanning: None,
            scan_at: Instant::now(),
            scanned_without_clients: false,
            just_brought: BTreeSet::new(),
            settled: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            rereading: BackOff::default(),
            watchers: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            back_off: BackOff::default(),
            failure: None,
            gave_up: false,
            brought: 0,
        }
    }

    /// Notes that a piece was brought.
    pub(super) fn brought(&mut self, version: u64) {
        self.brought += 1;
        self.just_brought.insert(version);
        (self.failure, self.back_off) = (None, BackOff::default());
        self.gave_up = false;
        if self.unreadable.remove(&version).is_some() {
            self.rereading = BackOff::default();
        }
    }

    /// Notes that a piece could not be read. Pieces that fail during a pause do not lengthen it.
    pub(super) fn unreadable(&mut self, version: u64, error: &tierflow_store::Error) {
        let why = format!("version {version}: {error}");
        self.unreadable.insert(version, why);
        if self.rereading.is_over(Instant::now()) {
            self.rereading.begin();
        }
    }

    /// Pauses the route, twice as long as for the failure before.
    pub(super) fn pause(&mut self, failure: String) {
        self.failure = Some(failure);
        self.scan_at = self.back_off.begin();
    }

    /// Ends the pause of the route, and lets the next free thread scan the node.
    pub(crate) fn end_pause(&mut self) {
        let now = Instant::now();
        (self.back_off.until, self.scan_at) = (None, now);
    }

    /// Notes that a client waits for a version. The version is brought even if it was settled or unreadable before.
    pub(crate) fn watch(&mut self, version: u64) {
        *self.watchers.entry(version).or_default() += 1;
        self.outcomes.remove(&version);
        self.gave_up = false;
        self.settled.retain(|piece| piece.version != version);
        // A running copy whose piece was removed meanwhile is not a copy of the piece that the client waits for.
        if !self.running.contains_key(&version) || self.overtaken.contains(&version) {
            self.waiting.insert(version);
        }
        // The other clients were told when the copy began to hang.
        if self.hanging.contains(&version) {
            self.tell(version, Err(HANGS.to_owned().into()));
        }
    }

    /// Returns true if a version waits to be copied, or is being copied.
    pub(super) fn is_to_come(&self, version: u64) -> bool {
        self.waiting.contains(&version) || self.running.contains_key(&version)
    }

    /// Begins the removal of versions. Versions that wait are not brought, and running copies count as overtaken. Clients that wait for them
    /// get an error.
    pub(super) fn remove(&mut self, versions: &BTreeSet<u64>) {
        for &version in versions {
            self.unreadable.remove(&version);
            let is_running = self.running.contains_key(&version);
            if is_running {
                self.overtaken.insert(version);
            }
            if self.waiting.remove(&version) || is_running {
                let message = format!("version {version} was removed before it was brought");
                self.tell(version, Err(message.into()));
            }
        }
        self.removing.clone_from(versions);
    }

    /// Returns true if a client waits for the running copy of a version.
    pub(super) fn is_asked_for(&self, version: u64) -> bool {
        self.watchers.contains_key(&version) && !self.overtaken.contains(&version)
    }

    /// Returns the outcome of a version, once it is known, to one of the clients that wait for it. The client does not wait any more.
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

    /// Returns true if it is time to scan the node.
    pub(crate) fn is_to_scan(&self, now: Instant) -> bool {
        self.scanning.is_none() && self.scan_at <= now
    }

    /// Moves the next version to bring to `running`, and returns it. While the route pauses, only versions that clients ask for are brought.
    pub(crate) fn next(&mut self, now: Instant, patience: Duration) -> Option<u64> {
        let is_paused = !self.back_off.is_over(now);
        // A version that a client asks for is tried once, even during a pause.
        let is_asked_for = |version: &&u64| {
            self.watchers.contains_key(version) && !self.outcomes.contains_key(version)
        };
        let mut waiting = self.waiting.iter();
        let version = *waiting.find(|version| {
            let may_begin = !self.running.contains_key(version) && !self.removing.contains(version);
            may_begin && (!is_paused || is_asked_for(version))
        })?;
        self.waiting.remove(&version);
        self.overtaken.remove(&version);
        self.running.insert(version, now + patience);
        Some(version)
    }

    /// Tells the clients that wait for a version past its deadline that storage hangs. Returns the number of threads that wait for such
    /// storage.
    pub(crate) fn name_hanging(&mut self, now: Instant) -> usize {
        let late = self.running.iter().filter(|(_, deadline)| **deadline < now);
        let late: Vec<u64> = late.map(|(version, _)| *version).collect();
        for version in late {
            if self.hanging.insert(version) {
                self.tell(version, Err(HANGS.to_owned().into()));
            }
        }
        self.hanging.len() + usize::from(self.scans_late(now))
    }

    fn scans_late(&self, now: Instant) -> bool {
        self.scanning.is_some_and(|deadline| deadline < now)
    }

    /// Returns the reason for which some or all versions cannot be brought at the moment.
    pub(crate) fn trouble(&self, now: Instant) -> Option<String> {
        let hangs = !self.hanging.is_empty() || self.scans_late(now);
        let unreadable = || self.unreadable.values().next();
        match hangs {
            true => Some(HANGS.to_owned()),
            false => self.failure.as_ref().or_else(unreadable).cloned(),
        }
    }

    /// Returns true if nothing can be brought now: storage hangs, or the last try failed and the route pauses. A piece that cannot be read
    /// does not hold up others.
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        let hangs = !self.hanging.is_empty() || self.scans_late(now);
        !self.goes_on() && (hangs || !self.back_off.is_over(now))
    }

    fn goes_on(&self) -> bool {
        self.running.len() > self.hanging.len()
    }

    /// Returns true if an agent that was told to end does not wait for the route: nothing is left, a scan is late, or nothing could be brought
    /// once. After such a failure, the agent does not wait for another scan, however long it takes. A late scan may still find pieces to bring;
    /// the agent then waits for these.
    pub(crate) fn may_end(&mut self, now: Instant) -> bool {
        let fails = !self.hanging.is_empty() || !self.back_off.is_over(now);
        self.gave_up |= fails && !self.goes_on();
        let is_idle = self.is_idle() && self.scan_at > now;
        is_idle || (self.gave_up && !self.goes_on()) || self.is_stuck(now)
    }

    /// Notes that a scan succeeded. Forgets the last failure if nothing is left to bring.
    pub(super) fn scanned(&mut self) {
        if self.waiting.is_empty() && self.running.is_empty() {
            self.failure = None;
        }
    }

    /// Returns true if nothing is being copied or scanned, and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let is_copied = !self.running.is_empty() || !self.overtaken.is_empty();
        self.waiting.is_empty() && !is_copied && self.scanning.is_none()
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
        assert!(matches!(state.outcome(7), Some(Err(_))));
        assert_eq!(state.hanging, BTreeSet::from([7]));
        state.name_hanging(now + Duration::from_secs(7));
        assert!(
            state.outcome(7).is_none(),
            "no client waits for it any more"
        );
        // A client that asks for the version again gets the error at once, and does not wait for the copy that hangs.
        state.watch(7);
        assert!(matches!(state.outcome(7), Some(Err(_))));
    }

    #[test]
    fn a_scan_that_was_late_ends_nothing_once_it_has_found_versions() {
        let mut state = State::new();
        let now = Instant::now();
        state.scanning = Some(now);
        assert!(state.may_end(now + Duration::from_secs(1)));
        state.scanning = None;
        state.waiting.insert(7);
        assert!(!state.may_end(now + Duration::from_secs(2)));
    }

    #[test]
    fn what_was_removed_is_not_brought_again_unless_asked_for() {
        let removed = PieceKey {
            version: 3,
            ..PieceKey::default()
        };
        let mut state = State::new();
        state.settled.insert(removed);
        state.watch(3);
        assert!(state.settled.is_empty() && state.waiting.contains(&3));
    }
}
