//! The tiers below the fastest store versions as differences, on the host back end. Restored bytes are the same, and the tiers hold the
//! changes only.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changing;
mod history;

use changing::{SIZE, checkpoint, content};
use history::{assert_drains, caches, host, used};
use std::sync::Arc;
use tierflow_dedup::Tree;
use tierflow_engine::{BuildError, Engine, EngineBuilder, Error, Group, RegionMut, Tier, Version};
use tierflow_store::{Options, Repository};
use tierflow_testing::assert_matches;

const MIB: usize = 1 << 20;

fn tiers(directory: &tempfile::TempDir) -> EngineBuilder {
    caches(directory.path(), SIZE).dedup(Tree { chunk: 64 })
}

fn assert_restores(engine: &Engine, version: Version) {
    history::assert_restores(engine, version, &content(version));
}

#[test]
fn a_version_that_others_build_upon_keeps_its_difference() {
    let directory = tempfile::tempdir().unwrap();
    let engine = tiers(&directory).build().unwrap();
    (0..12).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    let before = used(&engine, "file");
    for version in 0..11 {
        engine.discard(version).unwrap();
        let mut bytes = vec![0; SIZE];
        let mut regions = [RegionMut::from(bytes.as_mut_slice())];
        let gone = engine.restore(version, &mut regions);
        assert!(matches!(gone, Err(Error::Discarded { .. })));
    }
    assert_eq!(engine.versions(), [11]);
    assert_eq!(used(&engine, "file"), before);
    assert_restores(&engine, 11);
    engine.discard(11).unwrap();
    assert_drains(&engine);
}

#[test]
fn states_with_nothing_in_common_sizes_that_vary_and_large_ones() {
    let directory = tempfile::tempdir().unwrap();
    let engine = tiers(&directory).build().unwrap();
    let state = |version: Version| -> Vec<u8> {
        let size = match version % 5 {
            0 => 3 * SIZE,
            1 | 2 => SIZE,
            _ => SIZE / 3 + 1,
        };
        (0..size)
            .map(|at| ((at as u64 * 31) >> 3) as u8 ^ (version as u8).wrapping_mul(97))
            .collect()
    };
    for version in 0..15 {
        history::checkpoint(&engine, version, &state(version));
    }
    engine.wait().unwrap();
    for version in (0..15).rev() {
        let expected = state(version);
        let mut bytes = vec![0; expected.len()];
        let (first, second) = bytes.split_at_mut(1000);
        let mut regions = [RegionMut::from(first), RegionMut::from(second)];
        engine.restore(version, &mut regions).unwrap();
        assert!(bytes == expected, "version {version} came back wrong");
    }
}

#[test]
fn in_place_the_whole_bytes_are_lent() {
    let directory = tempfile::tempdir().unwrap();
    let engine = tiers(&directory).build().unwrap();
    for version in 0..8 {
        let mut slot = engine.call().produce(version, SIZE).unwrap();
        slot.bytes_mut().unwrap().copy_from_slice(&content(version));
        slot.commit();
    }
    engine.wait().unwrap();
    // The cache has room for some of these slots. The others get memory outside of it.
    let slots: Vec<_> = (0..8)
        .map(|version| engine.call().consume(version).unwrap())
        .collect();
    assert!(slots.iter().any(|slot| !slot.is_cached()));
    for (slot, version) in slots.iter().zip(0..) {
        assert!(
            slot.bytes().unwrap() == content(version),
            "version {version}"
        );
    }
}

#[test]
fn the_builder_says_why_there_can_be_no_differences() {
    let directory = tempfile::tempdir().unwrap();
    let build = |builder: EngineBuilder| builder.dedup(Tree { chunk: 64 }).build();
    let alone = build(Engine::builder(&host()).host_cache(4 * MIB));
    assert_matches!(alone, Err(Error::Build(BuildError::NoDifferences { .. })));
    let on_file = build(Engine::builder(&host()).scratch(directory.path()));
    assert_matches!(on_file, Err(Error::Build(BuildError::NoDifferences { .. })));
    let of_a_group = Engine::builder(&host())
        .host_cache(4 * MIB)
        .external(directory.path())
        .group(Group::new(0, 2, 1));
    assert!(matches!(
        build(of_a_group),
        Err(Error::Build(BuildError::NoDifferences { .. }))
    ));
    let repository = Repository::open(directory.path().join("vault"), Options::default());
    let vault = Engine::builder(&host())
        .host_cache(4 * MIB)
        .tier(Tier::vault(Arc::new(repository.unwrap())));
    assert!(matches!(
        build(vault),
        Err(Error::Build(BuildError::NoDifferences { .. }))
    ));
    let chunk = Engine::builder(&host())
        .host_cache(4 * MIB)
        .scratch(directory.path())
        .dedup(Tree { chunk: 63 })
        .build();
    assert!(matches!(chunk, Err(Error::Build(BuildError::Reduction(_)))));
}
