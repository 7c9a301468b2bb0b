//! Tests that every strategy must pass on every device.

#![allow(clippy::unwrap_used, reason = "it is all tests")]

use std::time::Instant;

use tierflow_device::{Device, Kind, Memory, Transfer};
use tierflow_testing::noise;
use tierflow_tier_alloc::{
    Baseline, DeviceArena, DeviceGrowth, Error, HostArena, HostGrowth, Ring,
};

const MIB: usize = 1 << 20;

fn set(device: &Device, memory: &Memory, bytes: &[u8]) {
    let mut loan = memory.lend_mut(0..bytes.len()).unwrap();
    device.stream().unwrap().write(bytes, &mut loan).unwrap();
}

fn get(device: &Device, memory: &Memory, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let loan = memory.lend(0..len).unwrap();
    device.stream().unwrap().read(&loan, &mut bytes).unwrap();
    bytes
}

pub(crate) fn wait(transfer: Option<Transfer>) {
    transfer
        .map_or(Ok(()), |transfer| transfer.wait().result)
        .unwrap();
}

/// Tests every host strategy: bytes are written while the arena grows, and read during and after the growth.
pub(crate) fn host_strategies(device: &Device, capacity: usize) {
    for growth in HostGrowth::all() {
        let start = Instant::now();
        if growth.needs_cuda() && device.info().kind != Kind::Cuda {
            let strategy = growth.name();
            let refused = HostArena::start(device, capacity, growth).unwrap_err();
            assert_eq!(refused, Error::NotCuda { strategy });
            continue;
        }
        let arena = HostArena::start(device, capacity - 5, growth).unwrap();
        assert!((capacity - 5..=capacity + 32 * MIB).contains(&arena.capacity()));
        carries(device, &arena);
        arena.wait_grown();
        reports(device, &arena, growth);
        println!("{:8.1?}  {growth}", start.elapsed());
        drop(arena);

        // An arena that is dropped while it grows ends, and its lent bytes stay.
        let arena = HostArena::start(device, capacity, growth).unwrap();
        let mut kept = arena.lend_mut(0..MIB).unwrap();
        drop(arena);
        kept.bytes_mut().unwrap().fill(7);
        assert!(kept.bytes().unwrap().iter().all(|&b| b == 7), "{growth}");
    }
}

/// Writes and reads slots of odd places and sizes from the end to the start, against the direction of the growth.
fn carries(device: &Device, arena: &HostArena) {
    let stream = device.stream().unwrap();
    let slots = 6;
    let step = arena.capacity() / slots;
    let len = step - 4097;
    let (source, target) = (device.alloc(len).unwrap(), device.alloc(len).unwrap());
    for slot in (0..slots).rev() {
        set(device, &source, &noise(slot as u64, len));
        let at = slot * step + 1 + slot;
        let flush = arena.transferring(at..at + len);
        let src = source.lend(0..len).unwrap();
        wait(arena.begin_copy_in(&stream, src, at).unwrap());
        drop(flush);
    }
    for slot in 0..slots {
        let at = slot * step + 1 + slot;
        let _fetch = arena.gate().enter_transfer();
        let dst = target.lend_mut(0..len).unwrap();
        wait(arena.begin_copy_out(&stream, at, dst).unwrap());
        let seen = get(device, &target, len);
        assert!(seen == noise(slot as u64, len), "slot {slot}");
        let loan = arena.lend(at..at + len).unwrap();
        assert!(loan.bytes().unwrap() == seen, "slot {slot} in place");
    }
    let beyond = arena.lend(0..arena.capacity() + 1).unwrap_err();
    assert!(matches!(beyond, Error::BeyondCapacity { .. }), "{beyond}");
}

fn reports(device: &Device, arena: &HostArena, growth: HostGrowth) {
    let report = arena.report();
    assert_eq!(report.strategy, growth.name());
    assert_eq!((report.failed.as_ref(), report.finished), (None, true));
    assert_eq!(report.usable, report.capacity);
    let driver_sees_to_it = growth == Baseline::Managed.into();
    let touched = if driver_sees_to_it {
        0
    } else {
        report.capacity
    };
    assert_eq!(report.touched, touched, "{growth}");
    if device.info().kind == Kind::Cuda && !driver_sees_to_it {
        assert_eq!(report.pinned, report.capacity, "{:?}", report.why_unpinned);
    }
    if !driver_sees_to_it {
        let all = report.pinned == report.capacity;
        assert_eq!(all, report.why_unpinned.is_none(), "{growth}");
    }
    assert!(!report.timeline.is_empty(), "{growth}");
    for pair in report.timeline.windows(2) {
        assert!(pair[0].at <= pair[1].at && pair[0].touched <= pair[1].touched);
        assert!(pair[0].pinned <= pair[1].pinned, "{growth}");
    }
    assert!(report.huge_pages.is_none_or(|huge| huge <= report.capacity));
    if growth == Baseline::IncrementalMemset.into() {
        assert_eq!(report.huge_pages, Some(0), "4 KiB pages were asked for");
    }
}

/// Tests every device strategy: the bytes stay, and the report is right.
pub(crate) fn device_strategies(device: &Device, capacity: usize) {
    let chunk = Some(2 * device.info().granularity);
    let growths = [
        DeviceGrowth::DirectAlloc,
        DeviceGrowth::default(),
        DeviceGrowth::IncrementalVmm { chunk },
    ];
    for growth in growths {
        let arena = DeviceArena::start(device, capacity, growth).unwrap();
        let len = arena.capacity();
        arena.wait_usable(len).unwrap();
        let bytes = noise(7, len);
        set(device, arena.memory(), &bytes);
        assert!(get(device, arena.memory(), len) == bytes, "{growth:?}");
        let report = arena.report();
        assert_eq!(report.strategy, growth.name());
        assert!(report.finished && report.failed.is_none());
        assert_eq!((report.asked, report.usable), (capacity, report.capacity));
        let mapped: usize = report.timeline.iter().map(|chunk| chunk.bytes).sum();
        assert_eq!(mapped, report.capacity, "{growth:?}");
    }
}

/// Tests copies through the ring in both directions over odd borders.
pub(crate) fn ring(device: &Device) {
    let ring = Ring::start(device, 3).unwrap();
    let len = 5 * Ring::SLOT + 77;
    let host = device.reserve_host(len + 9).unwrap();
    let inner = device.alloc(len).unwrap();
    for seed in 0..3 {
        let bytes = noise(seed, len);
        set(device, &inner, &bytes);
        let src = inner.lend(0..len).unwrap();
        let dst = host.memory().lend_mut(9..len + 9).unwrap();
        ring.copy(src, dst).unwrap();
        let back = host.memory().lend(9..len + 9).unwrap();
        assert!(back.bytes().unwrap() == bytes);
        set(device, &inner, &vec![0; len]);
        ring.copy(back, inner.lend_mut(0..len).unwrap()).unwrap();
        assert!(get(device, &inner, len) == bytes);
    }
    assert_eq!((inner.live_loans(), host.memory().live_loans()), (0, 0));
    let long = inner.lend(0..2).unwrap();
    let short = host.memory().lend_mut(0..1).unwrap();
    assert!(ring.copy(long, short).is_err());
    assert!(Ring::start(device, 0).is_err());
}
