//! Tests of the engine on the host back end: restored bytes are the same, whatever the order, the hints and the faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::{assert_drains, host};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tierflow_device::Memory;
use tierflow_engine::plan::{Fifo, Lru};
use tierflow_engine::{AfterRestore, BuildError, Engine, Error, Region, RegionMut, Tier, Version};
use tierflow_store::Faults;
use tierflow_testing::{assert_matches, noise as content};
use tierflow_tier_alloc::DeviceGrowth;

const MIB: usize = 1 << 20;

fn fill(memory: &Memory, bytes: &[u8]) {
    memory
        .lend_mut(0..bytes.len())
        .unwrap()
        .bytes_mut()
        .unwrap()
        .copy_from_slice(bytes);
}

fn checkpoint(engine: &Engine, version: Version, length: usize) -> Result<(), Error> {
    engine.checkpoint(
        version,
        &[Region::from(content(version, length).as_slice())],
    )
}

fn assert_restores(engine: &Engine, version: Version, length: usize) {
    history::assert_restores(engine, version, &content(version, length));
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Reverse,
    Sequential,
    Irregular,
}

fn order(order: Order, count: u64) -> Vec<Version> {
    match order {
        Order::Reverse => (0..count).rev().collect(),
        Order::Sequential => (0..count).collect(),
        Order::Irregular => (0..count).map(|i| i * 37 % count).collect(),
    }
}

#[test]
fn every_order_and_every_degree_of_foreknowledge_gives_the_bytes_back() {
    let device = host();
    let count = 60;
    let sizes: [fn(u64) -> usize; 2] = [
        |_| 96 * 1024,
        |version| 1 + (version as usize * 7919) % (200 * 1024),
    ];
    for way in [Order::Reverse, Order::Sequential, Order::Irregular] {
        for hinted in [count as usize, 1, 0] {
            for size in sizes {
                for after in [AfterRestore::Discard, AfterRestore::Keep] {
                    let scratch = tempfile::tempdir().unwrap();
                    let engine = Engine::builder(&device)
                        .device_cache(MIB / 2)
                        .host_cache(MIB)
                        .scratch(scratch.path())
                        .after_restore(after)
                        .build()
                        .unwrap();
                    let order = order(way, count);
                    if hinted > 1 {
                        engine.hint(order.iter().copied());
                    }
                    let memory = device.alloc(256 * 1024).unwrap();
                    for version in 0..count {
                        let bytes = content(version, size(version));
                        fill(&memory, &bytes);
                        engine
                            .checkpoint(version, &[Region::Memory(&memory, 0..bytes.len())])
                            .unwrap();
                    }
                    engine.hints().prefetch_start();
                    for (step, &version) in order.iter().enumerate() {
                        if hinted == 1 {
                            engine.hint(order.get(step + 1).copied());
                        }
                        assert_restores(&engine, version, size(version));
                    }
                    let metrics = engine.metrics();
                    let served: u64 = metrics.tiers.iter().map(|tier| tier.restores).sum();
                    assert_eq!((metrics.restore.count, served), (count, count), "{way:?}");
                    assert_eq!(engine.versions().is_empty(), after == AfterRestore::Discard);
                }
            }
        }
    }
}

#[test]
fn several_regions_of_every_kind_make_one_checkpoint() {
    let device = host();
    let engine = Engine::builder(&device)
        .device_cache(4 * MIB)
        .host_cache(MIB)
        .build()
        .unwrap();
    let (memory, odd) = (device.alloc(1000).unwrap(), content(8, 333));
    fill(&memory, &content(7, 1000));
    let regions = [
        Region::from(odd.as_slice()),
        Region::Memory(&memory, 10..900),
        Region::Bytes(&[]),
        Region::from(&memory),
    ];
    engine.checkpoint(1, &regions).unwrap();
    assert_eq!(engine.restore_size(1).unwrap(), 333 + 890 + 1000);
    let (mut first, back) = (vec![0; 333 + 890], device.alloc(1000).unwrap());
    engine
        .restore(
            1,
            &mut [
                RegionMut::from(first.as_mut_slice()),
                RegionMut::from(&back),
            ],
        )
        .unwrap();
    let expected = content(7, 1000);
    assert!(first[..333] == odd && first[333..] == expected[10..900]);
    assert!(back.lend(0..1000).unwrap().bytes().unwrap() == expected);
}

#[test]
fn bad_calls_are_refused_and_harm_nothing() {
    let device = host();
    let engine = Engine::builder(&device)
        .device_cache(MIB)
        .host_cache(2 * MIB)
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    assert!(matches!(
        Engine::builder(&device).build(),
        Err(Error::Build(BuildError::NoTier))
    ));
    assert_matches!(engine.checkpoint(0, &[]), Err(Error::Empty { version: 0 }));
    checkpoint(&engine, 0, 1000).unwrap();
    assert!(matches!(
        checkpoint(&engine, 0, 10),
        Err(Error::VersionUsed { version: 0 })
    ));
    assert_matches!(engine.restore_size(9), Err(Error::Unknown { version: 9 }));
    assert_matches!(engine.restore(9, &mut []), Err(Error::Unknown { .. }));
    let mut short = vec![0; 999];
    assert_matches!(
        engine.restore(0, &mut [RegionMut::from(short.as_mut_slice())]),
        Err(Error::SizeMismatch {
            expected: 1000,
            given: 999,
            ..
        })
    );
    assert_matches!(checkpoint(&engine, 1, 3 * MIB), Err(Error::TooLarge { .. }));
    checkpoint(&engine, 1, 3 * MIB / 2).unwrap();
    assert_restores(&engine, 1, 3 * MIB / 2);
    assert_restores(&engine, 0, 1000);
    assert!(matches!(
        engine.restore(0, &mut []),
        Err(Error::Discarded { version: 0 })
    ));
    assert_matches!(checkpoint(&engine, 0, 10), Err(Error::VersionUsed { .. }));
    checkpoint(&engine, 2, 10).unwrap();
    engine.discard(2).unwrap();
    assert!(matches!(engine.discard(2), Err(Error::Discarded { .. })));
    assert!(matches!(engine.discard(77), Err(Error::Unknown { .. })));
    // Memory that is lent for writing cannot be checkpointed. The version's number stays free.
    let memory = device.alloc(100).unwrap();
    let writing = memory.lend_mut(0..100).unwrap();
    assert!(matches!(
        engine.checkpoint(3, &[Region::from(&memory)]),
        Err(Error::Device(_))
    ));
    drop(writing);
    engine.checkpoint(3, &[Region::from(&memory)]).unwrap();
}

#[test]
fn a_missing_scratch_directory_is_named() {
    let error = Engine::builder(&host())
        .scratch("/nonexistent/scratch")
        .build()
        .unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/scratch"),
        "{error}"
    );
}

fn faulty_engine() -> (Engine, Arc<Faults>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let (faults, file) = history::faulty(directory.path());
    let engine = Engine::builder(&host())
        .device_cache(MIB)
        .host_cache(MIB)
        .tier(file)
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    (engine, faults, directory)
}

#[test]
fn a_full_disk_refuses_checkpoints_and_loses_none() {
    let (engine, faults, _directory) = faulty_engine();
    let size = 128 * 1024;
    for version in 0..20 {
        checkpoint(&engine, version, size).unwrap();
    }
    faults.full.store(true, Ordering::Relaxed);
    let refused = (20..60)
        .find(|&version| checkpoint(&engine, version, size).is_err())
        .unwrap();
    let error = checkpoint(&engine, refused, size).unwrap_err();
    assert_matches!(error, Error::NoRoom { cause: Some(_), .. });
    assert!(error.to_string().contains("full"), "{error}");
    assert!(matches!(engine.wait(), Err(Error::Stalled { .. })));
    assert_eq!(engine.versions(), (0..refused).collect::<Vec<_>>());

    // There is room now, so the same call succeeds.
    faults.full.store(false, Ordering::Relaxed);
    checkpoint(&engine, refused, size).unwrap();
    engine.wait().unwrap();
    for version in (0..=refused).rev() {
        assert_restores(&engine, version, size);
    }
}

#[test]
fn a_read_error_reaches_the_caller_and_the_version_stays() {
    let (engine, faults, _directory) = faulty_engine();
    for version in 0..40 {
        checkpoint(&engine, version, 128 * 1024).unwrap();
    }
    engine.wait().unwrap();
    faults.reads_fail.store(true, Ordering::Relaxed);
    let mut bytes = vec![0; 128 * 1024];
    let mut restore = |version| {
        let mut regions = [RegionMut::from(bytes.as_mut_slice())];
        engine.restore(version, &mut regions)
    };
    // Most versions are on the storage alone.
    let failed: Vec<_> = (0..40)
        .filter(|&version| restore(version).is_err())
        .collect();
    assert!(failed.len() >= 40 - 16, "{failed:?}");
    assert_matches!(restore(failed[0]), Err(Error::Storage(_)));
    faults.reads_fail.store(false, Ordering::Relaxed);
    for version in failed {
        assert_restores(&engine, version, 128 * 1024);
    }
}

/// A small version is read in one piece. A large one is read in several, and its restore succeeds if no piece meets a fault.
#[test]
fn storage_that_fails_now_and_then_loses_nothing() {
    for (nth, size) in [(2, 30_000), (3, 30_000), (7, 30_000), (11, 100_000)] {
        let (engine, faults, _directory) = faulty_engine();
        let versions = 6_000_000 / size as Version;
        engine.hint((0..versions).rev());
        for version in 0..versions {
            // A call may meet a fault. The next call finds the tier usable again.
            faults.every_nth.store(nth, Ordering::Relaxed);
            while checkpoint(&engine, version, size).is_err() {}
        }
        for version in (0..versions).rev() {
            let mut bytes = vec![0; size];
            while engine
                .restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])
                .is_err()
            {}
            assert!(bytes == content(version, size));
        }
    }
}

#[test]
fn the_scratch_directory_may_vanish() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&host())
        .host_cache(MIB / 2)
        .scratch(directory.path())
        .build()
        .unwrap();
    checkpoint(&engine, 0, 100_000).unwrap();
    drop(directory);
    for version in 1..30 {
        checkpoint(&engine, version, 100_000).unwrap();
    }
    for version in 0..30 {
        assert_restores(&engine, version, 100_000);
    }
}

#[test]
fn threads_share_one_engine_under_every_policy() {
    let device = host();
    for policy in 0..3 {
        let scratch = tempfile::tempdir().unwrap();
        let builder = Engine::builder(&device)
            .device_cache(MIB)
            .host_cache(MIB)
            .scratch(scratch.path());
        let builder = match policy {
            0 => builder,
            1 => builder.policy(Fifo),
            _ => builder.policy(Lru),
        };
        let engine = builder
            .after_restore(AfterRestore::Discard)
            .build()
            .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let engine = &engine;
                scope.spawn(move || {
                    let versions = thread * 1000..thread * 1000 + 40;
                    let size = |version: Version| 10_000 + (version as usize * 7919) % 150_000;
                    engine.hint(versions.clone().rev());
                    for version in versions.clone() {
                        checkpoint(engine, version, size(version)).unwrap();
                    }
                    for version in versions.rev() {
                        assert_restores(engine, version, size(version));
                    }
                });
            }
        });
        assert!(engine.versions().is_empty());
        assert_drains(&engine);
    }
}

/// The cache begins with the part that is mapped, evicts from that part, and has its full size in the end.
#[test]
fn a_cache_may_evict_before_all_of_it_is_mapped() {
    const CACHE: usize = 512 * MIB;
    let zeros = vec![0; 8 * MIB];
    for may in [true, false] {
        let engine = Engine::builder(&host())
            .tier(
                Tier::device(CACHE)
                    .growth(DeviceGrowth::IncrementalVmm {
                        chunk: Some(2 * MIB),
                    })
                    .evict_while_growing(may),
            )
            .build()
            .unwrap();
        checkpoint(&engine, 0, MIB).unwrap();
        let mut version = 1;
        while engine
            .reports()
            .device
            .is_some_and(|device| !device.finished)
        {
            checkpoint(&engine, version, 4096).unwrap();
            engine.discard(version).unwrap();
            version += 1;
        }
        let full = std::time::Instant::now();
        // The plan learns of the arena's growth a moment later.
        let peak = loop {
            while engine
                .checkpoint(version, &[Region::from(zeros.as_slice())])
                .is_ok()
            {
                version += 1;
            }
            let peak = engine.metrics().tiers[0].peak;
            if peak > (CACHE - 16 * MIB) as u64 || full.elapsed().as_secs() > 30 {
                break peak;
            }
        };
        assert!(
            peak > (CACHE - 16 * MIB) as u64,
            "only {peak} bytes were ever used"
        );
        assert_restores(&engine, 0, MIB);
    }
}

#[test]
fn an_engine_may_be_dropped_while_it_works() {
    let scratch = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let engine = Engine::builder(&host())
            .device_cache(2 * MIB)
            .host_cache(2 * MIB)
            .scratch(scratch.path())
            .build()
            .unwrap();
        for version in 0..round {
            checkpoint(&engine, version, 300_000).unwrap();
        }
        engine.hint(0..round);
        engine.hints().prefetch_start();
    }
}
