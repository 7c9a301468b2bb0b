//! A shot: a forward pass that checkpoints, and passes that restore everything (HPDC'23 §5.3 has one).

use super::{Hints, Op, Order, Workload};
use std::collections::HashSet;
use tierflow_plan::{AfterRestore, Version};

/// A shot: checkpoint everything, then restore everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shot {
    /// Bytes of each version.
    pub sizes: Vec<u64>,
    /// ns of computing before each checkpoint and after each restore.
    pub compute_ns: u64,
    /// The order of the restores.
    pub order: Order,
    /// The hints about the order.
    pub hints: Hints,
    /// True if the restores begin only once all flushes are done.
    pub wait: bool,
    /// True if all GPUs meet at a barrier in each iteration.
    pub coupled: bool,
    /// Number of times that everything is restored, each time in the same order. More than 1 needs
    /// [`AfterRestore::Keep`].
    pub passes: usize,
    /// Versions that are never restored, but dropped at the end.
    pub unread: HashSet<Version>,
    /// The fate of restored versions.
    pub after_restore: AfterRestore,
}

impl Shot {
    /// Makes a shot with all hints that restores each version once, the newest first, and discards it. The shot neither waits
    /// nor is coupled.
    #[must_use]
    pub fn new(sizes: Vec<u64>, compute_ns: u64) -> Self {
        Self {
            sizes,
            compute_ns,
            order: Order::Reverse,
            hints: Hints::All,
            wait: false,
            coupled: false,
            passes: 1,
            unread: HashSet::new(),
            after_restore: AfterRestore::Discard,
        }
    }

    /// Returns the shot, call by call.
    #[must_use]
    pub fn workload(&self) -> Workload {
        let mut order = self.order.of(self.sizes.len() as u64);
        order.retain(|version| !self.unread.contains(version));
        let order = order.repeat(self.passes);
        let hint = |versions: Vec<_>| (!versions.is_empty()).then_some(Op::Hint(versions));
        let mut ops = Vec::new();
        ops.extend(hint(self.hints.at_first(&order)));
        for (version, &bytes) in (0..).zip(&self.sizes) {
            ops.push(Op::Compute(self.compute_ns));
            ops.extend(self.coupled.then_some(Op::Barrier));
            ops.push(Op::Checkpoint { version, bytes });
        }
        ops.extend(self.wait.then_some(Op::Wait));
        ops.extend((self.hints != Hints::None).then_some(Op::PrefetchStart));
        ops.extend(hint(self.hints.after(0, &order)));
        for (restored, &version) in (1..).zip(&order) {
            ops.extend(self.coupled.then_some(Op::Barrier));
            ops.push(Op::Restore(version));
            ops.extend(hint(self.hints.after(restored, &order)));
            ops.push(Op::Compute(self.compute_ns));
        }
        let versions = 0..self.sizes.len() as u64;
        let unread = versions.filter(|version| self.unread.contains(version));
        ops.extend(unread.map(Op::Drop));
        Workload {
            ops,
            after_restore: self.after_restore,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Mistake, Mistakes};

    #[test]
    fn every_shot_is_a_workload() {
        let wrong = Mistakes {
            percent: 50,
            kind: Mistake::Unwritten,
            seed: 1,
        };
        for hints in [
            Hints::None,
            Hints::Single,
            Hints::All,
            Hints::Late(10),
            Hints::Parts(2),
            Hints::Wrong(wrong),
        ] {
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

    #[test]
    fn a_shot_drops_at_its_end_what_it_does_not_read() {
        let shot = Shot {
            unread: HashSet::from([1]),
            ..Shot::new(vec![1, 2, 3], 5)
        };
        let workload = shot.workload();
        workload.validate(0).unwrap();
        assert_eq!(workload.restores(), [2, 0]);
        assert_eq!(workload.ops.last(), Some(&Op::Drop(1)));
    }

    #[test]
    fn what_is_kept_may_be_restored_again() {
        let shot = Shot {
            passes: 2,
            after_restore: AfterRestore::Keep,
            ..Shot::new(vec![1, 2], 5)
        };
        let workload = shot.workload();
        workload.validate(0).unwrap();
        assert_eq!(workload.restores(), [1, 0, 1, 0]);
        assert_eq!(workload.ops[0], Op::Hint(vec![1, 0, 1, 0]));
        let discarded = Shot {
            after_restore: AfterRestore::Discard,
            ..shot
        };
        assert!(discarded.workload().validate(0).is_err());
    }
}
