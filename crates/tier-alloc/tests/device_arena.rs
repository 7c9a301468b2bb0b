//! Tests of the device arena on the host back end.

use std::sync::Arc;
use std::thread;

use tierflow_device::{self as device, Choice, Device, host, open};
use tierflow_testing::assert_matches;
use tierflow_tier_alloc::{DeviceArena, DeviceGrowth, Error};

const MIB: usize = 1 << 20;

fn chunks(chunk: usize) -> DeviceGrowth {
    DeviceGrowth::IncrementalVmm { chunk: Some(chunk) }
}

fn small(bytes: usize) -> device::Result<Device> {
    host::open(host::Options::default().device_bytes(bytes as u64))
}

#[test]
fn everything_becomes_usable_and_keeps_its_bytes() {
    let device = open(Choice::Host).unwrap();
    let arena = DeviceArena::start(&device, 32 * MIB - 5, chunks(MIB)).unwrap();
    let stream = device.stream().unwrap();
    assert_eq!(arena.capacity(), 32 * MIB, "rounded up");
    // The bytes are written while the rest is still being mapped.
    for i in 0..32 {
        let mut slot = arena.lend_mut(i * MIB..(i + 1) * MIB).unwrap();
        assert!(arena.usable() >= (i + 1) * MIB);
        stream.write(&vec![i as u8; MIB], &mut slot).unwrap();
    }
    assert_eq!(arena.usable(), arena.capacity());
    let all = arena.lend(0..32 * MIB).unwrap();
    for (i, part) in all.bytes().unwrap().chunks_exact(MIB).enumerate() {
        assert!(part.iter().all(|&byte| usize::from(byte) == i));
    }
}

#[test]
fn the_level_rises_by_whole_chunks_and_never_falls() {
    let device = open(Choice::Host).unwrap();
    let arena = DeviceArena::start(&device, 64 * MIB, chunks(MIB)).unwrap();
    thread::scope(|scope| {
        for waiter in 0..4 {
            let arena = &arena;
            scope.spawn(move || {
                let mut last = 0;
                for end in (waiter * 1000 + 1..64 * MIB).step_by(MIB / 3) {
                    arena.wait_usable(end).unwrap();
                    let usable = arena.usable();
                    assert!(usable >= end && usable >= last && usable.is_multiple_of(MIB));
                    assert!(
                        arena.memory().lend(0..end).is_ok(),
                        "usable, but cannot be lent"
                    );
                    last = usable;
                }
            });
        }
    });
}

#[test]
fn running_out_of_memory_is_named_and_leaves_what_there_is() {
    let device = small(10 * MIB).unwrap();
    let arena = DeviceArena::start(&device, 16 * MIB, chunks(4 * MIB)).unwrap();
    arena.wait_usable(8 * MIB).unwrap();
    let error = arena.wait_usable(8 * MIB + 1).unwrap_err();
    match &error {
        Error::Growth {
            reached,
            capacity,
            source: device::Error::OutOfMemory { asked, free, .. },
        } => {
            assert_eq!((*reached, *capacity), (8 * MIB, 16 * MIB));
            assert_eq!((*asked, *free), (4 * MIB as u64, 2 * MIB as u64));
        }
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert_eq!(
        arena.lend(0..16 * MIB).unwrap_err(),
        error,
        "the same for each caller, at once"
    );
    assert!(
        arena.lend_mut(0..8 * MIB).is_ok(),
        "what there is stays usable"
    );
    drop(arena);
    assert_eq!(device.free_bytes().unwrap(), 10 * MIB as u64);
}

#[test]
fn one_chunk_may_be_larger_than_the_arena() {
    let device = small(MIB).unwrap();
    for growth in [DeviceGrowth::default(), chunks(usize::MAX), chunks(1)] {
        let arena = DeviceArena::start(&device, MIB, growth).unwrap();
        arena.wait_usable(MIB).unwrap();
        assert_eq!(device.free_bytes().unwrap(), 0, "all of it, and no more");
    }
    assert_eq!(device.free_bytes().unwrap(), MIB as u64);
}

#[test]
fn wrong_settings_and_ranges_are_errors() {
    let device = open(Choice::Host).unwrap();
    assert!(matches!(
        DeviceArena::start(&device, 0, DeviceGrowth::default()),
        Err(Error::Device(_))
    ));
    assert!(matches!(
        DeviceArena::start(&device, 1, chunks(0)),
        Err(Error::Zero { .. })
    ));
    assert!(DeviceArena::start(&device, usize::MAX, DeviceGrowth::default()).is_err());
    let arena = DeviceArena::start(&device, MIB, DeviceGrowth::default()).unwrap();
    let beyond = Error::BeyondCapacity {
        end: MIB + 1,
        capacity: MIB,
    };
    assert_eq!(arena.wait_usable(MIB + 1), Err(beyond));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = arena.lend(9..3);
    assert_matches!(reversed, Err(Error::Device(device::Error::Invalid(_))));
    assert!(arena.lend(0..0).unwrap().is_empty());
}

#[test]
fn dropping_it_early_ends_the_growth_and_gives_all_back() {
    // Mapping so many chunks would take minutes.
    let device = small(1 << 40).unwrap();
    for _ in 0..20 {
        let arena = DeviceArena::start(&device, 1 << 40, chunks(4096)).unwrap();
        let early = arena.lend_mut(0..4096).unwrap();
        drop(arena);
        // The thread has ended, so no further memory is mapped. The lent bytes are still there.
        let free = device.free_bytes().unwrap();
        thread::yield_now();
        assert_eq!(device.free_bytes().unwrap(), free, "still growing");
        assert!(free > 0, "the drop waited for the whole arena");
        drop(early);
        assert_eq!(device.free_bytes().unwrap(), 1 << 40);
    }
}

#[test]
fn threads_share_an_arena() {
    let device = open(Choice::Host).unwrap();
    let arena = Arc::new(DeviceArena::start(&device, 8 * MIB, chunks(MIB)).unwrap());
    let theirs = Arc::clone(&arena);
    let other = thread::spawn(move || theirs.wait_usable(8 * MIB));
    other.join().unwrap().unwrap();
    assert_eq!(arena.usable(), 8 * MIB);
}

#[test]
fn it_shrinks_and_grows_again_and_keeps_what_it_keeps() {
    const MIB: usize = 1 << 20;
    let device = host::open(host::Options::default().device_bytes(64 << 20)).unwrap();
    let growth = DeviceGrowth::IncrementalVmm {
        chunk: Some(4 * MIB),
    };
    let arena = DeviceArena::start(&device, 40 * MIB, growth).unwrap();
    arena
        .lend_mut(0..40 * MIB)
        .unwrap()
        .bytes_mut()
        .unwrap()
        .fill(7);
    let first = arena.lend(0..MIB).unwrap();
    assert!(arena.resize(0).is_err(), "some of it is lent");
    assert_eq!(arena.resize(9 * MIB).unwrap(), 12 * MIB, "whole chunks");
    assert_eq!(arena.usable(), 12 * MIB);
    assert_eq!(device.free_bytes().unwrap(), 52 << 20);
    assert!(first.bytes().unwrap().iter().all(|&byte| byte == 7));
    drop(first);
    assert!(arena.lend(12 * MIB..13 * MIB).is_err());
    assert_eq!(arena.resize(40 * MIB).unwrap(), 40 * MIB);
    arena.lend_mut(0..40 * MIB).unwrap();
    assert!(arena.report().finished);
    assert_eq!(arena.resize(0).unwrap(), 0);
    assert_eq!(device.free_bytes().unwrap(), 64 << 20);
    // The device has no more memory, as the rest is allocated elsewhere.
    let others = device.alloc(60 << 20).unwrap();
    assert!(arena.resize(40 * MIB).is_err());
    drop(others);
    assert_eq!(arena.resize(40 * MIB).unwrap(), 40 * MIB);
    let direct = DeviceArena::start(&device, 2 * MIB, DeviceGrowth::DirectAlloc).unwrap();
    assert!(matches!(direct.resize(0), Err(Error::Fixed { .. })));
}

#[test]
fn an_arena_in_one_chunk_without_a_limit_is_resized() {
    let device = open(Choice::Host).unwrap();
    let arena = DeviceArena::start(&device, 8 * MIB, chunks(usize::MAX)).unwrap();
    arena.wait_usable(8 * MIB).unwrap();
    assert_eq!(arena.resize(0).unwrap(), 0);
    assert_eq!(arena.resize(8 * MIB).unwrap(), 8 * MIB);
    assert_eq!(arena.usable(), 8 * MIB);
}
