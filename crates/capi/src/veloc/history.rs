//! The checkpoints that the engine holds, by name and version.

use std::collections::{BTreeMap, BTreeSet};

use tierflow_engine::Engine;

use super::head::{Head, is_head, serial_of};
use crate::failure::Outcome;

#[derive(Debug, Default)]
pub(super) struct History {
    names: BTreeMap<String, BTreeMap<u64, Head>>,
    /// Versions to be discarded once a newer one of their name is durable.
    outdated: Vec<Head>,
}

impl History {
    /// The checkpoints that an engine holds, and the first free serial. Parts without a head are discarded: their checkpoint was
    /// never ended.
    pub(super) fn load(engine: &Engine, empties: bool) -> Outcome<(Self, u64)> {
        let held: BTreeSet<u64> = engine.versions().into_iter().collect();
        let next = held.last().map_or(0, |last| serial_of(*last) + 1);
        let mut heads = Vec::new();
        for &number in held.iter().filter(|number| is_head(**number)) {
            let size = usize::try_from(engine.restore_size(number)?).unwrap_or(usize::MAX);
            let mut bytes = vec![0; size];
            let read = engine.restore(number, &mut [bytes.as_mut_slice().into()]);
            // One that is damaged is known to the engine; the others are as good as before.
            let head = read.ok().and_then(|()| Head::decode(&bytes));
            heads.extend(head.filter(|head| head.number() == number));
        }
        heads.sort_by_key(|head| head.serial);
        let (mut history, mut known) = (Self::default(), BTreeSet::new());
        for head in heads {
            let is_there = head.numbers(empties).all(|number| held.contains(&number));
            if is_there {
                known.extend(head.numbers(empties));
                history.insert(head);
            }
        }
        for old in std::mem::take(&mut history.outdated) {
            for number in old.numbers(empties) {
                known.remove(&number);
            }
        }
        for number in held.difference(&known) {
            // What cannot be discarded now is not in the history, and is found again by the next engine.
            let _discarded = engine.discard(*number);
        }
        Ok((history, next))
    }

    /// Adds a newer version. Those of its name with the same number or higher ones were written before the application
    /// restarted from an older one: they are outdated, and discarded once this one is durable.
    pub(super) fn insert(&mut self, head: Head) {
        let versions = self.names.entry(head.name.clone()).or_default();
        let outdated = versions.split_off(&head.version);
        self.outdated.extend(outdated.into_values());
        versions.insert(head.version, head);
    }

    /// Removes and returns the outdated versions of its name that are older than this durable one.
    pub(super) fn superseded_by(&mut self, durable: &Head) -> Vec<Head> {
        let is_kept = |old: &Head| old.name != durable.name || old.serial >= durable.serial;
        let (kept, superseded) = std::mem::take(&mut self.outdated)
            .into_iter()
            .partition(is_kept);
        self.outdated = kept;
        superseded
    }

    /// Removes and returns the versions of a name older than its `most` newest whole ones.
    pub(super) fn beyond(
        &mut self,
        name: &str,
        most: usize,
        is_whole: impl Fn(&Head) -> bool,
    ) -> Vec<Head> {
        let Some(versions) = self.names.get_mut(name) else {
            return Vec::new();
        };
        let whole = versions.values().rev().filter(|head| is_whole(head));
        let Some(oldest) = whole.map(|head| head.version).nth(most.saturating_sub(1)) else {
            return Vec::new();
        };
        let kept = versions.split_off(&oldest);
        std::mem::replace(versions, kept).into_values().collect()
    }

    /// Removes and returns all versions of a name.
    pub(super) fn remove(&mut self, name: &str) -> Vec<Head> {
        let versions = self.names.remove(name).unwrap_or_default();
        versions.into_values().collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn find(&self, name: &str, version: u64) -> Option<&Head> {
        self.names.get(name)?.get(&version)
    }

    /// The newest version of a name that is no newer than `most`.
    pub(super) fn newest(&self, name: &str, most: u64) -> Option<u64> {
        let mut older = self.names.get(name)?.range(..=most);
        older.next_back().map(|(version, _)| *version)
    }

    /// The versions of a name, in ascending order.
    pub(super) fn versions(&self, name: &str) -> impl DoubleEndedIterator<Item = &Head> {
        self.names.get(name).into_iter().flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(all: &[(&str, u64)]) -> History {
        let mut history = History::default();
        for (serial, (name, version)) in (0..).zip(all) {
            history.insert(Head {
                name: (*name).to_owned(),
                version: *version,
                serial,
                parts: Vec::new(),
            });
        }
        history
    }

    fn versions(history: &History, name: &str) -> Vec<u64> {
        history.versions(name).map(|head| head.version).collect()
    }

    #[test]
    fn a_program_that_went_back_leaves_its_other_future() {
        let mut history = history(&[("a", 1), ("a", 2), ("b", 9), ("a", 3), ("a", 2)]);
        assert_eq!(versions(&history, "a"), [1, 2]);
        assert_eq!(history.newest("a", u64::MAX), Some(2));
        assert_eq!(history.newest("b", 8), None);
        let newest = history.find("a", 2).cloned().unwrap();
        let gone = history.superseded_by(&newest);
        let gone: Vec<u64> = gone.iter().map(|head| head.serial).collect();
        assert_eq!(gone, [1, 3]);
    }

    #[test]
    fn as_many_are_kept_as_all_ranks_have() {
        let mut history = history(&[("a", 1), ("a", 2), ("a", 3), ("a", 4)]);
        let gone = history.beyond("a", 1, |head| head.version <= 3);
        assert_eq!(gone.len(), 2);
        assert_eq!(versions(&history, "a"), [3, 4]);
        assert!(history.beyond("a", 1, |_| false).is_empty());
    }
}
