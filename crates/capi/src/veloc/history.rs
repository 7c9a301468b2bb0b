//! The checkpoints that the engine holds, by name and version.

use std::collections::{BTreeMap, BTreeSet};

use tierflow_engine::{Engine, read_piece};
use tierflow_store::veloc::Names;

use super::head::{Head, head_of, is_head, serial_of};
use crate::failure::Outcome;

#[derive(Debug, Default)]
pub(super) struct History {
    /// The heads of the checkpoints that no newer one has replaced.
    names: Names,
    /// Versions to discard once a newer version of their name is durable.
    outdated: Vec<Head>,
    /// Parts of checkpoints that earlier runs never ended, to discard once a newer checkpoint is durable.
    leftovers: Vec<u64>,
    /// The first serial of this run.
    first: u64,
    /// The names with versions of earlier runs.
    earlier: BTreeSet<String>,
    /// The names for which this run asked for the newest version, and got the answer.
    offered: BTreeSet<String>,
}

impl History {
    /// Reads the checkpoints that an engine holds. Returns them and the first free serial, and discards nothing. `empties` is true if parts
    /// without bytes have versions.
    pub(super) fn load(engine: &Engine, empties: bool) -> Outcome<(Self, u64)> {
        let held: BTreeSet<u64> = engine.versions().into_iter().collect();
        let next = held.last().map_or(0, |last| serial_of(*last) + 1);
        let mut heads = Vec::new();
        for &number in held.iter().filter(|number| is_head(**number)) {
            // The engine reports a damaged head. The other checkpoints are still usable.
            let piece = engine
                .piece(number, None)
                .and_then(|piece| read_piece(&piece));
            let bytes = piece.or_else(|_| restored(engine, number));
            let head = bytes.ok().and_then(|bytes| Head::decode(&bytes));
            heads.extend(head.filter(|head| head.number() == number));
        }
        let mut history = Self {
            first: next,
            ..Self::default()
        };
        for head in heads {
            let is_there = head.numbers(empties).all(|number| held.contains(&number));
            if is_there {
                history.insert(head);
            }
        }
        history.earlier = history.names().into_iter().collect();
        // The parts of a head that cannot be read are kept, as the head may be readable later.
        let is_left = |number: &u64| !held.contains(&head_of(serial_of(*number)));
        history.leftovers = held.iter().copied().filter(is_left).collect();
        Ok((history, next))
    }

    /// Notes that this run was told which versions of a name there are.
    pub(super) fn offer(&mut self, name: &str) {
        if !self.offered.contains(name) {
            self.offered.insert(name.to_owned());
        }
    }

    /// Returns the serial below which versions of a name are spared: the first of this run, if the run was not told of earlier versions;
    /// else 0.
    pub(super) fn spared(&self, name: &str) -> u64 {
        match self.earlier.contains(name) && !self.offered.contains(name) {
            true => self.first,
            false => 0,
        }
    }

    /// Adds a newer version. The versions of its name with the same or a higher number become outdated, as the application restarted from an
    /// older version after it wrote them, and are discarded once the new version is durable. Versions that `head` spares stay.
    pub(super) fn insert(&mut self, head: Head) {
        self.outdated.extend(self.names.insert(head));
    }

    /// Removes and returns the parts of checkpoints that were never ended, once a newer checkpoint is durable.
    pub(super) fn take_leftovers(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.leftovers)
    }

    /// Removes and returns the outdated versions that have the name of `durable` and are older.
    pub(super) fn superseded_by(&mut self, durable: &Head) -> Vec<Head> {
        let is_kept = |old: &Head| old.name != durable.name || old.serial >= durable.serial;
        let (kept, superseded) = std::mem::take(&mut self.outdated)
            .into_iter()
            .partition(is_kept);
        self.outdated = kept;
        superseded
    }

    /// Removes and returns the versions of a name that are older than its `most` newest whole versions. Spared versions stay, and are not
    /// counted.
    pub(super) fn beyond(
        &mut self,
        name: &str,
        most: usize,
        is_whole: impl Fn(&Head) -> bool,
    ) -> Vec<Head> {
        let spared = self.spared(name);
        let own = |head: &&Head| head.serial >= spared;
        let whole = self.versions(name).rev().filter(own);
        let whole = whole.filter(|head| is_whole(head));
        let Some(oldest) = whole.map(|head| head.version).nth(most.saturating_sub(1)) else {
            return Vec::new();
        };
        let is_beyond = |head: &Head| head.version < oldest && head.serial >= spared;
        self.names.extract(name, is_beyond)
    }

    /// Removes and returns all versions of a name.
    pub(super) fn remove(&mut self, name: &str) -> Vec<Head> {
        self.names.extract(name, |_| true)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|(name, _)| name.to_owned()).collect()
    }

    pub(super) fn find(&self, name: &str, version: u64) -> Option<&Head> {
        self.names.get(name)?.get(&version)
    }

    /// Returns the checkpoint of a version: under this name if there is one, else the one that was taken last under any name.
    pub(super) fn of_version(&self, name: Option<&str>, version: u64) -> Option<&Head> {
        let own = name.and_then(|name| self.find(name, version));
        let all = self.names.iter().filter_map(|(_, own)| own.get(&version));
        own.or_else(|| all.max_by_key(|head| head.serial))
    }

    /// Returns the checkpoint with this serial.
    pub(super) fn of_serial(&self, serial: u64) -> Option<&Head> {
        let mut all = self.names.iter().flat_map(|(_, own)| own.values());
        all.find(|head| head.serial == serial)
    }

    /// Returns the newest version of a name that is no newer than `most`.
    pub(super) fn newest(&self, name: &str, most: u64) -> Option<u64> {
        let mut older = self.names.get(name)?.range(..=most);
        older.next_back().map(|(version, _)| *version)
    }

    /// Returns the versions of a name, in ascending order.
    pub(super) fn versions(&self, name: &str) -> impl DoubleEndedIterator<Item = &Head> {
        self.names.get(name).into_iter().flat_map(BTreeMap::values)
    }
}

/// Restores a version that cannot be read on storage: another tier may hold it.
fn restored(engine: &Engine, number: u64) -> tierflow_engine::Result<Vec<u8>> {
    let size = engine.restore_size(number)?;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    engine.restore(number, &mut [bytes.as_mut_slice().into()])?;
    Ok(bytes)
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
                spares: 0,
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
    fn what_a_run_was_never_told_of_stays() {
        let mut history = history(&[("a", 85), ("a", 90), ("a", 95)]);
        history.first = 3;
        history.earlier.insert("a".to_owned());
        let head = |version, serial, spares| Head {
            name: "a".to_owned(),
            version,
            serial,
            spares,
            parts: Vec::new(),
        };
        for (version, serial) in [(5, 3), (6, 4), (90, 5)] {
            let spares = history.spared("a");
            assert_eq!(spares, 3);
            history.insert(head(version, serial, spares));
        }
        assert_eq!(versions(&history, "a"), [5, 6, 85, 90, 95]);
        // The version with the same number is outdated.
        let gone = history.superseded_by(&head(90, 5, 3));
        assert_eq!(gone.len(), 1);
        // Spared versions are not counted, and stay.
        let gone = history.beyond("a", 2, |_| true);
        assert_eq!(
            gone.iter().map(|head| head.version).collect::<Vec<_>>(),
            [5]
        );
        assert_eq!(versions(&history, "a"), [6, 85, 90, 95]);
        // Once the run was told of them, no versions are spared.
        history.offer("a");
        assert_eq!(history.spared("a"), 0);
        history.insert(head(7, 6, 0));
        assert_eq!(versions(&history, "a"), [6, 7]);
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
