//! Versions outlive the engine: the next engine finds, checks and restores them, and continues from them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod groups;
mod history;
mod home;
mod vaults;

use history::{content, damage, listed, restored as restore};
use home::{Home, home};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tierflow_device::{Choice, Device, Memory, open};
use tierflow_engine::{
    AfterRestore, Engine, EngineBuilder, Error, Group, Region, RegionMut, Tier, Version,
};
use tierflow_store::{Error as StoreError, Faults, Options, Repository};
use tierflow_testing::assert_matches;
use vaults::{Gate, Watched};

const MIB: usize = 1 << 20;

fn builder() -> EngineBuilder {
    let device = open(Choice::Host).unwrap();
    Engine::builder(&device).host_cache(16 * MIB)
}

fn checkpoint(engine: &Engine, version: Version, length: usize) {
    history::checkpoint(engine, version, &content(version, length));
}

fn assert_restores(engine: &Engine, version: Version, length: usize) {
    assert!(
        restore(engine, version).unwrap() == content(version, length),
        "version {version}"
    );
}

fn length_of(version: Version) -> usize {
    if version.is_multiple_of(3) {
        3 * MIB + 7
    } else {
        5_000
    }
}

#[test]
fn a_report_names_no_size_of_a_tier_without_a_limit() {
    let home = tempfile::tempdir().unwrap();
    let builder = Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20);
    let engine = builder.external(home.path()).build().unwrap();
    let text = engine.metrics().to_string();
    assert!(text.contains("peak 0 of 1048576 bytes"), "{text}");
    assert!(text.contains("peak 0 bytes, no limit"), "{text}");
}

#[test]
fn the_next_engine_goes_on_where_the_last_one_ended() {
    let home = home();
    let tiers: [fn(&Home) -> EngineBuilder; 3] = [
        |home| builder().node_local(&home.near),
        |home| builder().node_local(&home.near).external(&home.far),
        |home| builder().external(home.far.with_extension("only")),
    ];
    for tiers in tiers {
        let mut next: u64 = 0;
        for _life in 0..3 {
            let engine = tiers(&home).build().unwrap();
            let newest = engine.latest(None);
            assert_eq!(newest, next.checked_sub(1));
            for version in (0..next).rev() {
                assert_restores(&engine, version, length_of(version));
            }
            if let Some(newest) = newest {
                let again = engine.checkpoint(newest, &[Region::from([1_u8].as_slice())]);
                assert!(matches!(again, Err(Error::VersionUsed { .. })), "{again:?}");
            }
            for version in next..next + 7 {
                checkpoint(&engine, version, length_of(version));
            }
            next += 7;
            engine.wait().unwrap();
        }
        std::fs::remove_dir_all(&home.near).unwrap_or_default();
    }
}

#[test]
fn a_lost_node_loses_no_version_that_was_waited_for() {
    let home = home();
    let engine = builder()
        .node_local(&home.near)
        .external(&home.far)
        .build()
        .unwrap();
    (0..9).for_each(|version| checkpoint(&engine, version, length_of(version)));
    engine.wait().unwrap();
    drop(engine);
    assert_eq!(listed(&home.far), (0..9).collect::<Vec<_>>());
    std::fs::remove_dir_all(&home.near).unwrap();
    let engine = builder()
        .node_local(&home.near)
        .external(&home.far)
        .build()
        .unwrap();
    assert_eq!(engine.latest(None), Some(8));
    (0..9).for_each(|version| assert_restores(&engine, version, length_of(version)));
}

#[test]
fn versions_on_the_node_alone_are_flushed_by_the_next_engine() {
    let home = home();
    let engine = builder().node_local(&home.near).build().unwrap();
    (0..5).for_each(|version| checkpoint(&engine, version, length_of(version)));
    engine.wait().unwrap();
    drop(engine);
    let engine = builder()
        .node_local(&home.near)
        .external(&home.far)
        .build()
        .unwrap();
    engine.wait().unwrap();
    assert_eq!(listed(&home.far), [0, 1, 2, 3, 4]);
}

#[test]
fn a_limited_directory_holds_the_newest_and_the_external_one_all() {
    let home = home();
    let engine = builder()
        .tier(Tier::node_local(&home.near).limit(20 * MIB as u64))
        .external(&home.far)
        .build()
        .unwrap();
    for version in 0..20 {
        checkpoint(&engine, version, 4 * MIB);
        engine.wait().unwrap();
    }
    (0..20).for_each(|version| assert_restores(&engine, version, 4 * MIB));
    drop(engine);
    assert!(listed(&home.near).len() <= 5, "{:?}", listed(&home.near));
    assert_eq!(listed(&home.far).len(), 20);
}

#[test]
fn device_memory_goes_to_the_disk_and_back_without_other_caches() {
    to_the_disk_and_back(&open(Choice::Host).unwrap());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_memory_goes_to_the_disk_and_back() {
    to_the_disk_and_back(&open(Choice::Cuda { ordinal: 0 }).unwrap());
}

fn to_the_disk_and_back(device: &Device) {
    let home = home();
    let stream = device.stream().unwrap();
    let length = 9 * MIB + 4096;
    for cache in [0, 10 * MIB] {
        let directory = home.near.with_extension(cache.to_string());
        let engine = || {
            let builder = Engine::builder(device).device_cache(cache);
            builder.node_local(&directory).build().unwrap()
        };
        let (one, two) = (
            device.alloc(length / 2).unwrap(),
            device.alloc(length / 2).unwrap(),
        );
        let fill = |engine: &Engine, version| {
            for (memory, part) in [&one, &two]
                .into_iter()
                .zip(content(version, length).chunks(length / 2))
            {
                let mut lent = memory.lend_mut(0..part.len()).unwrap();
                stream.write(part, &mut lent).unwrap();
            }
            engine
                .checkpoint(version, &[Region::from(&one), Region::from(&two)])
                .unwrap();
        };
        let first = engine();
        (0..3).for_each(|version| fill(&first, version));
        first.wait().unwrap();
        drop(first);
        let second = engine();
        for version in 0..3 {
            second
                .restore(version, &mut [RegionMut::from(&one), RegionMut::from(&two)])
                .unwrap();
            let part = |memory: &Memory| {
                let mut bytes = vec![0; length / 2];
                let lent = memory.lend(0..length / 2).unwrap();
                stream.read(&lent, &mut bytes).unwrap();
                bytes
            };
            assert!([part(&one), part(&two)].concat() == content(version, length));
        }
    }
}

#[test]
fn damage_is_named_and_an_older_version_offered() {
    let home = home();
    let engine = builder().node_local(&home.near).build().unwrap();
    for version in [3, 6, 9] {
        checkpoint(&engine, version, length_of(version));
    }
    engine.wait().unwrap();
    drop(engine);
    let path = damage(&home.near, 9);
    let engine = builder().node_local(&home.near).build().unwrap();
    assert_eq!(engine.latest(None), Some(9));
    let error = restore(&engine, 9).unwrap_err();
    let Error::Storage(StoreError::Damaged {
        path: named, older, ..
    }) = &error
    else {
        panic!("{error}");
    };
    assert_eq!((named, *older), (&path, Some(6)));
    assert_eq!(engine.latest(Some(9)), Some(6));
    assert_restores(&engine, 6, length_of(6));
    // The run continues, and writes that version again.
    engine.discard(9).unwrap();
    checkpoint(&engine, 9, 100);
    engine.wait().unwrap();
    drop(engine);
    let engine = builder().node_local(&home.near).build().unwrap();
    assert_restores(&engine, 9, 100);
}

#[test]
fn a_destroyed_head_is_named_too() {
    let home = home();
    let engine = builder().node_local(&home.near).build().unwrap();
    for version in [3, 6] {
        checkpoint(&engine, version, length_of(version));
    }
    engine.wait().unwrap();
    drop(engine);
    let path = home.near.join("rank-0/v00000000000000000006.tfc");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[33] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let engine = builder().node_local(&home.near).build().unwrap();
    assert_eq!(engine.latest(None), Some(3));
    assert_matches!(
        restore(&engine, 6),
        Err(Error::Storage(StoreError::Damaged { path: named, older: Some(3), .. }))
            if *named == path
    );
    checkpoint(&engine, 6, 100);
    engine.wait().unwrap();
    assert_restores(&engine, 6, 100);
}

#[test]
fn a_damaged_copy_is_read_from_the_storage_below() {
    let home = home();
    let both = || {
        builder()
            .node_local(&home.near)
            .external(&home.far)
            .build()
            .unwrap()
    };
    let engine = both();
    for version in [3, 6] {
        checkpoint(&engine, version, length_of(version));
    }
    engine.wait().unwrap();
    drop(engine);
    damage(&home.near, 6);
    let engine = both();
    assert_restores(&engine, 6, length_of(6));
    let damaged = |engine: &Engine| {
        let tiers = engine.metrics().tiers;
        tiers.iter().map(|tier| tier.damaged).collect::<Vec<_>>()
    };
    assert_eq!(damaged(&engine), [0, 1, 0]);
    // The engine knows of the damage now, and does not read that copy again.
    assert_restores(&engine, 6, length_of(6));
    assert_eq!(damaged(&engine), [0, 1, 0]);
    drop(engine);
    let engine = both();
    // A prefetch does not read it either.
    engine.hint([6]);
    engine.hints().prefetch_start();
    assert_restores(&engine, 6, length_of(6));
}

#[test]
fn a_discarded_version_is_removed_from_the_disk() {
    let home = home();
    let both = || builder().node_local(&home.near).external(&home.far);
    let engine = both().build().unwrap();
    (0..7).for_each(|version| checkpoint(&engine, version, length_of(version)));
    engine.wait().unwrap();
    for version in [1, 3] {
        engine.discard(version).unwrap();
    }
    drop(engine);
    assert_eq!(listed(&home.near), [0, 2, 4, 5, 6]);
    assert_eq!(listed(&home.far), [0, 2, 4, 5, 6]);
    let engine = both().after_restore(AfterRestore::Discard).build().unwrap();
    assert_restores(&engine, 6, length_of(6));
    drop(engine);
    assert_eq!(listed(&home.far), [0, 2, 4, 5]);
}

#[test]
fn a_version_of_a_group_counts_when_all_pieces_do() {
    let home = home();
    let ranks = |run: u64| {
        groups::together(3, |rank| {
            let near = home.near.with_extension(format!("host{rank}"));
            let builder = builder().node_local(near).external(&home.far);
            builder.group(Group::new(rank, 3, run)).build().unwrap()
        })
    };
    let write = |rank: &Engine, versions: std::ops::Range<u64>| {
        versions.for_each(|version| checkpoint(rank, version, length_of(version)));
        rank.wait().unwrap();
    };
    {
        let ranks = ranks(1);
        for (rank, last) in ranks.iter().zip([6, 4, 5]) {
            write(rank, 0..last);
        }
    }
    let second = ranks(2);
    for rank in &second {
        assert_eq!(rank.latest(None), Some(3), "the last that all have");
        assert_restores(rank, 3, length_of(3));
        write(rank, 4..8);
    }
    drop(second);
    assert_eq!(ranks(3)[1].latest(None), Some(7));
}

#[test]
fn storage_that_fails_is_named_and_used_again_when_it_is_well() {
    let home = home();
    let faults = Arc::<Faults>::default();
    let options = Options::default().faults(Arc::clone(&faults));
    let far = Arc::new(Repository::open(&home.far, options).unwrap());
    let engine = builder()
        .node_local(&home.near)
        .tier(Tier::vault(far))
        .build()
        .unwrap();
    for switch in [
        &faults.full,
        &faults.writes_fail,
        &faults.short_writes,
        &faults.syncs_fail,
    ] {
        switch.store(true, Relaxed);
        let next = engine.latest(None).map_or(0, |newest| newest + 1);
        checkpoint(&engine, next, length_of(next));
        assert_matches!(
            engine.wait(),
            Err(Error::Stalled {
                versions: 1,
                cause: Some(_)
            })
        );
        assert_restores(&engine, next, length_of(next));
        switch.store(false, Relaxed);
        engine.wait().unwrap();
        assert!(listed(&home.far).contains(&next));
    }
}

#[test]
fn storage_that_hangs_blocks_nobody_longer_than_asked() {
    let home = home();
    let vault = Watched::new(&home.far, Gate::default());
    let engine = builder()
        .node_local(&home.near)
        .tier(Tier::vault(vault.clone()))
        .build()
        .unwrap();
    vault.halt();
    for version in 0..3 {
        checkpoint(&engine, version, length_of(version));
    }
    assert_matches!(
        engine.call().within(Duration::from_millis(50)).wait(),
        Err(Error::TimedOut { .. })
    );
    // Checkpoints and restores work meanwhile.
    checkpoint(&engine, 3, length_of(3));
    (0..4).for_each(|version| assert_restores(&engine, version, length_of(version)));
    vault.resume();
    engine
        .call()
        .within(Duration::from_secs(60))
        .wait()
        .unwrap();
    assert_eq!(listed(&home.far), [0, 1, 2, 3]);
}

#[test]
fn storage_that_hangs_does_not_keep_an_application_from_its_end() {
    let home = home();
    let vault = Watched::new(&home.far, Gate::default());
    let engine = builder()
        .node_local(&home.near)
        .tier(Tier::vault(vault.clone()))
        .closing_patience(Duration::from_millis(50))
        .build()
        .unwrap();
    vault.halt();
    checkpoint(&engine, 3, length_of(3));
    // The version is on the node, and under way to storage that does not answer.
    while !vault.is_met() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(engine);
    // Work under way stops at its next block, and releases the directories.
    vault.resume();
    drop(vault);
    let engine = loop {
        let again = builder().node_local(&home.near).external(&home.far).build();
        match again {
            Err(Error::Storage(StoreError::Busy { .. })) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            again => break again.unwrap(),
        }
    };
    // The next engine copies the version to external storage.
    engine.wait().unwrap();
    assert_eq!(listed(&home.far), [3]);
}

#[test]
fn two_engines_on_one_directory_are_refused() {
    let home = home();
    let engine = builder().node_local(&home.near).build().unwrap();
    let second = builder().node_local(&home.near).build();
    assert_matches!(second, Err(Error::Storage(StoreError::Busy { .. })));
    drop(engine);
    builder().node_local(&home.near).build().unwrap();
}
