//! Sums over ranges of numbered items, in O(log n): a sparse radix tree in which each node has the sums of its
//! children.
//!
//! Items are numbered by ever-growing sequence numbers, of which a window is in use. Nodes exist only where items are,
//! so memory follows the items held, not those ever seen.

use hashbrown::HashMap;
use std::ops::{AddAssign, SubAssign};

/// Children of a node, as a power of two: wide enough that a million items are four levels.
const BITS: u32 = 6;
const FANOUT: usize = 1 << BITS;
/// As many nodes of zeros are kept as a number of 64 bits has digits.
const MOST_SPARE: usize = 64_usize.div_ceil(BITS as usize);

/// The weight of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Weight {
    /// Bytes of a version that was written.
    pub(crate) bytes: u64,
    /// Versions that were hinted and not written: their bytes are not known yet.
    pub(crate) unwritten: u64,
}

impl Weight {
    pub(crate) fn written(bytes: u64) -> Self {
        Self {
            bytes,
            unwritten: 0,
        }
    }

    pub(crate) const UNWRITTEN: Self = Self {
        bytes: 0,
        unwritten: 1,
    };

    /// Bytes, if each unwritten version has `each` bytes.
    pub(crate) fn at(self, each: u64) -> u64 {
        self.bytes
            .saturating_add(self.unwritten.saturating_mul(each))
    }

    fn is_zero(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.unwritten = self.unwritten.wrapping_add(other.unwritten);
    }
}

impl SubAssign for Weight {
    fn sub_assign(&mut self, other: Self) {
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.unwritten = self.unwritten.wrapping_sub(other.unwritten);
    }
}

type Node = Box<[Weight; FANOUT]>;

/// The weights of items, by their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    /// From the items upwards: at level `l`, the node of prefix `p` has the sums of the numbers whose digits above `l` are `p`.
    levels: Vec<HashMap<u64, Node>>,
    total: Weight,
    /// True if nothing but the total is kept.
    is_total_only: bool,
    /// Nodes of zeros: a version that comes and goes alone would allocate one at each level.
    spare: Vec<Node>,
}

fn digit(number: u64, level: usize) -> usize {
    (number >> (BITS * level as u32)) as usize % FANOUT
}

fn prefix(number: u64, level: usize) -> u64 {
    number.checked_shr(BITS * (level as u32 + 1)).unwrap_or(0)
}

impl Sums {
    /// Makes sums that keep their total alone.
    pub(crate) fn total_only() -> Self {
        Self {
            is_total_only: true,
            ..Self::default()
        }
    }

    /// All weights together.
    pub(crate) fn total(&self) -> Weight {
        self.total
    }

    /// Adds to the weight of an item.
    pub(crate) fn add(&mut self, number: u64, weight: Weight) {
        if self.is_total_only {
            return self.total += weight;
        }
        self.grow(number);
        self.total += weight;
        for (level, nodes) in self.levels.iter_mut().enumerate() {
            let spare = &mut self.spare;
            let zeros = || Box::new([Weight::default(); FANOUT]);
            let node = nodes
                .entry(prefix(number, level))
                .or_insert_with(|| spare.pop().unwrap_or_else(zeros));
            node[digit(number, level)] += weight;
        }
    }

    /// Returns true for an item that has a weight, if more than the total is kept.
    pub(crate) fn has(&self, number: u64) -> bool {
        let nodes = self.levels.first();
        let node = nodes.and_then(|nodes| nodes.get(&prefix(number, 0)));
        node.is_some_and(|node| !node[digit(number, 0)].is_zero())
    }

    /// Takes `weight` from an item, which was added to it before.
    pub(crate) fn subtract(&mut self, number: u64, weight: Weight) {
        self.total -= weight;
        // A node whose own sum is zero has no items any more.
        let mut sum = self.total;
        for (level, nodes) in self.levels.iter_mut().enumerate().rev() {
            let at = prefix(number, level);
            if sum.is_zero() {
                if let Some(mut node) = nodes.remove(&at)
                    && self.spare.len() < MOST_SPARE
                {
                    // The item was its only one.
                    node[digit(number, level)] = Weight::default();
                    self.spare.push(node);
                }
            } else if let Some(node) = nodes.get_mut(&at) {
                let child = &mut node[digit(number, level)];
                *child -= weight;
                sum = *child;
            }
        }
    }

    /// Adds levels until there are as many as `number` has digits.
    fn grow(&mut self, number: u64) {
        while self.levels.is_empty() || prefix(number, self.levels.len() - 1) > 0 {
            // The old root becomes the first child of the new one.
            let root = (!self.levels.is_empty() && !self.total.is_zero()).then(|| {
                let mut root = Box::new([Weight::default(); FANOUT]);
                root[0] = self.total;
                (0, root)
            });
            self.levels.push(root.into_iter().collect());
        }
    }

    /// Returns the sum of the weights of all items of smaller numbers.
    pub(crate) fn before(&self, number: u64) -> Weight {
        let Some(top) = self.levels.len().checked_sub(1) else {
            return Weight::default();
        };
        if prefix(number, top) > 0 {
            return self.total;
        }
        let mut sum = Weight::default();
        for (level, nodes) in self.levels.iter().enumerate() {
            if let Some(node) = nodes.get(&prefix(number, level)) {
                for child in &node[..digit(number, level)] {
                    sum += *child;
                }
            }
        }
        sum
    }

    /// Returns the first item, from the smallest number upwards or from the largest downwards, with which the bytes add
    /// up to more than `most`, and by how many bytes the items before it fall short of `most`. Each unwritten version
    /// has `each` bytes.
    pub(crate) fn beyond(&self, most: u64, each: u64, downwards: bool) -> Option<(u64, u64)> {
        if self.total.at(each) <= most {
            return None;
        }
        let mut left = most;
        let mut at = 0_u64;
        for nodes in self.levels.iter().rev() {
            let node = nodes.get(&at)?;
            let mut found = None;
            for step in 0..FANOUT {
                let child = if downwards { FANOUT - 1 - step } else { step };
                let bytes = node[child].at(each);
                if bytes > left {
                    found = Some(child);
                    break;
                }
                left -= bytes;
            }
            at = (at << BITS) | found? as u64;
        }
        Some((at, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn sums_equal_those_of_a_list(
            items in prop::collection::vec((0_u64..200_000, 1_u64..1000, any::<bool>()), 1..80),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
            most in 0_u64..40_000,
        ) {
            let mut sums = Sums::default();
            let mut list = BTreeMap::new();
            for (number, bytes, written) in items {
                let weight = if written { Weight::written(bytes) } else { Weight::UNWRITTEN };
                if list.insert(number, weight).is_none() {
                    sums.add(number, weight);
                } else {
                    // The model holds one weight an item.
                    list.insert(number, weight);
                    let before = sums.before(number + 1).bytes - sums.before(number).bytes;
                    let unwritten = sums.before(number + 1).unwritten - sums.before(number).unwritten;
                    sums.subtract(number, Weight { bytes: before, unwritten });
                    sums.add(number, weight);
                }
            }
            for index in removed {
                if list.is_empty() { break; }
                let number = *index.get(&list.keys().copied().collect::<Vec<_>>());
                if let Some(weight) = list.remove(&number) {
                    sums.subtract(number, weight);
                }
            }
            let each = 7;
            let at = |w: &Weight| w.at(each);
            for probe in list.keys().copied().chain([0, 63, 64, 199_999, u64::MAX]) {
                let expected: u64 = list.range(..probe).map(|(_, w)| at(w)).sum();
                prop_assert_eq!(sums.before(probe).at(each), expected);
            }
            fn beyond<'a>(mut items: impl Iterator<Item = (&'a u64, &'a Weight)>, each: u64, most: u64) -> Option<(u64, u64)> {
                let mut left = most;
                items.find_map(|(&n, w)| match w.at(each) {
                    bytes if bytes > left => Some((n, left)),
                    bytes => { left -= bytes; None }
                })
            }
            prop_assert_eq!(sums.beyond(most, each, false), beyond(list.iter(), each, most));
            prop_assert_eq!(sums.beyond(most, each, true), beyond(list.iter().rev(), each, most));
            if list.is_empty() {
                prop_assert!(sums.levels.iter().all(HashMap::is_empty));
            }
        }
    }
}
