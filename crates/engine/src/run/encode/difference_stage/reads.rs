//! The differences that a restore of the newest version reads, and how the chain continues if they become too many bytes.

use std::collections::{BTreeMap, BTreeSet};
use tierflow_dedup::{HEADER_BYTES, Origins, SHIFTED_BYTES, Summary};

/// The limit of the bytes that a restore reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// Largest number of bytes, in checkpoints.
    pub(super) checkpoints: u64,
    /// True if a restore reads every byte of each difference that it needs: from storage, into device memory, or to decompress.
    /// False if all differences lie uncompressed in host memory. Then the host's cores read their headers and entries, and only the
    /// chunks that belong to the version.
    pub(super) whole: bool,
}

/// How the next difference of a lineage begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// The difference builds upon the one before.
    Difference,
    /// The difference names the places of all chunks: in itself, or in the differences with these ordinals.
    Consolidated(BTreeSet<u32>),
    /// The difference has all chunks, and a new lineage begins with it.
    Alone,
}

/// The bytes that a restore of the newest version reads.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Bytes that the restore reads of each difference, by ordinal.
    of: BTreeMap<u32, u64>,
    /// The sum of `of`.
    bytes: u64,
    /// Bytes read of the largest difference that builds upon its predecessor.
    largest: u64,
}

/// A difference that a consolidation keeps or gives up.
struct Candidate {
    /// The ordinal of the difference in the lineage.
    ordinal: u32,
    /// Bytes of the newest checkpoint that the difference stores.
    bytes: u64,
    /// Bytes that a restore reads of the difference.
    read: u64,
}

impl Bound {
    /// Returns the bytes that a restore of `size` bytes may read besides the chunks of the checkpoint in memory.
    fn bytes(self, size: u64) -> u64 {
        let checkpoints = self.checkpoints.saturating_sub(u64::from(!self.whole));
        checkpoints.saturating_mul(size)
    }

    /// Returns the bytes that a restore reads of a difference.
    fn of(self, summary: &Summary) -> u64 {
        match self.whole {
            true => summary.stored_bytes,
            false => summary.stored_bytes - summary.payload_bytes,
        }
    }
}

impl Reads {
    /// Adds a difference. Returns false, and adds nothing, if the difference must be made anew with all chunks: either it has
    /// little in common with its base, or a restore would read more than the bound.
    pub(super) fn add(&mut self, bound: Bound, summary: &Summary, start: &Start) -> bool {
        let (size, own) = (summary.checkpoint_bytes, bound.of(summary));
        let durable = match start {
            Start::Difference => self.bytes,
            Start::Consolidated(keep) => keep.iter().filter_map(|one| self.of.get(one)).sum(),
            Start::Alone => 0,
        };
        let is_small = match start {
            Start::Difference => summary.stored_bytes <= size / 2,
            Start::Consolidated(_) => summary.stored_bytes < size,
            Start::Alone => true,
        };
        let fits = is_small && durable + own <= bound.bytes(size);
        if !fits && *start != Start::Alone {
            return false;
        }
        match start {
            Start::Difference => self.largest = self.largest.max(own),
            Start::Consolidated(keep) => self.of.retain(|one, _| keep.contains(one)),
            Start::Alone => *self = Self::default(),
        }
        self.of.insert(summary.ordinal, own);
        self.bytes = durable + own;
        true
    }

    /// Returns true if another difference as large as the largest one would be too much.
    pub(super) fn are_exhausted(&self, bound: Bound, size: u64) -> bool {
        self.bytes + self.largest > bound.bytes(size)
    }

    /// Chooses the differences that restores still read after a consolidation of a checkpoint of `size` bytes. Returns `None` if
    /// storing the checkpoint whole is better.
    ///
    /// The consolidated difference stores the chunks of the differences that it gives up. Differences are given up in the order of
    /// `bytes` divided by `read`, the smallest first. The choice stores the fewest bytes per byte that restores may still read of
    /// later differences.
    pub(super) fn consolidation(
        &self,
        bound: Bound,
        origins: &Origins,
        size: u64,
    ) -> Option<BTreeSet<u32>> {
        let mut candidates = Vec::new();
        for difference in &origins.differences {
            candidates.push(Candidate {
                ordinal: difference.ordinal,
                bytes: difference.bytes,
                read: *self.of.get(&difference.ordinal)?,
            });
        }
        candidates.sort_by(|one, other| {
            let share = |bytes: u64, read: u64| u128::from(bytes) * u128::from(read);
            share(one.bytes, other.read).cmp(&share(other.bytes, one.read))
        });
        let allowed = bound.bytes(size);
        let entries = HEADER_BYTES as u64 + SHIFTED_BYTES * origins.entries;
        let mut durable: u64 = candidates.iter().map(|candidate| candidate.read).sum();
        // `stored` and `left`: bytes to store now, and bytes that restores may read of later differences. At first, those of a
        // whole checkpoint.
        let mut stored = entries;
        let whole = if bound.whole { size } else { 0 };
        let mut best = (size, allowed.saturating_sub(whole));
        let mut chosen = None;
        for (given_up, candidate) in candidates.iter().enumerate() {
            let read = durable + if bound.whole { stored } else { entries };
            let left = allowed.saturating_sub(read + self.largest);
            if u128::from(stored) * u128::from(best.1) < u128::from(best.0) * u128::from(left) {
                best = (stored, left);
                chosen = Some(given_up);
            }
            stored += candidate.bytes;
            durable -= candidate.read;
        }
        let durable = candidates.iter().skip(chosen?);
        Some(durable.map(|candidate| candidate.ordinal).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn a_bound_beyond_all_numbers_is_no_limit() {
        let bound = |checkpoints, whole| Bound { checkpoints, whole };
        assert_eq!(bound(u64::MAX, false).bytes(2), u64::MAX);
        assert_eq!(bound(3, false).bytes(2), 4);
    }
}
