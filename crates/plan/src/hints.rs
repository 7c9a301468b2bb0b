//! The restore order queue *P* (HPDC'23 §4.1.1): the versions that the application expects to read, in order.

use crate::Version;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

/// An expected read.
#[derive(Debug, Clone, Copy)]
struct ExpectedRead {
    version: Version,
    /// Sequence number of the next reading of the same version.
    next: Option<u64>,
}

/// The sequence number of the first reading of all. As many numbers lie before it as readings may ever be put in front.
const FIRST: u64 = 1 << 60;

/// The restore order. A version may be named several times, and before it is written. Sequence numbers ascend along the queue; those
/// of readings that were forgotten at an end of it are given to the next ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    /// The readings to come, by their sequence numbers: one that never takes place keeps no others in memory.
    queue: BTreeMap<u64, ExpectedRead>,
    /// First and last reading of each version.
    readings: HashMap<Version, (u64, u64)>,
    /// First readings of versions that are not written yet.
    unwritten: BTreeSet<u64>,
}

impl Hints {
    /// Returns the sequence number of the reading that is appended next.
    pub(crate) fn behind(&self) -> u64 {
        let last = self.queue.last_key_value();
        last.map_or(FIRST, |(last, _)| last + 1)
    }

    /// Number of readings that are expected.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Appends a reading.
    pub(crate) fn push_back(&mut self, version: Version) {
        let (sequence, next) = (self.behind(), None);
        let (_, last) = self.readings.entry(version).or_insert((sequence, sequence));
        if let Some(last) = self.queue.get_mut(&std::mem::replace(last, sequence)) {
            last.next = Some(sequence);
        }
        self.queue.insert(sequence, ExpectedRead { version, next });
    }

    /// Puts a reading before all others.
    pub(crate) fn push_front(&mut self, version: Version) {
        let first = self.queue.first_key_value();
        let sequence = first.map_or(FIRST, |(first, _)| first - 1);
        let next = self.next(version);
        let (first, _) = self.readings.entry(version).or_insert((sequence, sequence));
        *first = sequence;
        self.queue.insert(sequence, ExpectedRead { version, next });
    }

    /// Returns the number of readings before the next one of a version, if it is hinted. Readings between that took place out of
    /// order count.
    pub(crate) fn distance(&self, version: Version) -> Option<u64> {
        let (first, _) = self.queue.first_key_value()?;
        Some(self.next(version)?.saturating_sub(*first))
    }

    /// Sequence number of the next reading of `version`.
    pub(crate) fn next(&self, version: Version) -> Option<u64> {
        self.readings.get(&version).map(|&(first, _)| first)
    }

    /// Returns true if no version is expected to be read twice.
    pub(crate) fn are_distinct(&self) -> bool {
        self.queue.len() == self.readings.len()
    }

    /// Sequence number of the reading of `version` behind its next one.
    pub(crate) fn after_next(&self, version: Version) -> Option<u64> {
        self.queue.get(&self.next(version)?)?.next
    }

    /// Returns the sequence number of the reading with so many before it, or of the first one of a version that is not written yet, whichever
    /// comes first. `None` if all versions are written.
    pub(crate) fn following(&self, readings: usize) -> Option<u64> {
        let unwritten = self.first_unwritten()?;
        let mut before = self.queue.range(..unwritten);
        Some(before.nth(readings).map_or(unwritten, |(&at, _)| at))
    }

    /// Returns the sequence number of the first reading of a version that is not written yet.
    pub(crate) fn first_unwritten(&self) -> Option<u64> {
        self.unwritten.first().copied()
    }

    /// Returns the versions to be read from a sequence number on.
    pub(crate) fn from(&self, sequence: u64) -> impl Iterator<Item = Version> + '_ {
        let rest = self.queue.range(sequence..);
        rest.map(|(_, reading)| reading.version)
    }

    /// Removes the next reading of `version`, which took place. Returns its sequence number.
    pub(crate) fn consume(&mut self, version: Version) -> Option<u64> {
        let (first, last) = *self.readings.get(&version)?;
        match self.remove(first) {
            Some(next) => self.readings.insert(version, (next, last)),
            None => self.readings.remove(&version),
        };
        Some(first)
    }

    /// Removes all readings of `version`.
    pub(crate) fn forget(&mut self, version: Version) {
        let mut next = self.readings.remove(&version).map(|(first, _)| first);
        while let Some(sequence) = next {
            next = self.remove(sequence);
        }
    }

    /// Removes a reading; returns the next one of the same version.
    fn remove(&mut self, sequence: u64) -> Option<u64> {
        self.unwritten.remove(&sequence);
        self.queue.remove(&sequence)?.next
    }

    /// Notes that the version of this first reading is written, or not yet.
    pub(crate) fn set_written(&mut self, sequence: u64, is_written: bool) {
        match is_written {
            true => self.unwritten.remove(&sequence),
            false => self.unwritten.insert(sequence),
        };
    }

    /// Number of versions that are hinted and not written yet.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.len() as u64
    }

    /// Returns the unwritten version whose reading comes first of all, if that is before a sequence number.
    pub(crate) fn overdue(&self, before: u64) -> Option<Version> {
        let first = self.first_unwritten().filter(|&first| first < before)?;
        self.queue.get(&first).map(|reading| reading.version)
    }

    /// Returns the versions of the readings before a sequence number, the last one first.
    pub(crate) fn last_before(&self, sequence: u64) -> impl Iterator<Item = Version> + '_ {
        let readings = self.queue.range(..sequence).rev();
        readings.map(|(_, reading)| reading.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(versions: &[Version]) -> Hints {
        let mut hints = Hints::default();
        for &version in versions {
            hints.push_back(version);
        }
        hints
    }

    #[test]
    fn a_reading_out_of_order_leaves_the_others() {
        let mut hints = hints(&[1, 2, 3]);
        assert_eq!(hints.consume(2), Some(FIRST + 1));
        assert_eq!(hints.from(0).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(hints.consume(1), Some(FIRST));
        assert_eq!(
            (hints.distance(3), hints.next(3)),
            (Some(0), Some(FIRST + 2))
        );
    }

    #[test]
    fn a_version_may_be_read_several_times_or_forgotten() {
        let mut hints = hints(&[7, 8, 7, 7]);
        assert_eq!(hints.consume(7), Some(FIRST));
        assert_eq!(hints.next(7), Some(FIRST + 2));
        assert_eq!(hints.consume(7), Some(FIRST + 2));
        assert_eq!(hints.next(7), Some(FIRST + 3));
        hints.forget(7);
        assert_eq!((hints.next(7), hints.from(0).count()), (None, 1));
        hints.consume(8);
        assert_eq!((hints.from(0).count(), hints.distance(8)), (0, None));
    }

    #[test]
    fn a_reading_in_front_comes_before_all_others() {
        let mut hints = hints(&[7, 8]);
        hints.push_front(8);
        hints.push_front(9);
        assert_eq!(hints.from(0).collect::<Vec<_>>(), [9, 8, 7, 8]);
        assert_eq!((hints.distance(7), hints.distance(8)), (Some(2), Some(1)));
        hints.consume(8);
        assert_eq!((hints.distance(8), hints.distance(9)), (Some(3), Some(0)));
        hints.forget(8);
        hints.consume(9);
        hints.push_back(5);
        assert_eq!(hints.next(5), Some(FIRST + 1));
        hints.push_front(6);
        assert_eq!(hints.from(0).collect::<Vec<_>>(), [6, 7, 5]);
    }

    #[test]
    fn a_reading_that_never_takes_place_keeps_no_others_in_memory() {
        let mut hints = hints(&Vec::from_iter(1..100));
        assert!((2..99).all(|version| hints.consume(version).is_some()));
        assert_eq!(hints.queue.len(), 2);
        assert_eq!(hints.from(0).collect::<Vec<_>>(), [1, 99]);
    }

    #[test]
    fn what_should_have_been_read_and_was_never_written_is_found() {
        let mut hints = hints(&[5, 6, 7]);
        hints.set_written(FIRST, false);
        hints.set_written(FIRST + 2, false);
        let overdue = |before: u64| hints.overdue(FIRST + before);
        assert_eq!((overdue(0), overdue(1)), (None, Some(5)));
        hints.forget(5);
        assert_eq!((hints.overdue(FIRST + 2), hints.unwritten()), (None, 1));
    }
}
