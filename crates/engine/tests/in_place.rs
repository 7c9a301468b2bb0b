//! Tests of checkpoints and restores without a copy, on the host back end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::host;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Error, ProduceSlot, Region, RegionMut, Version};
use tierflow_testing::assert_matches;

const MIB: usize = 1 << 20;

/// Returns the byte at a place of a version's content.
fn byte(version: Version, at: usize) -> u8 {
    (version as usize * 31 + at / 7) as u8
}

fn fill(slot: &mut ProduceSlot<'_>) {
    let version = slot.version();
    for (at, to) in slot.bytes_mut().unwrap().iter_mut().enumerate() {
        *to = byte(version, at);
    }
}

fn is_of(version: Version, bytes: &[u8]) -> bool {
    let mut bytes = bytes.iter().enumerate();
    bytes.all(|(at, &seen)| seen == byte(version, at))
}

fn produce(engine: &Engine, version: Version, size: usize) {
    let mut slot = engine.call().produce(version, size).unwrap();
    fill(&mut slot);
    slot.commit();
}

fn restores(engine: &Engine, version: Version, size: usize) -> bool {
    let mut bytes = vec![0; size];
    let mut regions = [RegionMut::from(bytes.as_mut_slice())];
    engine.restore(version, &mut regions).unwrap();
    is_of(version, &bytes)
}

fn wait_empty(engine: &Engine) {
    let begun = Instant::now();
    while engine.metrics().tiers.iter().any(|tier| tier.used > 0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "bytes leaked");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn bytes_written_in_place_are_read_in_place() {
    let engine = Engine::builder(&host())
        .device_cache(4 * MIB)
        .build()
        .unwrap();
    let mut slot = engine.call().produce(1, 1000).unwrap();
    assert_eq!((slot.version(), slot.len()), (1, 1000));
    fill(&mut slot);
    let written = slot.address();
    slot.commit();
    let slot = engine.call().consume(1).unwrap();
    assert_eq!(
        (slot.version(), slot.address()),
        (1, written),
        "nothing was copied"
    );
    assert!(slot.is_cached() && is_of(1, slot.bytes().unwrap()));
    drop(slot);
    assert!(restores(&engine, 1, 1000));
    let metrics = engine.metrics();
    assert_eq!((metrics.produce.count, metrics.produce.bytes), (1, 1000));
    assert_eq!((metrics.consume.count, metrics.consume.bytes), (1, 1000));
    assert!(metrics.hops.is_empty() && metrics.checkpoint.count == 0);
    assert!(metrics.to_string().contains("produce"));
}

/// The caches are far smaller than the history, which is produced forwards and consumed backwards.
#[test]
fn a_history_larger_than_the_caches_comes_back_in_place() {
    let directory = tempfile::tempdir().unwrap();
    for device_cache in [0, 4 * MIB] {
        for hinted in [true, false] {
            let engine = Engine::builder(&host())
                .device_cache(device_cache)
                .host_cache(8 * MIB)
                .scratch(directory.path())
                .after_restore(AfterRestore::Discard)
                .build()
                .unwrap();
            let count = 40;
            let size = |version: u64| MIB - 4096 * (version as usize % 5) - 13;
            if hinted {
                engine.hint((0..count).rev());
            }
            for version in 0..count {
                produce(&engine, version, size(version));
            }
            for version in (0..count).rev() {
                let slot = engine.call().consume(version).unwrap();
                assert_eq!(slot.len(), size(version));
                assert!(is_of(version, slot.bytes().unwrap()), "version {version}");
            }
            assert_matches!(engine.call().consume(3), Err(Error::Discarded { .. }));
            wait_empty(&engine);
        }
    }
}

#[test]
fn a_slot_that_is_dropped_was_never_there() {
    let engine = Engine::builder(&host()).host_cache(MIB).build().unwrap();
    let mut slot = engine.call().produce(5, MIB).unwrap();
    fill(&mut slot);
    assert!(engine.versions().is_empty());
    assert!(matches!(engine.restore_size(5), Err(Error::Unknown { .. })));
    assert_matches!(engine.call().consume(5), Err(Error::Unknown { .. }));
    assert!(matches!(engine.discard(5), Err(Error::Unknown { .. })));
    assert_matches!(engine.call().produce(5, 1), Err(Error::VersionUsed { .. }));
    drop(slot);
    produce(&engine, 5, MIB);
    assert_eq!(engine.versions(), [5]);
    // A slot that is forgotten leaves no version either. Only its room is lost.
    let small = Engine::builder(&host()).host_cache(MIB).build().unwrap();
    std::mem::forget(small.call().produce(1, MIB).unwrap());
    assert_matches!(small.call().produce(2, 1), Err(Error::NoRoom { .. }));
    drop(small);
}

/// A thread that holds slots and makes another call never waits for its own slots.
#[test]
fn a_thread_never_waits_for_its_own_slots() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&host())
        .device_cache(2 * MIB)
        .scratch(directory.path())
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    let first = engine.call().produce(1, MIB).unwrap();
    let mut second = engine.call().produce(2, MIB).unwrap();
    assert_matches!(engine.call().produce(3, MIB), Err(Error::NoRoom { .. }));
    let field: Vec<u8> = (0..MIB).map(|at| byte(3, at)).collect();
    history::checkpoint(&engine, 3, &field);
    // The cache has no room for this version.
    let copy = engine.call().consume(3).unwrap();
    assert!(!copy.is_cached() && is_of(3, copy.bytes().unwrap()));
    copy.give_back();
    assert!(restores(&engine, 3, MIB), "it was given back unconsumed");
    fill(&mut second);
    second.commit();
    engine.wait().unwrap();
    let held = engine.call().consume(2).unwrap();
    assert_matches!(engine.call().produce(4, MIB), Err(Error::NoRoom { .. }));
    drop(first);
    produce(&engine, 4, MIB);
    assert!(is_of(2, held.bytes().unwrap()));
    drop(held);
    assert!(restores(&engine, 4, MIB));
    wait_empty(&engine);
}

#[test]
fn slots_are_ordered_with_the_work_of_streams() {
    let device = host();
    let stream = device.stream().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .device_cache(3 * MIB)
        .scratch(directory.path())
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    let field = device.alloc(MIB).unwrap();
    for version in 0..20_u64 {
        let mut slot = engine.call().produce(version, MIB).unwrap();
        slot.fill(&stream, version as u8).unwrap();
        slot.commit_after(&stream).unwrap();
    }
    for version in (0..20_u64).rev() {
        let slot = engine.call().consume(version).unwrap();
        let mut to = field.lend_mut(0..MIB).unwrap();
        stream.copy_now(&slot, &mut to).unwrap();
        slot.finish_after(&stream).unwrap();
        assert!(to.bytes().unwrap().iter().all(|&b| b == version as u8));
    }
    let mut slot = engine.call().produce(20, MIB).unwrap();
    slot.fill(&stream, 7).unwrap();
    slot.give_up_after(&stream).unwrap();
    let mut slot = engine.call().produce(20, MIB).unwrap();
    slot.copy_from(&stream, &field.lend(0..MIB).unwrap())
        .unwrap();
    slot.commit();
    let slot = engine.call().consume(20).unwrap();
    slot.give_back_after(&stream).unwrap();
    let slot = engine.call().consume(20).unwrap();
    assert!(slot.bytes().unwrap().iter().all(|&b| b == 0));
    drop(slot);
    wait_empty(&engine);
}

#[test]
fn threads_produce_and_consume_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&host())
        .device_cache(8 * MIB)
        .host_cache(8 * MIB)
        .scratch(directory.path())
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    let size = MIB / 4;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let engine = &engine;
            scope.spawn(move || {
                let versions = thread * 100..thread * 100 + 30;
                engine.hint(versions.clone().rev());
                for version in versions.clone() {
                    match engine.call().produce(version, size) {
                        Ok(mut slot) => {
                            fill(&mut slot);
                            slot.commit();
                        }
                        // Slots of other threads fill the cache.
                        Err(Error::NoRoom { .. }) => {
                            let bytes: Vec<u8> = (0..size).map(|at| byte(version, at)).collect();
                            let regions = [Region::from(bytes.as_slice())];
                            engine.checkpoint(version, &regions).unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                for version in versions.rev() {
                    let slot = engine.call().consume(version).unwrap();
                    assert!(is_of(version, slot.bytes().unwrap()));
                }
            });
        }
    });
    wait_empty(&engine);
}

#[test]
fn versions_that_cannot_be_lent_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let files = Engine::builder(&host())
        .scratch(directory.path())
        .build()
        .unwrap();
    assert_matches!(files.call().produce(0, 1), Err(Error::NoMemoryTier));
    assert!(matches!(files.call().consume(0), Err(Error::NoMemoryTier)));
    let engine = Engine::builder(&host())
        .device_cache(MIB)
        .host_cache(4 * MIB)
        .build()
        .unwrap();
    assert_matches!(engine.call().produce(0, 0), Err(Error::Empty { .. }));
    let large = engine.call().produce(0, 2 * MIB);
    assert!(matches!(large, Err(Error::TooLarge { largest, .. }) if largest == MIB as u64));
    assert_matches!(engine.call().consume(0), Err(Error::Unknown { .. }));
}

#[test]
fn a_slot_may_hold_its_engine_and_no_other() {
    let engine = || {
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device).device_cache(1 << 20).build();
        Arc::new(engine.unwrap())
    };
    let (one, other) = (engine(), engine());
    let slot = one.call().produce(1, 1000).unwrap();
    let slot = slot.owned(Arc::clone(&other));
    assert!(matches!(slot, Err(Error::OtherEngine { version: 1 })));
    // The slot was given up, so its number is free.
    let mut slot = one
        .call()
        .produce(1, 1000)
        .unwrap()
        .owned(Arc::clone(&one))
        .unwrap();
    slot.bytes_mut().unwrap().fill(7);
    slot.commit();
    let slot = one.call().consume(1).unwrap().owned(Arc::clone(&other));
    assert!(matches!(slot, Err(Error::OtherEngine { version: 1 })));
    // The slot was given back unused, so its version was not consumed.
    let slot = one
        .call()
        .consume(1)
        .unwrap()
        .owned(Arc::clone(&one))
        .unwrap();
    // Another thread uses the slot, which has the last handle of the engine.
    let last = Arc::downgrade(&one);
    drop(one);
    let read = std::thread::spawn(move || slot.bytes().map(|bytes| bytes == [7; 1000]));
    assert!(read.join().unwrap().unwrap());
    assert!(last.upgrade().is_none(), "the slot was the last to hold it");
}
