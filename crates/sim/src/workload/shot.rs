//! A shot: a forward pass that checkpoints, and a pass that restores everything once (HPDC'23 §5.3).

use super::{Op, Workload};
use tierflow_engine::Version;
use tierflow_engine::plan::AfterRestore;

/// In which order the versions are restored (HPDC'23 §5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they were checkpointed.
    Sequential,
    /// The newest first, as adjoint codes do.
    Reverse,
    /// In an order drawn from this seed.
    Irregular(u64),
}

impl Order {
    /// The versions `0..count` in this order.
    #[must_use]
    pub fn of(self, count: u64) -> Vec<Version> {
        match self {
            Self::Sequential => (0..count).collect(),
            Self::Reverse => (0..count).rev().collect(),
            Self::Irregular(seed) => {
                let mut versions: Vec<_> = (0..count).collect();
                // Fisher and Yates.
                for last in (1..versions.len()).rev() {
                    let at = random(seed.wrapping_add(last as u64)) % (last as u64 + 1);
                    versions.swap(last, at as usize);
                }
                versions
            }
        }
    }
}

/// What the application tells about the order beforehand (HPDC'23 §5.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// Nothing.
    None,
    /// The next version, while it works on the one before.
    Single,
    /// Everything, before the first checkpoint.
    All,
}

/// One shot: checkpoint everything, then restore everything once; what was restored is discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shot {
    /// Bytes of each version.
    pub sizes: Vec<u64>,
    /// ns of computing before each checkpoint and after each restore.
    pub compute_ns: u64,
    /// The order of the restores.
    pub order: Order,
    /// What is known of it.
    pub hints: Hints,
    /// Whether the restores begin only once all flushes are done.
    pub wait: bool,
    /// Whether all GPUs meet at a barrier in each iteration.
    pub coupled: bool,
}

impl Shot {
    /// A reverse shot with all hints that neither waits nor is coupled.
    #[must_use]
    pub fn new(sizes: Vec<u64>, compute_ns: u64) -> Self {
        Self {
            sizes,
            compute_ns,
            order: Order::Reverse,
            hints: Hints::All,
            wait: false,
            coupled: false,
        }
    }

    /// The shot, call by call.
    #[must_use]
    pub fn workload(&self) -> Workload {
        let order = self.order.of(self.sizes.len() as u64);
        let mut ops = Vec::new();
        if self.hints == Hints::All {
            ops.push(Op::Hint(order.clone()));
        }
        for (version, &bytes) in (0..).zip(&self.sizes) {
            ops.push(Op::Compute(self.compute_ns));
            ops.extend(self.coupled.then_some(Op::Barrier));
            ops.push(Op::Checkpoint { version, bytes });
        }
        ops.extend(self.wait.then_some(Op::Wait));
        ops.extend((self.hints != Hints::None).then_some(Op::PrefetchStart));
        for (at, &version) in order.iter().enumerate() {
            ops.extend(self.coupled.then_some(Op::Barrier));
            ops.push(Op::Restore(version));
            if self.hints == Hints::Single
                && let Some(&next) = order.get(at + 1)
            {
                ops.push(Op::Hint(vec![next]));
            }
            ops.push(Op::Compute(self.compute_ns));
        }
        Workload {
            ops,
            after_restore: AfterRestore::Discard,
        }
    }
}

/// A number drawn from a seed (SplitMix64: Steele, Lea and Flood, OOPSLA'14).
pub(super) fn random(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
    fn every_shot_is_a_workload() {
        for hints in [Hints::None, Hints::Single, Hints::All] {
            let shot = Shot {
                hints,
                coupled: true,
                ..Shot::new(vec![1, 2, 3], 5)
            };
            let workload = shot.workload();
            workload.validate(0).unwrap();
            assert_eq!((workload.bytes(), workload.compute_ns()), (6, 30));
            assert_eq!(workload.restores(), [2, 1, 0]);
            assert_eq!(workload.barriers(), 6);
        }
    }
}
