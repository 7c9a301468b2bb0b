//! The configuration of a lineage.

use std::hash::{BuildHasher, RandomState};

use crate::error::{Invalid, Result};

/// The way in which a checkpoint is reduced. ICPP'23, §3.2, defines `Full`, `Basic` and `List`, and §2.2 `Tree`.
///
/// Every method stores a difference as `Full` if it would be as long as the checkpoint, so a stored checkpoint is at
/// most a header longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// A difference has the whole checkpoint.
    Full,
    /// A difference has a bitmap of the chunks that changed since the checkpoint before, and these chunks.
    Basic,
    /// A difference has the bytes of first-time occurrences, and for each shifted duplicate the place of its bytes in this
    /// checkpoint or an earlier one. Each chunk has its own entry.
    List,
    /// As `List`, but with entries for whole regions: the nodes of a binary tree over the chunks.
    #[default]
    Tree,
    /// As `Tree`; but if nearly all chunks of a sample are new, the method is `Full`, without any look-up. The sample has
    /// one chunk in 64, at places that a hash chooses, and at least 64 chunks.
    Auto,
}

/// Configuration of a lineage. Every field but `verify` changes the stored bytes.
///
/// Unless `verify` is set, chunks with equal digests count as equal. XXH3 is fast and not cryptographic: with the
/// seed, anyone can make colliding chunks at no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The method, [`Method::Tree`] by default.
    pub method: Method,
    /// Bytes of a chunk, a power of two from 32 to 65 536; 128 by default.
    pub chunk: u32,
    /// Seed of the hash. With `None`, the default, each new lineage takes a random seed, which its differences contain. So
    /// chunks that collide in one lineage do not collide in another, and nobody can make colliding chunks without a
    /// difference of the lineage. A resumed lineage keeps the seed of its chain. Set a seed for the same bytes in every run.
    pub seed: Option<u64>,
    /// True if the encoder compares bytes whenever two digests match, and stores both chunks on a collision. Verification
    /// costs reads of all matching chunks, and memory: on the CPU all differences so far; on the GPU the checkpoint before
    /// and the record's chunks, 2.5 times a checkpoint. False by default.
    pub verify: bool,
    /// Largest number of chunks in the record of hashes: by default 1.2 times the chunks of a checkpoint, and never fewer
    /// than a checkpoint has.
    ///
    /// If the new chunks of a checkpoint do not fit, the record drops the chunks of the oldest checkpoints, whole
    /// checkpoints at a time. A dropped chunk is stored anew when it occurs again.
    pub record_capacity: Option<u64>,
}

/// [`Method::Tree`] with chunks of `chunk` bytes, and defaults for the other fields of [`Config`]. The value converts into a
/// [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Bytes of a chunk: see [`Config::chunk`].
    pub chunk: u32,
}

impl From<Tree> for Config {
    fn from(tree: Tree) -> Self {
        Self::new(Method::Tree).chunk(tree.chunk)
    }
}

/// Sizes of the smallest and the largest chunk, in bytes.
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
    /// Returns the defaults with this method.
    pub fn new(method: Method) -> Self {
        Self {
            method,
            ..Self::default()
        }
    }

    /// Returns this configuration with chunks of `chunk` bytes.
    #[must_use]
    pub fn chunk(self, chunk: u32) -> Self {
        Self { chunk, ..self }
    }

    /// Returns this configuration with a fixed seed in place of a random one.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        let seed = Some(seed);
        Self { seed, ..self }
    }

    /// Returns this configuration with comparing of bytes on or off.
    #[must_use]
    pub fn verify(self, verify: bool) -> Self {
        Self { verify, ..self }
    }

    /// Returns this configuration with a record of `chunks` chunks.
    #[must_use]
    pub fn record_capacity(self, chunks: u64) -> Self {
        Self {
            record_capacity: Some(chunks),
            ..self
        }
    }

    /// Returns the configured seed, or a random one.
    pub(crate) fn seed_or_random(&self) -> u64 {
        // The standard library seeds the hasher of its maps with random keys from the system.
        let random = || RandomState::new().hash_one(std::process::id());
        self.seed.unwrap_or_else(random)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if CHUNKS.contains(&self.chunk) && self.chunk.is_power_of_two() {
            return Ok(());
        }
        Err(Invalid::Chunk { chunk: self.chunk }.into())
    }

    /// Returns the record's capacity in chunks for checkpoints of `chunks` chunks.
    pub(crate) fn capacity(&self, chunks: u32) -> u64 {
        let chunks = u64::from(chunks);
        self.record_capacity
            .unwrap_or(chunks + chunks / 5)
            .max(chunks)
    }
}
