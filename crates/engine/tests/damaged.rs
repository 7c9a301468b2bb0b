//! Copies that cannot be read: another is read in their place, by restores, slots and prefetches alike, and the metrics tell.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::restored;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_device::{Choice, open};
use tierflow_engine::{Compression, Engine, EngineBuilder, Error, Region, Tier, Value, Version};
use tierflow_store::{Error as StoreError, Faults, Faulty, Scratch};
use tierflow_testing::assert_matches;

const LENGTH: usize = 100_000;
const VERSIONS: u64 = 8;

fn content(version: Version) -> Vec<u8> {
    (0..LENGTH as u64)
        .map(|at| (((at + 1) * (2 * version + 1)) >> 3) as u8)
        .collect()
}

/// A host cache for two versions above a scratch file that fails on demand.
fn builder(directory: &std::path::Path, faults: &Arc<Faults>) -> EngineBuilder {
    let scratch = Faulty::new(Scratch::open(directory).unwrap(), Arc::clone(faults));
    Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(2 * LENGTH.next_multiple_of(4096))
        .tier(Tier::storage(Arc::new(scratch)))
}

fn checkpoint_all(engine: &Engine) {
    for version in 0..VERSIONS {
        let bytes = content(version);
        engine
            .checkpoint(version, &[Region::from(bytes.as_slice())])
            .unwrap();
    }
    engine.wait().unwrap();
}

fn damaged(engine: &Engine) -> Vec<u64> {
    let tiers = engine.metrics().tiers;
    tiers.iter().map(|tier| tier.damaged).collect()
}

#[test]
fn what_a_scratch_file_does_not_give_back_comes_from_below() {
    let (directory, faults) = (tempfile::tempdir().unwrap(), Arc::<Faults>::default());
    let external = tempfile::tempdir().unwrap();
    let engine = builder(directory.path(), &faults).external(external.path());
    let engine = engine.build().unwrap();
    checkpoint_all(&engine);
    faults.reads_fail.store(true, Relaxed);
    for version in 0..VERSIONS {
        assert!(
            restored(&engine, version).unwrap() == content(version),
            "{version}"
        );
    }
    let [_, scratch, below] = damaged(&engine)[..] else {
        panic!("three tiers")
    };
    assert!(scratch > 0 && below == 0);
    // In place, too, and however often.
    for version in 0..VERSIONS {
        let slot = engine.call().consume(version).unwrap();
        assert!(slot.bytes().unwrap() == content(version), "{version}");
    }
    // Prefetches read the other copy, too.
    engine.hint((0..VERSIONS).rev());
    engine.prefetch_start();
    for version in (0..VERSIONS).rev() {
        assert!(
            restored(&engine, version).unwrap() == content(version),
            "{version}"
        );
    }
    assert_eq!(damaged(&engine)[2], 0);
}

#[test]
fn what_cannot_be_put_together_comes_from_below() {
    let (directory, faults) = (tempfile::tempdir().unwrap(), Arc::<Faults>::default());
    let external = tempfile::tempdir().unwrap();
    let builder = builder(directory.path(), &faults).external(external.path());
    let engine = builder.compress(Compression::lossless(Value::I8).always());
    let engine = engine.build().unwrap();
    checkpoint_all(&engine);
    assert!(engine.metrics().compression.unwrap().compressed > 0);
    faults.reads_lie.store(true, Relaxed);
    for version in 0..VERSIONS {
        let bytes = restored(&engine, version).unwrap();
        assert!(bytes == content(version), "{version}");
    }
    engine.hint(0..VERSIONS);
    engine.prefetch_start();
    for version in 0..VERSIONS {
        let slot = engine.call().consume(version).unwrap();
        assert!(slot.bytes().unwrap() == content(version), "{version}");
    }
    let [_, scratch, below] = damaged(&engine)[..] else {
        panic!("three tiers")
    };
    assert!(scratch > 0 && below == 0, "{scratch} {below}");
}

#[test]
fn the_only_copy_is_read_again_by_the_next_call() {
    let (directory, faults) = (tempfile::tempdir().unwrap(), Arc::<Faults>::default());
    let engine = builder(directory.path(), &faults).build().unwrap();
    checkpoint_all(&engine);
    faults.reads_fail.store(true, Relaxed);
    for _ in 0..2 {
        let failed = restored(&engine, 0);
        assert_matches!(failed, Err(Error::Storage(StoreError::Read { .. })));
    }
    faults.reads_fail.store(false, Relaxed);
    for version in 0..VERSIONS {
        assert!(
            restored(&engine, version).unwrap() == content(version),
            "{version}"
        );
    }
}
