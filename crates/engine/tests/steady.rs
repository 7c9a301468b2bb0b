//! Calls in steady state, in which no transfer is due and no call waits, allocate nothing. The file has one test, as the allocator counts
//! for the whole process.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::ops::Range;
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Region, RegionMut};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Takes versions in, each of one region, and restores each at once.
fn checkpoint_and_restore(engine: &Engine, versions: Range<u64>) {
    let (bytes, mut into) = ([7; 32], [0; 32]);
    for version in versions {
        let regions = [Region::from(&bytes[..])];
        engine.checkpoint(version, &regions).unwrap();
        into.fill(0);
        let mut regions = [RegionMut::from(&mut into[..])];
        engine.restore(version, &mut regions).unwrap();
        assert_eq!(into, bytes);
    }
}

#[test]
fn a_checkpoint_and_its_restore_allocate_nothing() {
    let device = open(Choice::Host).unwrap();
    // With a second tier, the engine would flush versions ahead, and each transfer allocates.
    let engine = Engine::builder(&device)
        .device_cache(1 << 20)
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    // At first, tables of the plan and of the statistics grow.
    checkpoint_and_restore(&engine, 0..2_100);
    let before = ALLOCATOR.stats();
    checkpoint_and_restore(&engine, 2_100..4_100);
    let taken = ALLOCATOR.stats() - before;
    assert_eq!((taken.allocations, taken.reallocations), (0, 0));
}
