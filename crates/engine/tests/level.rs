//! The memory of an engine that writes versions for a long time does not grow.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Region};
use tierflow_store::Retention;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held by a test while it counts, as the allocator counts for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Versions between two measurements of the memory, and number of measurements.
const VERSIONS: u64 = 50;
const LOOKS: usize = 960;

/// Bytes that a version may take permanently. An entry of a map of numbers takes 24. Up to 256 versions that a tier discarded are removed
/// together, so the held memory differs by some 8 bytes a version from one measurement to the next.
const MOST_BYTES: i64 = 16;

fn held() -> i64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}

/// Lets `step` take in many versions, and asserts that the memory does not grow in both of the last two quarters. A single quarter may grow:
/// discarded versions are removed many at a time, and a late removal takes memory until then. 0.5 MB were seen on busy cores.
fn stays_level(mut step: impl FnMut(u64)) {
    let mut next = 0;
    let mut looks = [0; LOOKS];
    for look in &mut looks {
        for _ in 0..VERSIONS {
            step(next);
            next += 1;
        }
        *look = held();
    }
    let quarter = LOOKS / 4;
    // The memory that stays is the least that was held in a quarter.
    let least = |looks: &[i64]| looks.iter().copied().min().unwrap();
    let quarters: Vec<i64> = looks.chunks(quarter).map(least).collect();
    let grown = quarters[1..].windows(2).map(|pair| pair[1] - pair[0]);
    let grown = grown.min().unwrap();
    let most = MOST_BYTES * quarter as i64 * VERSIONS as i64;
    assert!(grown <= most, "{grown} bytes more, twice: {quarters:?}");
}

fn engine(build: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Engine {
    let builder = Engine::builder(&open(Choice::Host).unwrap());
    build(builder.host_cache(8 << 20)).build().unwrap()
}

/// Returns the bytes of a version. Every eleventh has 20 times as many.
fn size_of(version: u64) -> usize {
    let large = if version.is_multiple_of(11) { 20 } else { 1 };
    8 * (1 + version as usize * 7919 % 1500) * large
}

#[test]
fn versions_that_a_retention_gives_up_take_no_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory
    } else {
        Path::new("/tmp")
    };
    let directory = tempfile::tempdir_in(place).unwrap();
    let path = |name: &str| directory.path().join(name);
    let engine = engine(|builder| {
        let builder = builder.retention(Retention::newest(8));
        builder.node_local(path("node")).external(path("external"))
    });
    let bytes = vec![7; 1 << 20];
    stays_level(|version| {
        let region = Region::from(&bytes[..size_of(version)]);
        engine.checkpoint(version, &[region]).unwrap();
        match version % 4 {
            0 => engine.wait().unwrap(),
            1 => {}
            _ => engine.call().wait_version(version).unwrap(),
        }
    });
    engine.close().unwrap();
}

#[test]
fn versions_that_were_restored_or_discarded_take_no_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = engine(|builder| builder);
    let (bytes, mut into) = (vec![7; 1 << 20], vec![0; 1 << 20]);
    stays_level(|version| {
        let size = size_of(version);
        // The numbers have gaps, as those of VELOC's checkpoints do.
        let version = 3 * version;
        engine.hint([version]);
        let region = Region::from(&bytes[..size]);
        engine.checkpoint(version, &[region]).unwrap();
        if version.is_multiple_of(2) {
            let into = &mut into[..size];
            engine.restore(version, &mut [into.into()]).unwrap();
        }
        engine.discard(version).unwrap();
    });
    engine.close().unwrap();
}
