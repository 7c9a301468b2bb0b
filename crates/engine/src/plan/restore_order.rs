//! P, the restore order queue (HPDC'23 §4.1.1): which versions the application expects to read, in which order.

use super::touched::Touched;
use crate::Version;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// The restore order. A version may be named several times, and before it is written.
#[derive(Debug, Default)]
pub(super) struct RestoreOrder {
    /// Sequence number of the front entry. Sequence numbers are never reused.
    head: u64,
    /// `None` where a version was read out of order or dropped: such a hole goes once it reaches the head.
    pub(super) queue: VecDeque<Option<Version>>,
    /// Sequence numbers of each version's entries, ascending.
    places: HashMap<Version, VecDeque<u64>>,
    /// Versions of which the next reading may be another one.
    pub(super) touched: Touched,
}

impl RestoreOrder {
    pub(super) fn push(&mut self, version: Version) {
        self.touched.note(version);
        let sequence = self.end();
        self.queue.push_back(Some(version));
        self.places.entry(version).or_default().push_back(sequence);
    }

    /// Sequence number of the front.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// One past the last sequence number.
    pub(super) fn end(&self) -> u64 {
        self.head + self.queue.len() as u64
    }

    /// The version at a sequence number; `None` for a hole.
    pub(super) fn at(&self, sequence: u64) -> Option<Version> {
        let index = sequence.checked_sub(self.head)?;
        self.queue
            .get(usize::try_from(index).ok()?)
            .copied()
            .flatten()
    }

    /// Sequence number of the next reading of `version`.
    pub(super) fn next(&self, version: Version) -> Option<u64> {
        self.places.get(&version)?.front().copied()
    }

    /// The prefetch distance: entries between the head and the next reading of `version`. Holes count until they
    /// reach the head, which keeps the order of distances, all that eviction looks at.
    pub(super) fn distance(&self, version: Version) -> Option<u64> {
        self.next(version).map(|sequence| sequence - self.head)
    }

    /// Takes out the next reading of `version` and returns its sequence number.
    pub(super) fn consume(&mut self, version: Version) -> Option<u64> {
        self.touched.note(version);
        let places = self.places.get_mut(&version)?;
        let sequence = places.pop_front()?;
        if places.is_empty() {
            self.places.remove(&version);
        }
        self.punch(sequence);
        self.skip_holes();
        Some(sequence)
    }

    /// Takes out every reading of `version`.
    pub(super) fn forget(&mut self, version: Version) {
        self.touched.note(version);
        for sequence in self.places.remove(&version).into_iter().flatten() {
            self.punch(sequence);
        }
        self.skip_holes();
    }

    fn punch(&mut self, sequence: u64) {
        let index = sequence
            .checked_sub(self.head)
            .and_then(|i| usize::try_from(i).ok());
        if let Some(entry) = index.and_then(|i| self.queue.get_mut(i)) {
            *entry = None;
        }
    }

    fn skip_holes(&mut self) {
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.head += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(versions: &[Version]) -> RestoreOrder {
        let mut order = RestoreOrder::default();
        versions.iter().for_each(|&v| order.push(v));
        order
    }

    #[test]
    fn distance_counts_from_the_head() {
        let mut order = order(&[5, 4, 3]);
        assert_eq!(
            (order.distance(5), order.distance(3), order.distance(9)),
            (Some(0), Some(2), None)
        );
        order.consume(5);
        assert_eq!(order.distance(3), Some(1));
    }

    #[test]
    fn a_reading_out_of_order_leaves_the_others() {
        let mut order = order(&[1, 2, 3]);
        order.consume(2);
        assert_eq!(
            (order.at(0), order.at(1), order.at(2)),
            (Some(1), None, Some(3))
        );
        order.consume(1);
        assert_eq!((order.head(), order.distance(3)), (2, Some(0)));
    }

    #[test]
    fn a_version_may_be_read_twice_or_forgotten() {
        let mut order = order(&[7, 8, 7]);
        assert_eq!(order.consume(7), Some(0));
        assert_eq!(order.distance(7), Some(1));
        order.forget(7);
        assert_eq!(
            (order.distance(7), order.end() - order.head()),
            (None, 2),
            "8 and the hole behind it"
        );
        order.consume(8);
        assert_eq!(order.end(), order.head());
    }
}
