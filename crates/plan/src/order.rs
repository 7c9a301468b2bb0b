//! The order of use: the place of each version, and the bytes before it.

use crate::policy::Standing;
use crate::scan::{Direction, MOST as MASK, Scan};
use crate::sums::{Sums, Weight};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::Version;

const CLASSES: usize = 4;
const SHIFT: u32 = 62;
const WAITING: u64 = 2 << SHIFT;
const PASSED: u64 = 3 << SHIFT;

/// A version's place in the order, as long as its standing does not change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn new(standing: Standing) -> Self {
        Self(match standing {
            Standing::Known(number) => number & MASK,
            Standing::Recent(number) => (1 << SHIFT) | (MASK - (number & MASK)),
            Standing::Waiting(number) => WAITING | (number & MASK),
            Standing::Passed(number) => PASSED | (number & MASK),
        })
    }

    fn class(self) -> usize {
        (self.0 >> SHIFT) as usize
    }

    fn number(self) -> u64 {
        self.0 & MASK
    }

    fn is_waiting(self) -> bool {
        self.0 & !MASK == WAITING
    }
}

/// The time of a version's next use: the smaller, the sooner. Positions change with the direction of waiting versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Position(u64);

impl Position {
    /// Before all others.
    pub(crate) const FIRST: Self = Self(0);
    /// Before all versions of unknown use.
    pub(crate) const UNKNOWN: Self = Self(1 << SHIFT);
    /// Behind all others.
    pub(crate) const LAST: Self = Self(u64::MAX);
}

/// A byte in the order of use, given as the position of its version and the byte's place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) position: Position,
    /// The byte's place in its version.
    pub(crate) byte: u64,
}

impl Point {
    /// Behind all others.
    pub(crate) const LAST: Self = Self {
        position: Position::LAST,
        byte: u64::MAX,
    };
}

/// All versions held, and those hinted that are not written yet, in the order of their use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    classes: [Sums; CLASSES],
    /// The order of the waiting versions, whose numbers are ticks.
    scan: Scan,
}

impl Order {
    /// Makes the order of a plan with so many tiers. With one, nothing moves, so the order keeps its total alone.
    pub(crate) fn over(tiers: usize) -> Self {
        match tiers {
            1 => Self {
                classes: std::array::from_fn(|_| Sums::total_only()),
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    /// Returns the direction of waiting versions, and the bytes of those that lie below the head.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn scan(&self) -> (Direction, u64) {
        let waiting = &self.classes[(WAITING >> SHIFT) as usize];
        (self.scan.direction, waiting.before(self.scan.head).bytes)
    }

    pub(crate) fn set_scan(&mut self, scan: Scan) {
        self.scan = scan;
    }

    /// Returns the place that a policy asks for, or one nearby that is free if another version has it: behind it, or
    /// before it in the upper half of the numbers, so that none lies beyond an end. The search doubles its steps and
    /// halves them again, so it looks at few places, and finds the end of a run of taken ones.
    pub(crate) fn free(&self, asked: Key) -> Key {
        let (class, number) = (asked.class(), asked.number());
        let sums = &self.classes[class];
        let is_upper = number > MASK / 2;
        let place = |steps: u64| match is_upper {
            true => number - steps,
            false => number + steps,
        };
        let mut taken = 0;
        let mut free = 0;
        while sums.has(place(free)) {
            taken = free;
            // Steps beyond a quarter of the numbers are reached by a policy alone that takes all powers of two.
            free = match free < MASK / 4 {
                true => free * 2 + 1,
                false => free + 1,
            };
        }
        while free - taken > 1 {
            let middle = taken + (free - taken) / 2;
            match sums.has(place(middle)) {
                true => taken = middle,
                false => free = middle,
            }
        }
        Key((class as u64) << SHIFT | place(free))
    }

    pub(crate) fn enter(&mut self, key: Key, weight: Weight) {
        self.classes[key.class()].add(key.number(), weight);
    }

    pub(crate) fn leave(&mut self, key: Key, weight: Weight) {
        self.classes[key.class()].subtract(key.number(), weight);
    }

    pub(crate) fn position(&self, key: Key) -> Position {
        Position(match key.is_waiting() {
            true => WAITING | self.scan.place(key.number()),
            false => key.0,
        })
    }

    /// Returns the keys of waiting versions from a place on, in one run or two.
    fn waiting(&self, place: u64) -> impl DoubleEndedIterator<Item = RangeInclusive<u64>> + use<> {
        let runs = self.scan.runs(place);
        runs.map(|run| WAITING | run.start()..=WAITING | run.end())
    }

    /// Returns true if waiting versions of larger numbers come first.
    fn goes_down(&self) -> bool {
        self.scan.direction == Direction::NewestFirst
    }

    /// Returns the position of a reading that hints announce.
    pub(crate) fn hinted(&self, sequence: u64) -> Position {
        self.position(Key::new(Standing::Known(sequence)))
    }

    /// Returns the key of the version at a position, if there is one.
    fn key(&self, position: Position) -> Key {
        let key = Key(position.0);
        match key.is_waiting() {
            true => Key(WAITING | self.scan.number(key.number())),
            false => key,
        }
    }

    /// All weights together.
    pub(crate) fn total(&self) -> Weight {
        let mut total = Weight::default();
        self.classes.iter().for_each(|class| total += class.total());
        total
    }

    /// Weights of versions that hints name.
    pub(crate) fn known(&self) -> Weight {
        self.classes[0].total()
    }

    /// Returns the byte with `most` bytes before it, or [`Point::LAST`] if there is none. Each unwritten version has
    /// `each` bytes.
    pub(crate) fn boundary(&self, most: u64, each: u64) -> Point {
        let mut left = most;
        for (class, sums) in self.classes.iter().enumerate() {
            let bytes = sums.total().at(each);
            if bytes <= left {
                left -= bytes;
                continue;
            }
            let class = (class as u64) << SHIFT;
            let beyond = match class {
                WAITING => self.scan.beyond(sums, left),
                _ => sums.beyond(left, each, false),
            };
            if let Some((number, byte)) = beyond {
                let position = self.position(Key(class | number));
                return Point { position, byte };
            }
        }
        Point::LAST
    }
}

/// Extents in the order of use; those of one version in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranked {
    entries: BTreeMap<(Key, u64), Version>,
    /// Bytes of all extents.
    bytes: u64,
}

/// An extent: its version and its first byte there.
pub(crate) type ExtentId = (Version, u64);

impl Ranked {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn insert(&mut self, key: Key, (version, start): ExtentId, bytes: u64) {
        self.entries.insert((key, start), version);
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, key: Key, start: u64, bytes: u64) {
        if self.entries.remove(&(key, start)).is_some() {
            self.bytes -= bytes;
        }
    }

    fn entry((&(key, start), &version): (&(Key, u64), &Version)) -> (Key, ExtentId) {
        (key, (version, start))
    }

    /// Returns the extents of the versions with keys in a range.
    fn class(
        &self,
        keys: RangeInclusive<u64>,
    ) -> impl DoubleEndedIterator<Item = (Key, ExtentId)> + '_ {
        let range = (Key(*keys.start()), 0)..=(Key(*keys.end()), u64::MAX);
        self.entries.range(range).map(Self::entry)
    }

    /// Returns the extents of one version.
    fn of(&self, key: Key) -> impl DoubleEndedIterator<Item = (Key, ExtentId)> + '_ {
        self.class(key.0..=key.0)
    }

    /// Returns the last extent that begins before a point and belongs to the version at that point.
    pub(crate) fn just_before(&self, order: &Order, point: Point) -> Option<(Key, ExtentId)> {
        let key = order.key(point.position);
        let range = (key, 0)..(key, point.byte);
        self.entries.range(range).next_back().map(Self::entry)
    }

    /// Returns the soonest-used extent that begins at or behind a point.
    pub(crate) fn soonest_from(&self, order: &Order, from: Point) -> Option<(Key, ExtentId)> {
        let key = order.key(from.position);
        let here = (key, from.byte)..=(key, u64::MAX);
        let here = self.entries.range(here).next().map(Self::entry);
        here.or_else(|| {
            let behind = from.position.0.checked_add(1)?;
            let (key, _) = self.from(order, behind).next()?;
            self.of(key).next()
        })
    }

    /// Returns the first extent of the soonest-used version.
    pub(crate) fn soonest(&self, order: &Order) -> Option<(Key, ExtentId)> {
        let (key, _) = self.from(order, 0).next()?;
        self.of(key).next()
    }

    /// Returns the last extent of the latest-used version.
    pub(crate) fn latest(&self, order: &Order) -> Option<(Key, ExtentId)> {
        let (key, _) = self.latest_first(order).next()?;
        self.of(key).next_back()
    }

    /// Returns the extents at or behind a position, from the soonest used on.
    fn from(
        &self,
        order: &Order,
        from: u64,
    ) -> impl DoubleEndedIterator<Item = (Key, ExtentId)> + '_ {
        let goes_down = order.goes_down();
        let before = (from < WAITING).then(|| self.class(from..=WAITING - 1));
        let waiting = (from < PASSED).then(|| order.waiting(from.max(WAITING) & MASK));
        let waiting = waiting.into_iter().flatten().flat_map(move |run| {
            let run = self.class(run);
            let (up, down) = match goes_down {
                true => (None, Some(run.rev())),
                false => (Some(run), None),
            };
            up.into_iter().flatten().chain(down.into_iter().flatten())
        });
        let before = before.into_iter().flatten();
        before
            .chain(waiting)
            .chain(self.class(from.max(PASSED)..=u64::MAX))
    }

    /// Returns the extents from the soonest used on.
    pub(crate) fn soonest_first(
        &self,
        order: &Order,
    ) -> impl DoubleEndedIterator<Item = (Key, ExtentId)> + '_ {
        self.from(order, 0)
    }

    /// Returns the extents from the latest used on.
    pub(crate) fn latest_first(&self, order: &Order) -> impl Iterator<Item = (Key, ExtentId)> + '_ {
        self.soonest_first(order).rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn standing(class: usize, number: u64) -> Standing {
        match class {
            0 => Standing::Known(number),
            1 => Standing::Recent(number),
            2 => Standing::Waiting(number),
            _ => Standing::Passed(number),
        }
    }

    #[test]
    fn places_of_equal_standings_are_neighbours_in_the_order_of_entry() {
        for (standing, goes_up) in [
            (Standing::Waiting(7), true),
            (Standing::Recent(0), false),
            (Standing::Passed(MASK), false),
        ] {
            let mut order = Order::default();
            let asked = Key::new(standing);
            for step in 0..100_000 {
                let key = order.free(asked);
                let expected = match goes_up {
                    true => asked.0 + step,
                    false => asked.0 - step,
                };
                assert_eq!(key.0, expected);
                order.enter(key, Weight::written(1));
            }
        }
    }

    proptest! {
        #[test]
        fn a_place_that_is_free_is_given_as_it_is_and_a_taken_one_never(
            taken in prop::collection::btree_set(0_u64..40, 0..40),
            asked in 0_u64..40,
        ) {
            let mut order = Order::default();
            let key = |number| Key::new(Standing::Known(number));
            taken.iter().for_each(|&number| order.enter(key(number), Weight::written(1)));
            let free = order.free(key(asked));
            prop_assert!(!taken.contains(&free.number()));
            prop_assert_eq!(free == key(asked), !taken.contains(&asked));
        }

        #[test]
        fn ends_and_boundaries_are_those_of_a_sorted_list(
            items in prop::collection::btree_map((0_usize..4, 0_u64..50), 1_u64..9, 1..40),
            newest in any::<bool>(),
            head in 0_u64..51,
            most in 0_u64..200,
            probe in (0_usize..4, 0_u64..50),
        ) {
            let mut order = Order::default();
            let direction = if newest { Direction::NewestFirst } else { Direction::OldestFirst };
            order.set_scan(Scan { direction, head });
            let mut ranked = Ranked::default();
            let mut list: Vec<((usize, bool, i64), Key, u64)> = Vec::new();
            for (&(class, number), &bytes) in &items {
                let key = Key::new(standing(class, number));
                order.enter(key, Weight::written(bytes));
                // Two extents each.
                ranked.insert(key, (number + 100 * class as u64, 0), bytes);
                ranked.insert(key, (number + 100 * class as u64, 7), bytes);
                let descends = class == 1 || (class == 2 && newest);
                let rank = if descends { -(number as i64) } else { number as i64 };
                let is_passed = class == 2 && if newest { number >= head } else { number < head };
                list.push(((class, is_passed, rank), key, bytes));
            }
            list.sort();
            let positions: Vec<_> = list.iter().map(|item| order.position(item.1)).collect();
            prop_assert!(positions.is_sorted());
            let mut sum = 0;
            let beyond = list.iter().find(|item| { sum += item.2; sum > most });
            let expected = beyond.map_or(Point::LAST, |item| Point {
                position: order.position(item.1),
                byte: most - (sum - item.2),
            });
            prop_assert_eq!(order.boundary(most, 0), expected);
            let first = list.first().map(|item| item.1);
            let last = list.last().map(|item| item.1);
            prop_assert_eq!(ranked.soonest(&order).map(|(key, (_, start))| (key, start)), first.map(|key| (key, 0)));
            prop_assert_eq!(ranked.latest(&order).map(|(key, (_, start))| (key, start)), last.map(|key| (key, 7)));
            let mut keys: Vec<_> = list.iter().flat_map(|item| [item.1, item.1]).collect();
            prop_assert_eq!(ranked.soonest_first(&order).map(|(key, _)| key).collect::<Vec<_>>(), keys.clone());
            keys.reverse();
            prop_assert_eq!(ranked.latest_first(&order).map(|(key, _)| key).collect::<Vec<_>>(), keys);
            let position = order.position(Key::new(standing(probe.0, probe.1)));
            for byte in [0, 3, 7, 8] {
                let extents = list.iter().flat_map(|item| [(item.1, 0), (item.1, 7)]);
                let point = |(key, byte)| Point { position: order.position(key), byte };
                let from = Point { position, byte };
                let next = extents.clone().find(|&extent| point(extent) >= from);
                let found = ranked.soonest_from(&order, from);
                prop_assert_eq!(found.map(|(key, (_, start))| (key, start)), next);
                let mut before = extents.filter(|&extent| point(extent) < from && order.position(extent.0) == position);
                let found = ranked.just_before(&order, from);
                prop_assert_eq!(found.map(|(key, (_, start))| (key, start)), before.next_back());
            }
        }
    }
}
