//! The order in which an application goes over versions that it did not read yet.

use crate::sums::Sums;
use std::ops::RangeInclusive;

/// The largest number that a version may have.
pub(crate) const MOST: u64 = (1 << 62) - 1;

/// The end from which versions are read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Direction {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// An order of versions by their numbers, as an elevator takes floors: from the head on in one direction, then from the other
/// end on. A program that reads a part of its history passes versions by, and seldom comes back to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Scan {
    pub(crate) direction: Direction,
    /// The number of the version read last, or 0: all versions lie ahead.
    pub(crate) head: u64,
}

impl Scan {
    /// Returns the place of a number: how many numbers come before it.
    pub(crate) fn place(self, number: u64) -> u64 {
        MOST & match self.direction {
            Direction::NewestFirst => self.head.wrapping_sub(number).wrapping_sub(1),
            Direction::OldestFirst => number.wrapping_sub(self.head),
        }
    }

    /// Returns the number at a place.
    pub(crate) fn number(self, place: u64) -> u64 {
        MOST & match self.direction {
            Direction::NewestFirst => self.head.wrapping_sub(place).wrapping_sub(1),
            Direction::OldestFirst => place.wrapping_add(self.head),
        }
    }

    /// Returns the numbers from a place on, in one run or two, the first one first. Each goes down if the newest come first.
    pub(crate) fn runs(self, place: u64) -> impl DoubleEndedIterator<Item = RangeInclusive<u64>> {
        let (first, last) = (self.number(place), self.number(MOST));
        let (run, rest) = match self.direction {
            Direction::NewestFirst if first >= last => (last..=first, None),
            Direction::NewestFirst => (0..=first, Some(last..=MOST)),
            Direction::OldestFirst if first <= last => (first..=last, None),
            Direction::OldestFirst => (first..=MOST, Some(0..=last)),
        };
        std::iter::once(run).chain(rest)
    }

    /// Returns the bytes of the items before a number, of which all are written.
    pub(crate) fn before(self, items: &Sums, number: u64) -> u64 {
        let total = items.total().bytes;
        let below = |number| items.before(number).bytes;
        let around = |is_behind: bool| if is_behind { total } else { 0 };
        match self.direction {
            Direction::NewestFirst => {
                below(self.head) + around(number >= self.head) - below(number + 1)
            }
            Direction::OldestFirst => below(number) + around(number < self.head) - below(self.head),
        }
    }

    /// Returns the item with which the bytes add up to more than `most`, and by how many bytes the items before it fall short of
    /// `most`. All items are written.
    pub(crate) fn beyond(self, items: &Sums, most: u64) -> Option<(u64, u64)> {
        let total = items.total().bytes;
        let below = items.before(self.head).bytes;
        let (ahead, is_down) = match self.direction {
            Direction::NewestFirst => (below, true),
            Direction::OldestFirst => (total - below, false),
        };
        // Counted from the end of all numbers, the items ahead come behind the others.
        let from_end = match most.checked_sub(ahead) {
            Some(rest) if rest < total - ahead => rest,
            Some(_) => return None,
            None => most + (total - ahead),
        };
        items.beyond(from_end, 0, is_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::Weight;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_runs_and_bytes_are_those_of_a_list(
            items in prop::collection::btree_map(1_u64..30, 1_u64..9, 1..12),
            head in 0_u64..31,
            is_down in any::<bool>(),
            most in 0_u64..60,
            at in any::<prop::sample::Index>(),
        ) {
            let direction = if is_down { Direction::NewestFirst } else { Direction::OldestFirst };
            let scan = Scan { direction, head };
            let mut sums = Sums::default();
            items.iter().for_each(|(&number, &bytes)| sums.add(number, Weight::written(bytes)));
            let mut list: Vec<_> = items.into_iter().collect();
            if is_down {
                list.reverse();
            }
            list.sort_by_key(|&(number, _)| if is_down { number >= head } else { number < head });

            let places: Vec<_> = list.iter().map(|&(number, _)| scan.place(number)).collect();
            prop_assert!(places.is_sorted());
            let mut sum = 0;
            for (&(number, bytes), &place) in list.iter().zip(&places) {
                prop_assert_eq!(scan.number(place), number);
                prop_assert_eq!(scan.before(&sums, number), sum);
                sum += bytes;
            }
            let mut sum = 0;
            let found = list.iter().find(|(_, bytes)| { sum += bytes; sum > most });
            prop_assert_eq!(scan.beyond(&sums, most), found.map(|&(number, bytes)| (number, most - (sum - bytes))));
            let from = at.index(list.len());
            let runs = scan.runs(places[from]);
            let in_runs = runs.flat_map(|run| list.iter().filter(move |(number, _)| run.contains(number)));
            prop_assert!(in_runs.eq(&list[from..]));
        }
    }
}
