//! Regions that are not in their memory: refused, whatever else is passed with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error, Region, RegionMut};

/// A range as arithmetic that went wrong makes it.
fn range(start: usize, end: usize) -> Range<usize> {
    Range { start, end }
}

#[test]
fn a_region_that_is_not_in_its_memory_is_refused() {
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .host_cache(1 << 20)
        .build()
        .unwrap();
    let memory = device.alloc(4096).unwrap();
    let good = Region::Memory(&memory, 0..100);
    engine
        .checkpoint(7, &[good.clone(), Region::Memory(&memory, 4096..4096)])
        .unwrap();
    let absurd = [
        range(200, 100),
        range(usize::MAX, 0),
        range(5000, 5000),
        range(5000, 4000),
        range(0, 4097),
        range(0, usize::MAX),
    ];
    for range in absurd {
        let asked = range.clone();
        let is_told = |result: Result<(), Error>| match result {
            Err(Error::Region {
                index: 1,
                range,
                memory: 4096,
            }) => range == asked,
            other => panic!("{asked:?}: {other:?}"),
        };
        let regions = [good.clone(), Region::Memory(&memory, range.clone())];
        assert!(is_told(engine.checkpoint(1, &regions)));
        let mut regions = [
            RegionMut::Memory(&memory, 0..100),
            RegionMut::Memory(&memory, range.clone()),
        ];
        assert!(is_told(engine.restore(7, &mut regions)));
    }
    assert_eq!(engine.versions(), [7], "nothing was taken in");
    engine.checkpoint(1, &[good]).unwrap();
}
