//! The sample by which `Auto` decides whether a checkpoint is worth looking up.
//!
//! The sample has one chunk of each run of neighbours. A hash of the lineage's seed, the checkpoint's ordinal and the run's
//! number chooses the chunk. So no period of the data makes the sample all new or all old. The CPU, a GPU and a resumed
//! lineage take the same sample.

use crate::hash::{PRIME_1, PRIME_2, stir};

/// Largest number of chunks in a run.
const LONGEST_RUN: u32 = 64;
/// Smallest number of chunks in a sample, or all chunks of a smaller checkpoint.
const LEAST: u32 = 64;
/// `Auto` stores a checkpoint in full if at least this share of the sample is new.
const MOSTLY: (u64, u64) = (7, 8);

/// The sample of one checkpoint. kernels/dedup_leaves.cu takes the same sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    chunks: u32,
    run: u32,
    salt: u64,
}

impl Sample {
    /// Makes the sample of checkpoint `ordinal`, of `chunks` chunks.
    pub(crate) fn new(chunks: u32, seed: u64, ordinal: u32) -> Self {
        let n = u64::from(ordinal) + 1;
        Self {
            chunks,
            run: (chunks / LEAST).clamp(1, LONGEST_RUN),
            salt: stir(seed.wrapping_add(n.wrapping_mul(PRIME_2))),
        }
    }

    /// Returns the number of chunks in the sample.
    pub(crate) fn len(self) -> u32 {
        self.chunks.div_ceil(self.run)
    }

    /// Returns chunk `n` of the sample, from 0.
    pub(crate) fn chunk(self, n: u32) -> u32 {
        let start = n * self.run;
        let run = u64::from(self.run.min(self.chunks - start));
        let hash = stir(self.salt.wrapping_add(u64::from(n).wrapping_mul(PRIME_1)));
        start + (((hash >> 32) * run) >> 32) as u32
    }

    /// Returns the salt of the hash, for the kernel, which derives the other fields from the number of chunks.
    pub(crate) fn salt(self) -> u64 {
        self.salt
    }

    /// Returns true if the checkpoint counts as mostly new, given that `new` chunks of the sample are new.
    pub(crate) fn is_mostly_new(self, new: u64) -> bool {
        new * MOSTLY.1 >= u64::from(self.len()) * MOSTLY.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_one_chunk_of_each_run_and_all_of_a_small_checkpoint() {
        for chunks in [1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 1_000_003] {
            let sample = Sample::new(chunks, 7, 3);
            assert!(sample.len() >= chunks.min(64) && sample.len() <= chunks.div_ceil(64).max(127));
            for n in 0..sample.len() {
                let chunk = sample.chunk(n);
                assert!(chunk < chunks && chunk / sample.run == n);
                assert!(chunks >= 128 || chunk == n);
            }
        }
        let places = |seed, ordinal| -> Vec<u32> {
            let sample = Sample::new(1 << 16, seed, ordinal);
            (0..sample.len()).map(|n| sample.chunk(n) % 64).collect()
        };
        for place in 0..64 {
            let there = places(1, 0).iter().filter(|&&at| at == place).count();
            assert!((2..50).contains(&there), "{there} of 1024 at {place}");
        }
        assert_ne!(places(1, 0), places(2, 0));
        assert_ne!(places(1, 0), places(1, 1));
    }
}
