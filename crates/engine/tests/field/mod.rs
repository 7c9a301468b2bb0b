//! A field with a wave that moves on from version to version, and zeros ahead of it.

use tierflow_engine::Version;

/// Values of a field: 256 KiB.
pub(crate) const VALUES: usize = 64 << 10;

pub(crate) fn field(version: Version) -> Vec<u8> {
    let front = 2000 * (version as usize + 1);
    let value = |n: usize| match n < front {
        true => ((front - n) as f32 / 40.0).sin() * (n as f32 / 9e4).cos(),
        false => 0.0,
    };
    (0..VALUES).flat_map(|n| value(n).to_le_bytes()).collect()
}
