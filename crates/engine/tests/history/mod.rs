//! Helpers that write, restore, list and damage versions.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "it serves several tests, and not all of them use all of it"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, Device, open};
use tierflow_engine::{
    CompressionMetrics, Engine, EngineBuilder, Flush, Region, RegionMut, Result, Tier, Version,
};
use tierflow_store::{Faults, Faulty, Options, Repository, Scratch};

/// Returns bytes that differ nearly everywhere from those of any other seed.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let word = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let byte = |at: usize| ((word.rotate_left(at as u32 % 64) ^ at as u64) >> 8) as u8;
    (0..length).map(byte).collect()
}

pub(crate) fn host() -> Device {
    open(Choice::Host).unwrap()
}

/// Returns a builder with room for two checkpoints of `size` bytes on the device, for four in host memory, and for all in a file.
pub(crate) fn caches(directory: &Path, size: usize) -> EngineBuilder {
    Engine::builder(&host())
        .device_cache(2 * size)
        .host_cache(4 * size)
        .scratch(directory)
        .flush(Flush::Eager)
}

/// Returns a tier of a scratch file that fails on demand, and its faults.
pub(crate) fn faulty(directory: &Path) -> (Arc<Faults>, Tier) {
    let faults = Arc::<Faults>::default();
    let scratch = Scratch::open(directory).unwrap();
    let storage = Faulty::new(scratch, Arc::clone(&faults));
    (faults, Tier::storage(Arc::new(storage)))
}

pub(crate) fn compression(engine: &Engine) -> CompressionMetrics {
    engine.metrics().compression.unwrap()
}

/// Checkpoints these bytes of host memory as a version.
pub(crate) fn checkpoint(engine: &Engine, version: Version, bytes: &[u8]) {
    engine.checkpoint(version, &[Region::from(bytes)]).unwrap();
}

/// Returns a version's bytes.
pub(crate) fn restored(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    let mut bytes = vec![0x55; engine.restore_size(version)? as usize];
    engine.restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])?;
    Ok(bytes)
}

pub(crate) fn assert_restores(engine: &Engine, version: Version, bytes: &[u8]) {
    let back = restored(engine, version).unwrap();
    assert!(back == bytes, "version {version} came back wrong");
}

/// Waits for transfers under way, and asserts that the tiers hold nothing then.
pub(crate) fn assert_drains(engine: &Engine) {
    let begun = Instant::now();
    while engine.metrics().tiers.iter().any(|tier| tier.used > 0) {
        let tiers = engine.metrics().tiers;
        let is_early = begun.elapsed() < Duration::from_secs(60);
        assert!(is_early, "bytes leaked: {tiers:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the bytes that a tier of this name holds.
pub(crate) fn used(engine: &Engine, tier: &str) -> u64 {
    let tiers = engine.metrics().tiers;
    tiers.iter().find(|one| one.name == tier).unwrap().used
}

/// Returns the whole versions in a directory.
pub(crate) fn listed(directory: &Path) -> Vec<Version> {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    let versions = repository.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

/// Flips a bit in the payload of a version that has a file of its own. Returns the file.
pub(crate) fn damage(directory: &Path, version: Version) -> PathBuf {
    let path = directory.join(format!("rank-0/v{version:020}.tfc"));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    path
}
