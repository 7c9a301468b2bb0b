//! Tests of both arenas on a machine with a GPU:
//! `cargo test -p tierflow-tier-alloc --test cuda -- --ignored --nocapture`.

mod suite;

use std::time::{Duration, Instant};

use tierflow_device::{Choice, Device, open};
use tierflow_tier_alloc::{
    Baseline, DeviceArena, DeviceGrowth, Error, HostArena, HostGrowth, Ring,
};

const GIB: usize = 1 << 30;

fn gpu() -> tierflow_device::Result<Device> {
    open(Choice::Cuda { ordinal: 0 })
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_device_arena_is_usable_while_it_grows() {
    let device = gpu().unwrap();
    // The driver takes some memory at the first mapping, and keeps it.
    drop(DeviceArena::start(&device, GIB, DeviceGrowth::default()).unwrap());
    let before = device.free_bytes().unwrap();
    let stream = device.stream().unwrap();
    let start = Instant::now();
    let arena = DeviceArena::start(&device, 8 * GIB, DeviceGrowth::default()).unwrap();
    println!("started after {:?}", start.elapsed());
    stream
        .fill(&mut arena.lend_mut(0..1 << 20).unwrap(), 1)
        .unwrap();
    println!("1 MiB filled after {:?}", start.elapsed());
    arena.wait_usable(arena.capacity()).unwrap();
    println!("8 GiB mapped after {:?}", start.elapsed());
    // The copy crosses every border between two chunks.
    stream
        .fill(&mut arena.lend_mut(1..8 * GIB).unwrap(), 2)
        .unwrap();
    let mut seen = vec![0; 1 << 20];
    stream
        .read(&arena.lend(0..1 << 20).unwrap(), &mut seen)
        .unwrap();
    assert!(seen[0] == 1 && seen[1..].iter().all(|&byte| byte == 2));
    drop(arena);
    assert_eq!(device.free_bytes().unwrap(), before);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_device_arena_larger_than_the_gpu_says_so() {
    let device = gpu().unwrap();
    let twice = device.info().total_bytes as usize * 2;
    let arena = DeviceArena::start(&device, twice, DeviceGrowth::default()).unwrap();
    let error = arena.wait_usable(twice).unwrap_err();
    assert!(matches!(error, Error::Growth { .. }), "{error}");
    assert!(arena.lend_mut(0..arena.usable()).is_ok());
    println!("{error}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_host_arena_gets_pinned_while_copies_run() {
    let device = gpu().unwrap();
    let stream = device.stream().unwrap();
    let (len, slots) = (128 << 20, 32);
    let source = device.alloc(len).unwrap();
    let target = device.alloc(len).unwrap();
    let arena = HostArena::start(&device, slots * len, HostGrowth::default()).unwrap();
    let mut worst = Duration::ZERO;
    let mut copies = 0;
    while !arena.is_grown() {
        let _pass = arena.gate().enter();
        let start = Instant::now();
        let pair = (
            source.lend(0..len).unwrap(),
            target.lend_mut(0..len).unwrap(),
        );
        stream.copy_all([pair]).unwrap();
        worst = worst.max(start.elapsed());
        copies += 1;
    }
    let report = arena.report();
    let took = report.timeline.last().map(|sample| sample.at);
    println!("4 GiB grown in {took:?}; {copies} copies of 128 MiB meanwhile, the worst {worst:?}");
    println!("{} bytes in huge pages", report.huge_pages.unwrap_or(0));
    assert_eq!(
        (report.pinned, report.why_unpinned),
        (arena.capacity(), None)
    );

    // Copies of all slots cross every border between two pieces.
    for slot in 0..slots {
        let range = slot * len..(slot + 1) * len;
        let start = Instant::now();
        stream
            .fill(&mut source.lend_mut(0..len).unwrap(), slot as u8 + 1)
            .unwrap();
        let out = (
            source.lend(0..len).unwrap(),
            arena.lend_mut(range.clone()).unwrap(),
        );
        stream.copy_all([out]).unwrap();
        if slot == 0 {
            println!("128 MiB to the host in {:?}", start.elapsed());
        }
        assert!(
            arena
                .lend(range)
                .unwrap()
                .bytes()
                .unwrap()
                .iter()
                .all(|&b| b == slot as u8 + 1)
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_host_strategy_carries_bytes_and_reports() {
    suite::host_strategies(&gpu().unwrap(), 512 << 20);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_device_strategy_carries_bytes_and_reports() {
    suite::device_strategies(&gpu().unwrap(), 300 << 20);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_ring_copies_both_ways() {
    let device = gpu().unwrap();
    suite::ring(&device);
    for copiers in [1, 2, 4, 8] {
        let ring = Ring::start(&device, copiers).unwrap();
        let len = 1 << 30;
        let (inner, outer) = (
            device.alloc(len).unwrap(),
            device.reserve_host(len).unwrap(),
        );
        for what in ["untouched", "touched"] {
            let start = Instant::now();
            let pair = (
                inner.lend(0..len).unwrap(),
                outer.memory().lend_mut(0..len).unwrap(),
            );
            ring.copy(pair.0, pair.1).unwrap();
            let rate = len as f64 / start.elapsed().as_secs_f64() / 1e9;
            println!("{copiers} copiers into {what} memory: {rate:.1} GB/s");
        }
        let start = Instant::now();
        let pair = (
            outer.memory().lend(0..len).unwrap(),
            inner.lend_mut(0..len).unwrap(),
        );
        ring.copy(pair.0, pair.1).unwrap();
        let rate = len as f64 / start.elapsed().as_secs_f64() / 1e9;
        println!("{copiers} copiers back: {rate:.1} GB/s");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_first_chunks_say_how_large_the_others_are() {
    let device = gpu().unwrap();
    let arena = DeviceArena::start(&device, 16 * GIB, DeviceGrowth::default()).unwrap();
    arena.wait_usable(16 * GIB).unwrap();
    for chunk in arena.report().timeline {
        let rate = chunk.bytes as f64 / chunk.took.as_secs_f64() / 1e9;
        println!(
            "{:8.1?}: {} MiB in {:.1?}, {rate:.0} GB/s",
            chunk.at,
            chunk.bytes >> 20,
            chunk.took
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn managed_memory_stays_below_what_is_free() {
    let device = gpu().unwrap();
    let free = device.free_bytes().unwrap() as usize;
    let too_much = HostArena::start(&device, free + GIB, Baseline::Managed);
    assert!(matches!(too_much, Err(Error::Device(_))), "{too_much:?}");
    let one = HostArena::start(&device, free / 3 * 2, Baseline::Managed).unwrap();
    let two = HostArena::start(&device, free / 3 * 2, Baseline::Managed);
    assert!(two.is_err(), "four thirds are managed");
    drop(one);
    HostArena::start(&device, free / 3 * 2, Baseline::Managed).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn arenas_give_memory_back_and_take_it_again() {
    let device = gpu().unwrap();
    let stream = device.stream().unwrap();
    let before = device.free_bytes().unwrap();
    let fast = DeviceArena::start(&device, 4 * GIB, DeviceGrowth::default()).unwrap();
    let large = HostArena::start(&device, 4 * GIB, HostGrowth::default()).unwrap();
    stream
        .fill(&mut fast.lend_mut(0..4 * GIB).unwrap(), 3)
        .unwrap();
    large.wait_grown();
    let source = fast.lend(0..GIB).unwrap();
    suite::wait(large.begin_copy_in(&stream, source, 0).unwrap());
    assert!(fast.resize(GIB).unwrap() <= 2 * GIB);
    assert!(before - device.free_bytes().unwrap() < 3 * GIB as u64);
    assert_eq!(large.resize(GIB).unwrap(), GIB);
    assert_eq!(large.pinned(), GIB);
    let start = Instant::now();
    assert_eq!(fast.resize(4 * GIB).unwrap(), 4 * GIB);
    println!("3 GiB of device memory again after {:?}", start.elapsed());
    assert_eq!(large.resize(4 * GIB).unwrap(), 4 * GIB);
    large.wait_grown();
    println!("3 GiB pinned again after {:?}", start.elapsed());
    assert_eq!(large.pinned(), 4 * GIB);
    // Copies in both directions cross the border between memory that stayed and new memory.
    let target = fast.lend_mut(3 * GIB..4 * GIB).unwrap();
    suite::wait(large.begin_copy_out(&stream, 0, target).unwrap());
    let source = fast.lend(3 * GIB..4 * GIB).unwrap();
    suite::wait(large.begin_copy_in(&stream, source, GIB / 2).unwrap());
    let seen = large.lend(0..GIB + GIB / 2).unwrap();
    assert!(seen.bytes().unwrap().iter().all(|&byte| byte == 3));
}
