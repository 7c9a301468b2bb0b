//! The device cache overflows to peers, which may take their memory back at any time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test panics where it fails"
)]

mod guests;

use guests::{MIB, lenders, overflow_and_recall, peers, recall_in_flight};
use tierflow_device::{Device, host};
use tierflow_engine::{BuildError, Engine, Error, Tier};

const LENGTH: usize = 96 * 1024;

fn hosts(count: usize) -> Vec<Device> {
    let options = host::Options::default().device_bytes(64 << 20);
    let device = |ordinal| host::open(options.clone().ordinal(ordinal)).unwrap();
    (0..count).map(device).collect()
}

#[test]
fn an_overflow_to_peers_comes_back_and_peers_get_their_memory_back() {
    overflow_and_recall(&hosts(4), LENGTH);
}

#[test]
fn a_recall_may_come_at_any_time() {
    recall_in_flight(&hosts(3), LENGTH);
}

#[test]
fn another_process_may_want_its_memory_back_or_die() {
    lenders(&hosts(2), LENGTH);
}

#[test]
fn a_peer_cache_needs_a_tier_below_and_the_engines_device() {
    let devices = hosts(3);
    let (cache, _recalls) = peers(&devices, MIB);
    let alone = Engine::builder(&devices[0])
        .device_cache(MIB)
        .tier(Tier::peers(cache));
    assert!(matches!(
        alone.build(),
        Err(Error::Build(BuildError::NothingBelowPeers))
    ));
    let (cache, recalls) = peers(&devices, MIB);
    let other = Engine::builder(&devices[1])
        .tier(Tier::peers(cache))
        .host_cache(MIB);
    assert!(matches!(other.build(), Err(Error::Device(_))));
    // A builder that fails gives all memory back to the peers.
    assert!(recalls.iter().all(tierflow_peers::Recall::is_returned));
    for device in &devices {
        assert_eq!(device.free_bytes().unwrap(), 64 << 20);
    }
}
