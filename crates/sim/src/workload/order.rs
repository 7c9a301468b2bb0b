//! The order of restores.

use super::random;
use tierflow_plan::Version;

/// The order in which versions are restored (HPDC'23 §5.3.2; blocks and strides beside it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they were checkpointed.
    Sequential,
    /// The newest first, as adjoint codes do.
    Reverse,
    /// In an order drawn from this seed.
    Irregular(u64),
    /// Blocks of this many versions, the newest block first; each block as it was checkpointed.
    ReverseBlocks(u64),
    /// Blocks of `length` versions in an order drawn from `seed`; each block as it was checkpointed.
    IrregularBlocks {
        /// Versions in a block; the last may have fewer.
        length: u64,
        /// Seed of the order of blocks.
        seed: u64,
    },
    /// With this step: 0, s, 2 s …, then 1, s + 1 …
    Strides(u64),
}

impl Order {
    /// Returns the versions `0..count` in this order. Lengths and steps of 0 count as 1.
    #[must_use]
    pub fn of(self, count: u64) -> Vec<Version> {
        match self {
            Self::Sequential => (0..count).collect(),
            Self::Reverse => (0..count).rev().collect(),
            Self::Irregular(seed) => permuted(count, seed),
            Self::ReverseBlocks(length) => {
                let length = length.max(1);
                in_blocks((0..count.div_ceil(length)).rev(), length, count)
            }
            Self::IrregularBlocks { length, seed } => {
                let length = length.max(1);
                in_blocks(permuted(count.div_ceil(length), seed), length, count)
            }
            Self::Strides(step) => {
                let step = step.max(1);
                let starts = 0..step.min(count);
                starts
                    .flat_map(|start| (start..count).step_by(step as usize))
                    .collect()
            }
        }
    }
}

fn in_blocks(blocks: impl IntoIterator<Item = u64>, length: u64, count: u64) -> Vec<Version> {
    let each = blocks.into_iter();
    each.flat_map(|block| block * length..count.min((block + 1) * length))
        .collect()
}

/// Returns `0..count` in an order drawn from `seed` (Fisher and Yates).
pub(super) fn permuted(count: u64, seed: u64) -> Vec<u64> {
    let mut numbers: Vec<_> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        let at = random(seed.wrapping_add(last as u64)) % (last as u64 + 1);
        numbers.swap(last, at as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_irregular_order_is_a_permutation_and_depends_on_its_seed() {
        let mut order = Order::Irregular(1).of(100);
        assert_ne!(order, Order::Irregular(2).of(100));
        assert_eq!(order, Order::Irregular(1).of(100));
        order.sort_unstable();
        assert_eq!(order, Order::Sequential.of(100));
    }

    #[test]
    fn blocks_are_read_in_order_within() {
        assert_eq!(Order::ReverseBlocks(3).of(7), [6, 3, 4, 5, 0, 1, 2]);
        assert_eq!(Order::ReverseBlocks(1).of(3), Order::Reverse.of(3));
        let blocks = Order::IrregularBlocks { length: 4, seed: 3 };
        let order = blocks.of(64);
        assert!(order.chunks(4).all(|b| b.is_sorted() && b[3] == b[0] + 3));
        assert!(!order.is_sorted());
    }

    #[test]
    fn strides_come_round_to_every_version() {
        assert_eq!(Order::Strides(3).of(7), [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!(Order::Strides(9).of(3), Order::Sequential.of(3));
        for order in [
            Order::Strides(0),
            Order::ReverseBlocks(0),
            Order::IrregularBlocks { length: 0, seed: 1 },
        ] {
            assert!(order.of(0).is_empty());
            assert_eq!(order.of(5).len(), 5);
        }
    }
}
