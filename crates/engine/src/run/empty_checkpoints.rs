//! Checkpoints without bytes, of ranks that have nothing to save. The plan counts one byte for each, and knows of no empty ones.

use crate::Version;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use tierflow_sync::model::Mutex;

/// Least number of versions at which those that are gone are looked for.
const LEAST: usize = 1024;

/// The versions without bytes: those that this engine may take, and those that it found.
#[derive(Debug, Default)]
pub(crate) struct EmptyCheckpoints {
    are_allowed: bool,
    /// Made with the first such version: most engines have none, and their calls take no lock here.
    known: OnceLock<Mutex<EmptyVersions>>,
}

#[derive(Debug, Default)]
struct EmptyVersions {
    versions: BTreeSet<Version>,
    /// Number of versions at which the next search for those that are gone begins.
    full: usize,
}

impl EmptyCheckpoints {
    /// Starts with no such version. `are_allowed`: true in a group, where some ranks may have nothing to save.
    pub(crate) fn new(are_allowed: bool) -> Self {
        Self {
            are_allowed,
            known: OnceLock::new(),
        }
    }

    pub(crate) fn are_allowed(&self) -> bool {
        self.are_allowed
    }

    pub(crate) fn has(&self, version: Version) -> bool {
        let known = self.known.get();
        known.is_some_and(|known| known.lock().versions.contains(&version))
    }

    /// Notes whether a new version has bytes. Returns true if so many have none that those that are gone should be
    /// [forgotten](Self::retain).
    pub(crate) fn note(&self, version: Version, is_empty: bool) -> bool {
        let known = match is_empty {
            true => Some(self.known.get_or_init(Mutex::default)),
            false => self.known.get(),
        };
        let Some(known) = known else {
            return false;
        };
        let mut known = known.lock();
        match is_empty {
            true => known.versions.insert(version),
            false => known.versions.remove(&version),
        };
        known.versions.len() >= known.full.max(LEAST)
    }

    /// Forgets the versions that are not held any more.
    pub(crate) fn retain(&self, is_held: impl Fn(Version) -> bool) {
        if let Some(known) = self.known.get() {
            let mut known = known.lock();
            known.versions.retain(|version| is_held(*version));
            known.full = 2 * known.versions.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_gone_are_forgotten_once_they_are_many() {
        let empties = EmptyCheckpoints::new(true);
        let least = LEAST as Version;
        assert!((1..least).all(|version| !empties.note(version, true)));
        assert!(empties.note(least, true));
        empties.retain(|version| version > least - 600);
        assert!(!empties.has(400) && empties.has(least));
        // The next search begins with twice as many.
        assert!((least + 1..least + 600).all(|version| !empties.note(version, true)));
        assert!(empties.note(least + 600, true));
        assert!(!empties.note(least, false) && !empties.has(least));
    }
}
