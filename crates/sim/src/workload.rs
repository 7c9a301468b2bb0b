//! The workloads of applications, as data.

mod hints;
mod order;
mod revolve;
mod schedule;
mod shot;
mod sizes;

pub use hints::{Hints, Mistake, Mistakes};
pub use order::Order;
pub use schedule::Schedule;
pub use shot::Shot;
pub use sizes::{made_up_sizes, sizes_from_csv};

use crate::{Error, Result};
use std::collections::HashMap;
use tierflow_plan::{AfterRestore, Version};

/// A step of an application, which takes the next step when this one is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Computes for this many ns, whatever the cache does.
    Compute(u64),
    /// Checkpoints `bytes` bytes as `version`.
    Checkpoint {
        /// A name not used before.
        version: Version,
        /// Bytes, not 0.
        bytes: u64,
    },
    /// Restores a version.
    Restore(Version),
    /// Drops a version that is not needed any more.
    Drop(Version),
    /// Hints the versions that will be restored, in this order, after those hinted before.
    Hint(Vec<Version>),
    /// Hints the versions that will be restored, in this order, before those hinted before.
    HintNext(Vec<Version>),
    /// Withdraws the hints of these versions.
    ForgetHints(Vec<Version>),
    /// Allows prefetching to begin.
    PrefetchStart,
    /// Waits until everything lies on the lowest tier.
    Wait,
    /// Waits for all other GPUs to come to their barrier of the same number.
    Barrier,
}

/// The steps of an application, from beginning to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The steps in order.
    pub ops: Vec<Op>,
    /// The fate of restored versions.
    pub after_restore: AfterRestore,
}

impl Workload {
    /// Appends another workload, which begins on the same plan when this one is done. The versions of `other` get numbers
    /// after the largest of this workload. `after_restore` stays that of this workload.
    #[must_use]
    pub fn then(mut self, other: &Self) -> Self {
        let written = self.ops.iter().filter_map(|op| match op {
            Op::Checkpoint { version, .. } => Some(version.saturating_add(1)),
            _ => None,
        });
        let first = written.max().unwrap_or(0);
        let later = |version: &Version| first.saturating_add(*version);
        let all_later = |versions: &[Version]| versions.iter().map(later).collect();
        self.ops.extend(other.ops.iter().map(|op| match op {
            Op::Checkpoint { version, bytes } => Op::Checkpoint {
                version: later(version),
                bytes: *bytes,
            },
            Op::Restore(version) => Op::Restore(later(version)),
            Op::Drop(version) => Op::Drop(later(version)),
            Op::Hint(versions) => Op::Hint(all_later(versions)),
            Op::HintNext(versions) => Op::HintNext(all_later(versions)),
            Op::ForgetHints(versions) => Op::ForgetHints(all_later(versions)),
            Op::Compute(_) | Op::PrefetchStart | Op::Wait | Op::Barrier => op.clone(),
        }));
        self
    }

    /// Adds hints about the restores. Prefetching begins with the first restore.
    #[must_use]
    pub fn hinted(self, hints: Hints) -> Self {
        let order = self.restores();
        let hint = |versions: Vec<_>| (!versions.is_empty()).then_some(Op::Hint(versions));
        let mut ops = Vec::new();
        ops.extend(hint(hints.at_first(&order)));
        let mut restored = 0;
        for op in self.ops {
            let is_restore = matches!(op, Op::Restore(_));
            if is_restore && restored == 0 {
                ops.extend(hint(hints.after(0, &order)));
            }
            ops.push(op);
            if is_restore {
                restored += 1;
                ops.extend(hint(hints.after(restored, &order)));
            }
        }
        Self { ops, ..self }
    }

    /// Sum of the checkpoints' bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let sizes = self.ops.iter().map(|op| match op {
            Op::Checkpoint { bytes, .. } => *bytes,
            _ => 0,
        });
        sizes.fold(0, u64::saturating_add)
    }

    /// ns that the application computes.
    #[must_use]
    pub fn compute_ns(&self) -> u64 {
        let spans = self.ops.iter().map(|op| match op {
            Op::Compute(ns) => *ns,
            _ => 0,
        });
        spans.fold(0, u64::saturating_add)
    }

    pub(crate) fn barriers(&self) -> usize {
        let barriers = self.ops.iter().filter(|op| matches!(op, Op::Barrier));
        barriers.count()
    }

    /// Returns the restored versions in order.
    pub(crate) fn restores(&self) -> Vec<Version> {
        let restored = self.ops.iter().filter_map(|op| match op {
            Op::Restore(version) => Some(*version),
            _ => None,
        });
        restored.collect()
    }

    /// Checks that an application can take these steps: the versions that it restores and drops were checkpointed, and are
    /// not gone.
    ///
    /// Returns the size of every version in bytes.
    pub(crate) fn validate(&self, gpu: usize) -> Result<HashMap<Version, u64>> {
        let refuse = |reason: String| Err(Error::Workload { gpu, reason });
        let mut sizes = HashMap::new();
        let mut gone = HashMap::new();
        for (at, op) in self.ops.iter().enumerate() {
            match *op {
                Op::Checkpoint { version, bytes } => {
                    if bytes == 0 {
                        return refuse(format!("version {version} has no bytes"));
                    }
                    if sizes.insert(version, bytes).is_some() {
                        return refuse(format!("version {version} is checkpointed twice"));
                    }
                }
                Op::Restore(version) | Op::Drop(version) => {
                    if !sizes.contains_key(&version) {
                        return refuse(format!("op {at} names version {version} too early"));
                    }
                    if let Some(earlier) = gone.get(&version) {
                        return refuse(format!(
                            "op {at} names version {version}, which op {earlier} was the last to use"
                        ));
                    }
                    let is_last =
                        matches!(op, Op::Drop(_)) || self.after_restore == AfterRestore::Discard;
                    if is_last {
                        gone.insert(version, at);
                    }
                }
                Op::Compute(_)
                | Op::Hint(_)
                | Op::HintNext(_)
                | Op::ForgetHints(_)
                | Op::PrefetchStart
                | Op::Wait
                | Op::Barrier => {}
            }
        }
        Ok(sizes)
    }
}

/// Draws a number from a seed (SplitMix64: Steele, Lea and Flood, OOPSLA'14).
pub(crate) fn random(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_shot_has_versions_of_its_own() {
        let shot = Shot::new(vec![7; 3], 5).workload();
        let both = shot.clone().then(&shot);
        both.validate(0).unwrap();
        assert_eq!(both.restores(), [2, 1, 0, 5, 4, 3]);
        assert_eq!(both.bytes(), 42);
        assert_eq!(both.ops.len(), 2 * shot.ops.len());
        assert!(both.ops.contains(&Op::Hint(vec![5, 4, 3])));
    }

    #[test]
    fn numbers_beyond_all_others_are_refused_or_counted_as_the_largest() {
        let version = Version::MAX;
        let bytes = u64::MAX;
        let ops = vec![Op::Compute(bytes), Op::Checkpoint { version, bytes }];
        let after_restore = AfterRestore::Keep;
        let both = Workload { ops, after_restore };
        let both = both.clone().then(&both);
        assert_eq!((both.bytes(), both.compute_ns()), (bytes, bytes));
        assert!(matches!(both.validate(0), Err(Error::Workload { .. })));
    }
}
