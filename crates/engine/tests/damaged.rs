//! Restores, slots and prefetches read another copy if one cannot be read, and the metrics count the damaged copies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::{checkpoint, faulty, host, restored};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_engine::{Compression, Engine, EngineBuilder, Error, Value, Version};
use tierflow_store::{Error as StoreError, Faults};
use tierflow_testing::assert_matches;

const LENGTH: usize = 100_000;
const VERSIONS: u64 = 8;

fn content(version: Version) -> Vec<u8> {
    (0..LENGTH as u64)
        .map(|at| (((at + 1) * (2 * version + 1)) >> 3) as u8)
        .collect()
}

/// Returns the builder of an engine with a host cache for two versions above a scratch file that fails on demand.
fn builder(directory: &tempfile::TempDir) -> (EngineBuilder, Arc<Faults>) {
    let (faults, file) = faulty(directory.path());
    let cache = 2 * LENGTH.next_multiple_of(4096);
    (
        Engine::builder(&host()).host_cache(cache).tier(file),
        faults,
    )
}

fn checkpoint_all(engine: &Engine) {
    (0..VERSIONS).for_each(|version| checkpoint(engine, version, &content(version)));
    engine.wait().unwrap();
}

fn assert_restores(engine: &Engine, versions: impl IntoIterator<Item = Version>) {
    let versions = versions.into_iter();
    versions.for_each(|version| history::assert_restores(engine, version, &content(version)));
}

fn assert_lent(engine: &Engine) {
    for version in 0..VERSIONS {
        let slot = engine.call().consume(version).unwrap();
        assert!(slot.bytes().unwrap() == content(version), "{version}");
    }
}

fn damaged(engine: &Engine) -> Vec<u64> {
    let tiers = engine.metrics().tiers;
    tiers.iter().map(|tier| tier.damaged).collect()
}

#[test]
fn versions_that_a_scratch_file_cannot_read_come_from_below() {
    let [directory, external] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (builder, faults) = builder(&directory);
    let engine = builder.external(external.path()).build().unwrap();
    checkpoint_all(&engine);
    faults.reads_fail.store(true, Relaxed);
    assert_restores(&engine, 0..VERSIONS);
    let [_, scratch, below] = damaged(&engine)[..] else {
        panic!("three tiers")
    };
    assert!(scratch > 0 && below == 0);
    // Slots get the bytes, too, each time.
    assert_lent(&engine);
    // Prefetches read the other copy, too.
    engine.hint((0..VERSIONS).rev());
    engine.hints().prefetch_start();
    assert_restores(&engine, (0..VERSIONS).rev());
    assert_eq!(damaged(&engine)[2], 0);
}

#[test]
fn a_version_that_cannot_be_decoded_comes_from_below() {
    let [directory, external] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (builder, faults) = builder(&directory);
    let builder = builder.external(external.path());
    let engine = builder.compress(Compression::lossless(Value::I8).always());
    let engine = engine.build().unwrap();
    checkpoint_all(&engine);
    assert!(engine.metrics().compression.unwrap().compressed > 0);
    faults.reads_lie.store(true, Relaxed);
    assert_restores(&engine, 0..VERSIONS);
    engine.hint(0..VERSIONS);
    engine.hints().prefetch_start();
    assert_lent(&engine);
    let [_, scratch, below] = damaged(&engine)[..] else {
        panic!("three tiers")
    };
    assert!(scratch > 0 && below == 0, "{scratch} {below}");
}

#[test]
fn the_only_copy_is_read_again_by_the_next_call() {
    let directory = tempfile::tempdir().unwrap();
    let (builder, faults) = builder(&directory);
    let engine = builder.build().unwrap();
    checkpoint_all(&engine);
    faults.reads_fail.store(true, Relaxed);
    for _ in 0..2 {
        let failed = restored(&engine, 0);
        assert_matches!(failed, Err(Error::Storage(StoreError::Read { .. })));
    }
    faults.reads_fail.store(false, Relaxed);
    assert_restores(&engine, 0..VERSIONS);
}

/// A process that has no descriptor left for a moment cannot read some bytes then. The bytes are not lost, and become durable later.
#[test]
fn bytes_that_no_descriptor_was_left_for_are_written_down_later() {
    let [directory, external] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (builder, faults) = builder(&directory);
    let below = Arc::<Faults>::default();
    let builder = builder.external(external.path());
    let engine = below.during(|| builder.build()).unwrap();
    below.writes_fail.store(true, Relaxed);
    (0..VERSIONS).for_each(|version| checkpoint(&engine, version, &content(version)));
    assert_matches!(engine.wait(), Err(Error::Stalled { .. }));
    below.writes_fail.store(false, Relaxed);
    faults.descriptors_lack.store(true, Relaxed);
    assert_matches!(engine.wait(), Err(Error::Stalled { .. }));
    assert_matches!(
        restored(&engine, 0),
        Err(Error::Storage(StoreError::Read { .. }))
    );
    assert_eq!(damaged(&engine), [0; 3]);
    faults.descriptors_lack.store(false, Relaxed);
    engine.wait().unwrap();
}
