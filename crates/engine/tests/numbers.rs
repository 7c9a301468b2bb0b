//! Tests of version numbers: several users of one engine reserve them, and free numbers serve new versions.

#![allow(clippy::unwrap_used)]

mod groups;
mod history;
mod home;

use groups::together;
use history::{checkpoint, host, restored};
use home::home;
use std::path::Path;
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Element, Engine, EngineBuilder, Error, Group, HopMetrics, Region, Version};
use tierflow_testing::assert_matches;

const LENGTH: usize = 64;

fn builder() -> EngineBuilder {
    Engine::builder(&host()).host_cache(1 << 20)
}

/// Returns the engines of two ranks in a run.
fn group(far: &Path, run: u64) -> Vec<Engine> {
    together(2, |rank| {
        let group = Group::new(rank, 2, run);
        builder().external(far).group(group).build().unwrap()
    })
}

fn produce(engine: &Engine, version: Version) {
    let mut slot = engine.call().produce(version, LENGTH).unwrap();
    slot.bytes_mut().unwrap().fill(7);
    slot.commit();
}

/// Returns the names of a version's regions.
fn names(engine: &Engine, version: Version) -> Vec<String> {
    let regions = engine.regions(version).unwrap().into_iter();
    regions.map(|region| region.name).collect()
}

#[test]
fn reserved_numbers_are_above_all_that_were_had_hinted_or_reserved() {
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device).host_cache(1 << 20);
    let engine = engine.build().unwrap();
    assert_eq!(engine.reserve(3).unwrap(), 0..3);
    assert_eq!(engine.reserve(0).unwrap(), 3..3);
    engine.checkpoint(6, &[[1u8; 8].as_slice().into()]).unwrap();
    engine.discard(6).unwrap();
    assert_eq!(engine.reserve(1).unwrap(), 7..8);
    engine.hint([40, 20]);
    assert_eq!(engine.reserve(2).unwrap(), 41..43);
    // Threads that reserve at once never get the same number.
    let ranges: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..100)
                        .map(|_| engine.reserve(5).unwrap())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut numbers: Vec<_> = ranges.into_iter().flatten().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (43..43 + 2000).collect::<Vec<_>>());
    assert_matches!(
        engine.reserve(u64::MAX),
        Err(Error::NoNumbers { count: u64::MAX })
    );
    assert_eq!(engine.reserve(1).unwrap(), 2043..2044);
}

/// The first version with the number has no bytes. The second one is produced in place.
#[test]
fn a_number_of_a_checkpoint_without_bytes_serves_one_with_bytes() {
    let home = home();
    for engine in group(&home.far, 1) {
        engine.checkpoint(5, &[]).unwrap();
        engine.checkpoint(6, &[]).unwrap();
        engine.wait().unwrap();
    }
    for engine in group(&home.far, 2) {
        assert_eq!(engine.restore_size(5).unwrap(), 0);
        engine.discard(5).unwrap();
        produce(&engine, 5);
        assert_eq!(engine.restore_size(5).unwrap(), LENGTH as u64);
        drop(engine.call().consume(5).unwrap());
        engine.wait().unwrap();
    }
    for engine in group(&home.far, 3) {
        assert_eq!(restored(&engine, 5).unwrap(), [7; LENGTH]);
        assert_eq!(engine.restore_size(6).unwrap(), 0);
    }
}

/// The plan counts one byte for a version without bytes, and its record has none.
#[test]
fn a_version_without_bytes_is_prefetched() {
    let home = home();
    for engine in group(&home.far, 1) {
        engine.checkpoint(6, &[]).unwrap();
        engine.wait().unwrap();
    }
    for engine in group(&home.far, 2) {
        engine.hint([6]);
        engine.hints().prefetch_start();
        let sum = |of: fn(&HopMetrics) -> u64| engine.metrics().hops.iter().map(of).sum::<u64>();
        while sum(|hop| hop.transfers + hop.failed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sum(|hop| hop.failed), 0);
        assert_eq!(engine.restore_size(6).unwrap(), 0);
    }
}

/// The first version with the number fails after the plan has granted its place.
#[test]
fn the_regions_of_a_checkpoint_that_failed_are_not_those_of_the_next() {
    let home = home();
    let memory = host().alloc(LENGTH).unwrap();
    let engine = builder().external(&home.far).build().unwrap();
    let lent = memory.lend_mut(0..LENGTH).unwrap();
    let region = Region::from(&memory).array("field", Element::F64, &[8]);
    assert_matches!(engine.checkpoint(1, &[region]), Err(Error::Device(_)));
    drop(lent);
    produce(&engine, 1);
    assert_eq!(names(&engine, 1), ["checkpoint"]);
    engine.wait().unwrap();
    drop(engine);
    let engine = builder().external(&home.far).build().unwrap();
    assert_eq!(names(&engine, 1), ["checkpoint"]);
}

/// The copy of the first version with the number is still on external storage when the second one comes.
#[test]
fn the_regions_of_a_discarded_version_are_not_those_of_the_next() {
    let home = home();
    let engine = || builder().node_local(&home.near).external(&home.far);
    let first = engine().build().unwrap();
    let bytes = [1; LENGTH];
    for version in [4, 5] {
        let region = Region::from(&bytes[..]).array("field", Element::F64, &[8]);
        first.checkpoint(version, &[region]).unwrap();
    }
    first.wait().unwrap();
    drop(first);
    let second = engine().build().unwrap();
    assert_eq!(names(&second, 5), ["field"]);
    second.discard(5).unwrap();
    checkpoint(&second, 5, &bytes);
    assert_eq!(names(&second, 5), ["checkpoint"]);
    second.wait().unwrap();
    drop(second);
    let third = engine().build().unwrap();
    assert_eq!(names(&third, 5), ["checkpoint"]);
    assert_eq!(names(&third, 4), ["field"]);
}
