//! The engine refuses regions that exceed their memory, whatever else is passed with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error, Region, RegionMut};

/// Returns a range that may end before it starts, as wrong arithmetic makes it.
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

/// A checkpoint larger than the device cache begins there and continues in the host's.
#[test]
fn a_checkpoint_larger_than_a_cache_is_spread_and_comes_back() {
    const MIB: usize = 1 << 20;
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .device_cache(16 * MIB)
        .host_cache(64 * MIB)
        .build()
        .unwrap();
    let field = device.alloc(16 * MIB + 4321).unwrap();
    let rest: Vec<u8> = (0..20 * MIB + 77)
        .map(|at| ((at * 31) >> 9) as u8)
        .collect();
    {
        let mut lent = field.lend_mut(0..field.len()).unwrap();
        let bytes = lent.bytes_mut().unwrap();
        let each = bytes.iter_mut().zip(0_usize..);
        each.for_each(|(byte, at)| *byte = ((at * 7) >> 5) as u8);
    }
    let regions = [Region::from(&field), Region::from(rest.as_slice())];
    engine.checkpoint(1, &regions).unwrap();
    let used: Vec<_> = engine
        .metrics()
        .tiers
        .iter()
        .map(|tier| tier.used)
        .collect();
    assert!(used.iter().all(|&bytes| bytes > 0), "{used:?}");
    let back = device.alloc(field.len()).unwrap();
    let mut behind = vec![0; rest.len()];
    let mut regions = [
        RegionMut::from(&back),
        RegionMut::from(behind.as_mut_slice()),
    ];
    engine.restore(1, &mut regions).unwrap();
    assert!(behind == rest, "the second region came back wrong");
    let all = 0..field.len();
    let (back, field) = (back.lend(all.clone()).unwrap(), field.lend(all).unwrap());
    assert!(
        back.bytes().unwrap() == field.bytes().unwrap(),
        "the first one did"
    );
}
