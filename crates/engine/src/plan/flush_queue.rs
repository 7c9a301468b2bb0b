//! What waits to be flushed from one tier, in the order that its policy wants.

use super::touched::Touched;
use crate::Version;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// Versions whose copy on one tier waits to be flushed.
///
/// Those that the policy would give up next go first, as soon as it was asked; the others follow in the order of their
/// writes.
#[derive(Debug, Default)]
pub(super) struct FlushQueue {
    /// In the order of their writes. Some have left.
    written: VecDeque<Version>,
    /// In the order in which the policy would give them up. Some have left.
    next: VecDeque<Version>,
    /// Those that have not left.
    waiting: HashSet<Version>,
    /// What the policy has chosen already, flushed or not, while it is on the tier.
    chosen: HashSet<Version>,
    /// Versions that came, left or were chosen.
    pub(super) touched: Touched,
}

impl FlushQueue {
    pub(super) fn push(&mut self, version: Version) {
        self.touched.note(version);
        self.waiting.insert(version);
        self.written.push_back(version);
    }

    /// A version whose flush came to nothing stands before all others again.
    pub(super) fn push_front(&mut self, version: Version) {
        self.touched.note(version);
        self.waiting.insert(version);
        self.next.push_front(version);
    }

    /// The policy would give these up next. True if there is any.
    pub(super) fn choose(&mut self, versions: impl Iterator<Item = Version>) -> bool {
        let before = self.chosen.len();
        for version in versions {
            self.touched.note(version);
            self.chosen.insert(version);
            self.next.push_back(version);
        }
        self.chosen.len() > before
    }

    pub(super) fn is_chosen(&self, version: Version) -> bool {
        self.chosen.contains(&version)
    }

    /// The copy of a version is not on the tier any more.
    pub(super) fn gone(&mut self, version: Version) {
        self.touched.note(version);
        self.chosen.remove(&version);
    }

    /// Whether the policy was asked for the first one.
    pub(super) fn is_front_chosen(&mut self) -> bool {
        self.forget_left();
        !self.next.is_empty()
    }

    /// The first one that may go.
    pub(super) fn first(&mut self, may_go: impl Fn(Version) -> bool) -> Option<Version> {
        self.forget_left();
        let all = self.next.iter().chain(&self.written).copied();
        all.filter(|version| self.waiting.contains(version))
            .find(|&version| may_go(version))
    }

    /// Those that were not chosen, in the order of their writes.
    pub(super) fn not_chosen(&self) -> impl Iterator<Item = Version> + '_ {
        let written = self.written.iter().copied();
        written.filter(|v| self.waiting.contains(v) && !self.chosen.contains(v))
    }

    /// The first ones of both orders are waiting afterwards.
    fn forget_left(&mut self) {
        for queue in [&mut self.next, &mut self.written] {
            while queue.front().is_some_and(|v| !self.waiting.contains(v)) {
                queue.pop_front();
            }
        }
    }

    pub(super) fn remove(&mut self, version: Version) {
        self.touched.note(version);
        self.waiting.remove(&version);
    }

    pub(super) fn contains(&self, version: Version) -> bool {
        self.waiting.contains(&version)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All that decides what goes next.
    pub(super) fn fingerprint<H: Hasher>(&self, hasher: &mut H) {
        for queue in [&self.next, &self.written] {
            let waiting = queue.iter().filter(|v| self.waiting.contains(*v));
            waiting.clone().count().hash(hasher);
            waiting.for_each(|version| version.hash(hasher));
        }
        let mut chosen: Vec<_> = self.chosen.iter().collect();
        chosen.sort_unstable();
        chosen.hash(hasher);
    }
}
