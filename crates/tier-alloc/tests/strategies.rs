//! Tests of every strategy on the host back end.

#![allow(clippy::unwrap_used)]

mod suite;

use tierflow_device::{Choice, Device, open};
use tierflow_tier_alloc::{
    Baseline, DeviceArena, DeviceGrowth, DeviceOptions, HostArena, HostGrowth, HostOptions, Numa,
    Touching,
};

const MIB: usize = 1 << 20;

fn host() -> Device {
    open(Choice::Host).unwrap()
}

#[test]
fn every_host_strategy_carries_bytes_and_reports() {
    suite::host_strategies(&host(), 48 * MIB);
}

#[test]
fn every_device_strategy_carries_bytes_and_reports() {
    suite::device_strategies(&host(), 24 * MIB);
}

#[test]
fn the_ring_copies_both_ways() {
    suite::ring(&host());
}

#[test]
fn names_are_unique() {
    let all = HostGrowth::all();
    for (at, growth) in all.iter().enumerate() {
        assert!(all[..at].iter().all(|other| other.name() != growth.name()));
    }
}

#[test]
fn touching_pauses_while_something_is_flushed() {
    let growth = Baseline::TouchThenPin {
        touching: Touching::Sequential,
    };
    let arena = HostArena::start(&host(), 256 * MIB, growth).unwrap();
    let flush = arena.gate().enter_transfer();
    // The arena finishes the pieces that it has begun, and then touches no more.
    let mut seen = arena.touched();
    loop {
        std::thread::sleep(std::time::Duration::from_millis(30));
        let now = arena.touched();
        if now == seen {
            break;
        }
        seen = now;
    }
    assert!(
        arena.usable() == arena.capacity(),
        "flushes do not wait for it"
    );
    drop(flush);
    arena.wait_grown();
    assert_eq!(arena.touched(), arena.capacity());
}

#[test]
fn a_device_arena_is_shared_with_peers_of_its_kind() {
    let device = host();
    let mut options = DeviceOptions::from(DeviceGrowth::DirectAlloc);
    options.peers = vec![host()];
    let arena = DeviceArena::start(&device, MIB, options).unwrap();
    arena.wait_usable(MIB).unwrap();
}

#[test]
fn a_node_that_is_not_there_is_reported() {
    let options = HostOptions::from(HostGrowth::default()).numa(Numa::Node(5000));
    let arena = HostArena::start(&host(), 2 * MIB, options).unwrap();
    arena.wait_grown();
    let node = arena.report().node;
    assert_eq!(node.asked, Some(5000));
    assert!(node.why_not.is_some(), "{node:?}");
}
