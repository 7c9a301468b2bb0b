//! A state that changes a little from version to version, so that differences take less room.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "it serves several tests, and not all of them use all of it"
)]

use tierflow_engine::{Engine, Region, Version};

/// Bytes of a version.
pub(crate) const SIZE: usize = 256 << 10;

/// Returns a version's state: words of each of the last versions lie anywhere in it.
pub(crate) fn content(version: Version) -> Vec<u8> {
    changed(version, 20, SIZE)
}

/// Returns a state as [`content`] does. The changed words are near each other, and so many that chains are consolidated.
pub(crate) fn content_near(version: Version) -> Vec<u8> {
    changed(version, 200, SIZE / 16)
}

/// Returns a state with `words` words of each of the last versions among its first bytes.
fn changed(version: Version, words: u64, among: usize) -> Vec<u8> {
    let word = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 13).to_le_bytes();
    let mut state: Vec<u8> = (0..SIZE as u64 / 8).flat_map(word).collect();
    for change in version.saturating_sub(50)..=version {
        for n in 0..words {
            let at = (change * 7919 + n * 104_729) as usize % (among - 8);
            state[at..at + 8].copy_from_slice(&(change << 8 | n).to_le_bytes());
        }
    }
    state
}

pub(crate) fn checkpoint(engine: &Engine, version: Version) {
    let state = content(version);
    let regions = [Region::from(state.as_slice())];
    engine.checkpoint(version, &regions).unwrap();
}
