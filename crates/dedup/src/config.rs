//! What a lineage is told once.

use std::hash::{BuildHasher, RandomState};

use crate::error::{Invalid, Result};

/// How a checkpoint is reduced. ICPP'23, §3.2, has the definitions of `Full`, `Basic` and `List`, and
/// §2.2 that of `Tree`.
///
/// Whatever the method, a difference that would be no smaller than the checkpoint itself is stored as
/// `Full`, so nothing ever grows by more than a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Every checkpoint as it is.
    Full,
    /// A bitmap of what changed since the checkpoint before, and the changed chunks.
    Basic,
    /// First-time occurrences with their bytes, and shifted duplicates with the place of their
    /// bytes in this checkpoint or in an earlier one: one entry for each chunk.
    List,
    /// As `List`, with entries for whole regions: the nodes of a binary tree over the chunks.
    #[default]
    Tree,
    /// `Tree`, but `Full` without looking anything up where a sample of the chunks says that nearly
    /// all of them are new: one in 64, at places that a hash chooses, and 64 at least.
    Auto,
}

/// How a lineage is to be encoded. Everything but `verify` shapes the bytes that come out.
///
/// A match of digests is taken to be a match of bytes unless `verify` is set. XXH3 is fast and not
/// cryptographic: with the seed, chunks that collide are made at no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The method. [`Method::Tree`] unless told.
    pub method: Method,
    /// Bytes of a chunk, a power of two from 32 to 65 536. 128 unless told.
    pub chunk: u32,
    /// Seeds the hash. `None`, as unless told, has every new lineage take a random one, which its
    /// differences carry: data that collides in one lineage does not in another, and without a
    /// difference of it, chunks that collide cannot be made. A resumed lineage keeps the seed of its
    /// chain. Tell one to have the same bytes in every run.
    pub seed: Option<u64>,
    /// Compare bytes whenever two digests match, and store both on a collision. Costs the reading of
    /// what matches, and memory: that of all differences so far on the CPU; of the checkpoint before
    /// and of the record's chunks, 2.5 times a checkpoint, on the GPU. Off unless told.
    pub verify: bool,
    /// Chunks that the record of hashes may hold. At least the chunks of one checkpoint, which is
    /// the floor whatever is asked for; 1.2 times as many unless told.
    ///
    /// A checkpoint whose new chunks do not fit drops the oldest checkpoints' chunks from the
    /// record, whole checkpoints at a time. What is dropped is not found again: it is stored anew.
    pub record_capacity: Option<u64>,
}

/// [`Method::Tree`] with chunks of so many bytes, and defaults for the rest: `Tree { chunk: 128 }` is a
/// [`Config`] wherever one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// As [`Config::chunk`].
    pub chunk: u32,
}

impl From<Tree> for Config {
    fn from(tree: Tree) -> Self {
        Self::new(Method::Tree).chunk(tree.chunk)
    }
}

/// The smallest and the largest chunk, in bytes.
pub(crate) const CHUNKS: std::ops::RangeInclusive<u32> = 32..=65_536;

impl Default for Config {
    fn default() -> Self {
        Self {
            method: Method::default(),
            chunk: 128,
            seed: None,
            verify: false,
            record_capacity: None,
        }
    }
}

impl Config {
    /// The defaults with this method.
    pub fn new(method: Method) -> Self {
        Self {
            method,
            ..Self::default()
        }
    }

    /// This configuration with chunks of so many bytes.
    #[must_use]
    pub fn chunk(self, chunk: u32) -> Self {
        Self { chunk, ..self }
    }

    /// This configuration with that seed instead of a random one.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        let seed = Some(seed);
        Self { seed, ..self }
    }

    /// This configuration, with bytes compared on every match or not.
    #[must_use]
    pub fn verify(self, verify: bool) -> Self {
        Self { verify, ..self }
    }

    /// This configuration with a record of so many chunks.
    #[must_use]
    pub fn record_capacity(self, chunks: u64) -> Self {
        Self {
            record_capacity: Some(chunks),
            ..self
        }
    }

    /// The seed of a new lineage.
    pub(crate) fn seed_or_random(&self) -> u64 {
        // The standard library has keys from the system for its maps.
        let random = || RandomState::new().hash_one(std::process::id());
        self.seed.unwrap_or_else(random)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if CHUNKS.contains(&self.chunk) && self.chunk.is_power_of_two() {
            return Ok(());
        }
        Err(Invalid::Chunk { chunk: self.chunk }.into())
    }

    /// The record's capacity for checkpoints of `chunks` chunks.
    pub(crate) fn capacity(&self, chunks: u32) -> u64 {
        let chunks = u64::from(chunks);
        self.record_capacity
            .unwrap_or(chunks + chunks / 5)
            .max(chunks)
    }
}
