//! The container: the format of the file that holds one rank's piece of one version. docs/src/container.md describes it in enough
//! detail to read a piece without this crate.

mod head;
mod region;
mod rows;
mod scan;

pub use head::{BLOCK_BYTES, FORMAT, HEAD_LIMIT, Head, Invalid, Kind, MAGIC};
pub use region::{Element, NAME_BYTES, REGION_LIMIT, RegionInfo};
pub(crate) use rows::encode as encode_rows;
pub use rows::{IndexRow, ManifestRow, Row, rows};
pub(crate) use scan::{BATCH, OF_ANOTHER_RANK, Scanner, UNREADABLE, damaged_block};
pub use scan::{Found, Source, scan};

/// Records, heads and payloads are multiples of this many bytes. So every checksum covers at least 248 bytes, and a reader needs
/// only the long form of XXH3.
pub const UNIT: usize = 256;

/// The checksum of heads and blocks: XXH3, 64 bits, seed 0.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Returns `bytes` rounded up to a multiple of `unit`, a power of two; `None` past 2^64.
pub(crate) fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    bytes.checked_add(unit - 1).map(|sum| sum & !(unit - 1))
}
