//! Both arenas on a machine that has a GPU:
//! `cargo test -p tierflow-tier-alloc --test cuda -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use tierflow_device::{Choice, Device, open};
use tierflow_tier_alloc::{DeviceArena, DeviceGrowth, Error, HostArena, HostGrowth};

const GIB: usize = 1 << 30;

fn gpu() -> tierflow_device::Result<Device> {
    open(Choice::Cuda { ordinal: 0 })
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_device_arena_is_usable_while_it_grows() {
    let device = gpu().unwrap();
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
    // Across every border of two chunks.
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

    // Every slot, so that copies cross every border between two pieces.
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
