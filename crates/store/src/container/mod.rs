//! The container: how one rank's piece of one version lies in a file. docs/src/container.md is its description, and
//! what is said there is meant to be enough to read one without this crate.

mod head;
mod region;
mod rows;
mod scan;

pub use head::{BLOCK_BYTES, FORMAT, HEAD_LIMIT, Head, Invalid, Kind, MAGIC};
pub use region::{Element, NAME_BYTES, REGION_LIMIT, RegionInfo};
pub(crate) use rows::encode as encode_rows;
pub use rows::{IndexRow, ManifestRow, Row, rows};
pub(crate) use scan::UNREADABLE;
pub(crate) use scan::{BATCH, Scanner, damaged_block};
pub use scan::{Found, Source, scan};

/// Records, heads and payloads are multiples of this many bytes, so no checksum covers less than 248 of them and only
/// the long form of XXH3 is needed to read one.
pub const UNIT: usize = 256;

/// The checksum of heads and blocks: XXH3, 64 bits, seed 0.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// `bytes` rounded up to a multiple of `unit`, a power of two; `None` past 2^64.
pub(crate) fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    bytes.checked_add(unit - 1).map(|sum| sum & !(unit - 1))
}
