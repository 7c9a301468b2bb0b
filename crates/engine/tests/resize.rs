//! Caches are made smaller and larger while they are in use.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use std::time::Duration;
use tierflow_device::{Choice, host, open};
use tierflow_engine::{Cache, Engine, Error, Tier, Version};
use tierflow_testing::assert_matches;
use tierflow_tier_alloc::{DeviceGrowth, HostPool, PoolOptions};

const MIB: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

fn checkpoint(engine: &Engine, version: Version) {
    history::checkpoint(engine, version, &[version as u8; MIB]);
}

fn assert_restores(engine: &Engine, version: Version) {
    history::assert_restores(engine, version, &[version as u8; MIB]);
}

fn used(engine: &Engine) -> Vec<u64> {
    let tiers = engine.metrics().tiers;
    tiers.iter().map(|tier| tier.used / MIB as u64).collect()
}

#[test]
fn memory_is_given_back_and_taken_again_and_nothing_is_lost() {
    let device = host::open(host::Options::default().device_bytes(64 << 20)).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .tier(Tier::device(32 * MIB).growth(DeviceGrowth::IncrementalVmm {
            chunk: Some(4 * MIB),
        }))
        .host_cache(64 * MIB)
        .scratch(scratch.path())
        .build()
        .unwrap();
    // The hinted versions that fit stay in the device cache.
    engine.hint(0..30);
    for version in 0..30 {
        checkpoint(&engine, version);
    }
    assert_eq!(used(&engine), [30, 0, 0]);
    assert_eq!(device.free_bytes().unwrap(), 32 << 20);
    engine.resize(Cache::Device, 8 * MIB, LONG).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 56 << 20);
    assert_eq!(engine.metrics().tiers[0].limit, 8 << 20);
    // The application uses the memory for something else.
    let field = device.alloc(40 << 20).unwrap();
    let full = engine.resize(Cache::Device, 32 * MIB, LONG);
    assert!(matches!(full, Err(Error::Device(_))), "{full:?}");
    engine.resize(Cache::Host, 0, Duration::MAX).unwrap();
    let host = engine.reports().host.unwrap();
    assert_eq!(host.touched, 0);
    (0..30).for_each(|version| assert_restores(&engine, version));
    for version in 30..60 {
        checkpoint(&engine, version);
    }
    drop(field);
    // The cache does not grow beyond the size with which it was built, and the answer says so.
    let built = engine.metrics().tiers;
    for (cache, tier) in [(Cache::Device, 0), (Cache::Host, 1)] {
        let granted = engine.resize(cache, usize::MAX, LONG).unwrap();
        assert_eq!(granted, built[tier].capacity);
    }
    assert_eq!(device.free_bytes().unwrap(), 32 << 20);
    (0..60).for_each(|version| assert_restores(&engine, version));
    checkpoint(&engine, 60);
    engine.resize(Cache::Device, 0, LONG).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 64 << 20);
    (0..61).for_each(|version| assert_restores(&engine, version));
}

#[test]
fn a_slot_that_is_lent_is_waited_for_and_no_longer_than_wanted() {
    let device = open(Choice::Host).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .device_cache(4 * MIB)
        .scratch(scratch.path())
        .build()
        .unwrap();
    let mut slot = engine.call().produce(1, MIB).unwrap();
    let short = Duration::from_millis(20);
    let late = engine.resize(Cache::Device, 0, short);
    let late = late.unwrap_err();
    assert!(matches!(late, Error::TimedOut { .. }));
    let text = "the change of the size of the device cache was not over within 20ms";
    assert!(late.to_string().starts_with(text), "{late}");
    let interrupted = engine.call().unless(&|| true);
    assert_matches!(
        interrupted.resize(Cache::Device, 0),
        Err(Error::Interrupted)
    );
    slot.bytes_mut().unwrap().fill(1);
    slot.commit();
    engine.resize(Cache::Device, 0, LONG).unwrap();
    assert_matches!(engine.call().produce(2, MIB), Err(Error::NoRoom { .. }));
    assert_restores(&engine, 1);
}

#[test]
fn a_resize_waits_for_another_no_longer_than_wanted() {
    let device = open(Choice::Host).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .device_cache(4 * MIB)
        .host_cache(4 * MIB)
        .scratch(scratch.path())
        .build()
        .unwrap();
    let slot = engine.call().produce(1, MIB).unwrap();
    let limit = || engine.metrics().tiers[0].limit;
    let whole = limit();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| engine.resize(Cache::Device, 0, LONG));
        while limit() == whole {
            std::thread::yield_now();
        }
        let late = engine.resize(Cache::Host, MIB, Duration::from_millis(20));
        assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
        let interrupted = engine.call().unless(&|| true).resize(Cache::Host, MIB);
        assert!(
            matches!(interrupted, Err(Error::Interrupted)),
            "{interrupted:?}"
        );
        assert!(!first.is_finished());
        drop(slot);
        first.join().unwrap().unwrap();
    });
    engine.resize(Cache::Host, MIB, LONG).unwrap();
}

#[test]
fn memory_that_was_not_given_back_in_time_stays_until_it_is_empty() {
    let device = host::open(host::Options::default().device_bytes(8 << 20)).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .tier(Tier::device(4 * MIB).growth(DeviceGrowth::IncrementalVmm { chunk: Some(MIB) }))
        .scratch(scratch.path())
        .build()
        .unwrap();
    (0..3).for_each(|version| checkpoint(&engine, version));
    let mut slot = engine.call().produce(3, MIB).unwrap();
    let short = Duration::from_millis(20);
    for bytes in [0, 2 * MIB, MIB] {
        let late = engine.resize(Cache::Device, bytes, short);
        assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
    }
    slot.bytes_mut().unwrap().fill(3);
    slot.commit();
    engine.resize(Cache::Device, 2 * MIB, LONG).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 6 << 20);
    (0..4).for_each(|version| assert_restores(&engine, version));
    engine.resize(Cache::Device, 4 * MIB, LONG).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 4 << 20);
    (0..4).for_each(|version| assert_restores(&engine, version));
}

#[test]
fn a_refused_resize_changes_nothing() {
    let device = open(Choice::Host).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let pool = HostPool::in_process(PoolOptions::new(64 << 20)).unwrap();
    let engine = Engine::builder(&device)
        .tier(Tier::host(0).pool(&pool))
        .scratch(scratch.path())
        .build()
        .unwrap();
    for refused in [
        engine.resize(Cache::Host, 0, LONG),
        engine.resize(Cache::Device, 0, LONG),
    ] {
        assert!(matches!(refused, Err(Error::NotResizable { .. })));
    }
    let direct = Engine::builder(&device)
        .tier(Tier::device(4 * MIB).growth(DeviceGrowth::DirectAlloc))
        .scratch(scratch.path())
        .build()
        .unwrap();
    checkpoint(&direct, 1);
    let refused = direct.resize(Cache::Device, MIB, LONG);
    assert_matches!(
        refused,
        Err(Error::NotResizable {
            cache: "device",
            ..
        })
    );
    assert_eq!(direct.metrics().tiers[0].limit, 4 << 20);
    assert_restores(&direct, 1);
}

/// Bytes of a cache that takes long to grow, a page at a time.
const SLOW: usize = 512 * MIB;

fn growing(device: &tierflow_device::Device) -> Engine {
    let growth = DeviceGrowth::IncrementalVmm { chunk: Some(4096) };
    let cache = Tier::device(SLOW).growth(growth).evict_while_growing(true);
    let engine = Engine::builder(device).tier(cache).host_cache(4 * MIB);
    engine.build().unwrap()
}

fn usable_at_the_end(engine: &Engine) -> usize {
    loop {
        let device = engine.reports().device.unwrap();
        if device.finished {
            return device.usable;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_cache_that_grows_goes_on_while_another_is_resized() {
    let engine = growing(&open(Choice::Host).unwrap());
    engine.resize(Cache::Host, 0, LONG).unwrap();
    assert_eq!(usable_at_the_end(&engine), SLOW);
    // The limit follows a moment after the arena.
    let begun = std::time::Instant::now();
    while engine.metrics().tiers[0].limit < SLOW as u64 {
        assert!(begun.elapsed() < LONG, "{:?}", engine.metrics().tiers[0]);
        std::thread::yield_now();
    }
}

#[test]
fn a_cache_that_is_resized_while_it_grows_grows_no_more() {
    let engine = growing(&open(Choice::Host).unwrap());
    let slot = engine.call().produce(0, 4096).unwrap();
    let late = engine.resize(Cache::Device, 0, Duration::ZERO);
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
    let usable = engine.reports().device.unwrap().usable;
    assert_eq!(usable_at_the_end(&engine), usable);
    slot.commit();
    engine.resize(Cache::Device, 0, LONG).unwrap();
    assert_eq!(engine.reports().device.unwrap().usable, 0);
    assert_eq!(engine.versions(), [0]);
}
