//! The division of a lineage's device memory.

use super::past::BUCKET;
use super::state::STATE_BYTES;
use crate::config::{Config, Method};
use crate::layout::Layout;
use crate::record::GENERATIONS;

/// Number of words in a tile. A word has a bit for each of 32 chunks.
const TILE_WORDS: u32 = 256;

/// The arrays, in the order of their pointers in `State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Array {
    Digests,
    Sources,
    Keys,
    Owners,
    Changed,
    First,
    Behind,
    Again,
    Heads,
    Ranks,
    HeadRanks,
    TileFirst,
    TileBehind,
    TileAgain,
    TileHeadsFirst,
    TileHeadsShifted,
    Generations,
    Previous,
    Pool,
}

pub(super) const ARRAYS: [Array; 19] = [
    Array::Digests,
    Array::Sources,
    Array::Keys,
    Array::Owners,
    Array::Changed,
    Array::First,
    Array::Behind,
    Array::Again,
    Array::Heads,
    Array::Ranks,
    Array::HeadRanks,
    Array::TileFirst,
    Array::TileBehind,
    Array::TileAgain,
    Array::TileHeadsFirst,
    Array::TileHeadsShifted,
    Array::Generations,
    Array::Previous,
    Array::Pool,
];

/// Sizes that follow from a configuration and a checkpoint's length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    pub(super) method: Method,
    pub(super) capacity: u64,
    slots: u64,
    pub(super) words: u32,
    pub(super) tiles: u32,
    /// True if the kernels make differences; false if they compute only sums.
    pub(super) encodes: bool,
    /// True if the kernels compare bytes, so that earlier bytes are kept.
    verifies: bool,
}

impl Plan {
    pub(super) fn new(config: &Config, layout: Layout) -> Self {
        let words = layout.count.div_ceil(32);
        let capacity = config.capacity(layout.count);
        Self {
            layout,
            method: config.method,
            capacity,
            // A fifth of the slots stays free, so that probing ends soon.
            slots: capacity
                .saturating_add(capacity / 4)
                .saturating_add(64)
                .checked_next_multiple_of(BUCKET)
                .unwrap_or(u64::MAX),
            words,
            tiles: words.div_ceil(TILE_WORDS),
            encodes: true,
            verifies: config.verify,
        }
    }

    /// Makes a plan that computes only the sum of a checkpoint.
    pub(super) fn of_sums(layout: Layout) -> Self {
        Self {
            encodes: false,
            slots: 0,
            ..Self::new(&Config::new(Method::Full), layout)
        }
    }

    fn looks_up(&self) -> bool {
        matches!(self.method, Method::List | Method::Tree | Method::Auto)
    }

    pub(super) fn bytes(&self, array: Array) -> u64 {
        let chunks = u64::from(self.layout.count);
        let (words, tiles) = (u64::from(self.words), u64::from(self.tiles));
        let in_record = |bytes: u64| if self.looks_up() { bytes } else { 0 };
        if !self.encodes && array != Array::Changed {
            return 0;
        }
        match array {
            Array::Digests => 16 * chunks,
            Array::Sources => in_record(8 * chunks),
            Array::Keys => in_record(self.slots.saturating_mul(16)),
            Array::Owners => in_record(self.slots.saturating_mul(8)),
            Array::Changed | Array::First => 4 * words,
            Array::Behind | Array::Again | Array::Heads | Array::HeadRanks => 4 * words,
            Array::Ranks => 8 * words,
            Array::TileFirst | Array::TileBehind | Array::TileAgain => 4 * tiles,
            Array::TileHeadsFirst | Array::TileHeadsShifted => 4 * tiles,
            Array::Generations => in_record(8 * GENERATIONS as u64),
            Array::Previous if self.verifies => self.layout.len,
            Array::Pool if self.verifies => {
                in_record(self.slots.saturating_mul(self.layout.chunk.into()))
            }
            Array::Previous | Array::Pool => 0,
        }
    }

    /// Returns the offset of each array and the length of all, in bytes.
    pub(super) fn offsets(&self) -> ([u64; ARRAYS.len()], u64) {
        let mut end = (STATE_BYTES as u64).next_multiple_of(256);
        let offsets = ARRAYS.map(|array| {
            let start = end;
            end = end
                .saturating_add(self.bytes(array))
                .checked_next_multiple_of(256)
                .unwrap_or(u64::MAX);
            start
        });
        (offsets, end)
    }

    pub(super) fn words(&self) -> u32 {
        self.words
    }

    pub(super) fn slots(&self) -> u64 {
        if self.looks_up() { self.slots } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_takes_less_memory_than_the_data_at_64_byte_chunks() {
        for len in [1 << 24, 3_260_000_000] {
            let layout = Layout::new(len, 64).unwrap();
            let plan = Plan::new(&Config::new(Method::Tree).chunk(64), layout);
            assert!(plan.offsets().1 < len, "{} for {len}", plan.offsets().1);
        }
    }
}
