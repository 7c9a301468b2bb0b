//! Slots end behind a stream whose work ends late, as kernels on a GPU do: the caller runs ahead of the device, and the memory of a
//! consumed version is free only when the stream has read it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};
use tierflow_device::host;
use tierflow_engine::{AfterRestore, Cause, Engine, Error, HopMetrics, Region, Version};

/// Bytes of a chunk. A transfer carries fewer, so two workers fetch to the memory of one consumed chunk.
const CHUNK: usize = 24 << 20;
const CHUNKS: u64 = 20;
/// Chunks that the device cache holds.
const CACHED: usize = 4;

/// Returns the transfers from host memory so far; `None` before the first one.
fn upwards(engine: &Engine) -> Option<HopMetrics> {
    let mut hops = engine.metrics().hops.into_iter();
    hops.find(|hop| (hop.from, hop.to) == ("host", "device"))
}

/// Waits until `chunks` chunks in all have come to the device, so that no transfer is under way and `consume` would lend in place.
fn wait_for_arrivals(engine: &Engine, chunks: u64) {
    let begun = Instant::now();
    let bytes = chunks * CHUNK as u64;
    while upwards(engine).is_none_or(|hop| hop.bytes < bytes) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the prefetcher stopped: {:?}",
            upwards(engine)
        );
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn prefetching_goes_on_behind_slots_that_end_late() {
    let device = host::open(host::Options::default()).unwrap();
    let (stream, ends) = host::late_stream(&device).unwrap();
    let engine = Engine::builder(&device)
        .device_cache(CACHED * CHUNK)
        .host_cache(CHUNKS as usize * CHUNK)
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    for shot in 0..2 {
        let versions = shot * CHUNKS..(shot + 1) * CHUNKS;
        engine.hint(versions.clone().rev());
        for version in versions.clone() {
            let mut slot = engine.call().produce(version, CHUNK).unwrap();
            slot.bytes_mut().unwrap().fill(version as u8);
            slot.commit_after(&stream).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            assert!(ends.reach_next());
            // Flushes of several versions may end in any order, and the device cache would then evict another version than the oldest.
            engine.wait().unwrap();
        }
        engine.hints().prefetch_start();
        let fetched = CHUNKS - CACHED as u64;
        for (consumed, version) in versions.rev().enumerate() {
            let consumed = consumed as u64;
            if consumed > 0 {
                let there = consumed.min(fetched);
                wait_for_arrivals(&engine, shot * fetched + there);
            }
            consume(&engine, version, &stream);
            // The engine wants the memory while the stream still reads it.
            std::thread::sleep(Duration::from_millis(2));
            assert!(ends.reach_next());
        }
    }
    assert_eq!(upwards(&engine).map(|hop| hop.failed), Some(0));
    assert_eq!(
        engine.metrics().times(Cause::Arrival).count,
        0,
        "late arrivals"
    );
}

fn consume(engine: &Engine, version: Version, stream: &tierflow_device::Stream) {
    let slot = engine.call().consume(version).unwrap();
    assert!(slot.is_cached(), "version {version} is not on the device");
    let bytes = slot.bytes().unwrap();
    assert!(bytes.iter().all(|&byte| byte == version as u8));
    slot.finish_after(stream).unwrap();
}

/// A driver without memory for an event can still be asked to wait for a stream. Nobody gets the bytes before the stream is done.
#[test]
fn a_slot_whose_end_has_no_event_waits_for_its_stream() {
    let device = host::open(host::Options::default()).unwrap();
    let (stream, ends) = host::late_stream(&device).unwrap();
    let engine = Engine::builder(&device).device_cache(CHUNK);
    let engine = engine.after_restore(AfterRestore::Discard).build().unwrap();
    ends.refuse(false);
    type End = fn(&Engine, &tierflow_device::Stream);
    let all: [End; 4] = [
        |engine, stream| {
            let slot = engine.call().produce(0, CHUNK).unwrap();
            slot.give_up_after(stream).unwrap();
        },
        |engine, stream| {
            let slot = engine.call().produce(1, CHUNK).unwrap();
            slot.commit_after(stream).unwrap();
        },
        |engine, stream| {
            let slot = engine.call().consume(1).unwrap();
            slot.give_back_after(stream).unwrap();
        },
        |engine, stream| {
            let slot = engine.call().consume(1).unwrap();
            slot.finish_after(stream).unwrap();
        },
    ];
    for end in all {
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| end(&engine, &stream));
            while !ends.reach_next() {
                assert!(!ended.is_finished(), "the slot did not wait");
                std::thread::yield_now();
            }
        });
    }
    assert!(engine.versions().is_empty());
}

/// If the driver cannot wait either, nobody knows when the stream is done: the bytes stay lent, so nobody overwrites them.
#[test]
fn a_slot_whose_end_cannot_be_told_keeps_its_bytes() {
    for reads in [false, true] {
        let device = host::open(host::Options::default()).unwrap();
        let (stream, ends) = host::late_stream(&device).unwrap();
        let engine = Engine::builder(&device).device_cache(CHUNK);
        let engine = engine.after_restore(AfterRestore::Discard).build().unwrap();
        ends.refuse(true);
        let slot = engine.call().produce(0, CHUNK).unwrap();
        let ended = if reads {
            slot.commit();
            engine.call().consume(0).unwrap().finish_after(&stream)
        } else {
            slot.commit_after(&stream)
        };
        assert!(matches!(ended, Err(Error::Device(_))), "{ended:?}");
        let produced = engine.call().produce(1, CHUNK);
        assert!(
            matches!(produced, Err(Error::NoRoom { .. })),
            "{produced:?}"
        );
    }
}

/// Small versions become durable in groups, and a group waits for no kernel.
#[test]
fn a_small_version_is_durable_while_a_kernel_writes_another() {
    let device = host::open(host::Options::default()).unwrap();
    let (stream, ends) = host::late_stream(&device).unwrap();
    let external = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device).host_cache(CHUNK);
    let engine = engine.external(external.path()).build().unwrap();
    let patience = Duration::from_secs(20);
    engine
        .call()
        .produce(1, 4096)
        .unwrap()
        .commit_after(&stream)
        .unwrap();
    engine
        .checkpoint(2, &[Region::from(&[2; 4096][..])])
        .unwrap();
    let durable = engine.call().within(patience).wait_version(2);
    while ends.reach_next() {}
    durable.unwrap();
    engine.wait().unwrap();
    assert!(engine.is_durable(1));
}
