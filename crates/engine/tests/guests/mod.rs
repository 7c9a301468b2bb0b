//! Scenarios of an engine whose device cache overflows to peers, for devices of any kind. The first device is the engine's own.

use std::time::{Duration, Instant};

use tierflow_device::Device;
use tierflow_engine::{AfterRestore, Engine, Error, Flush, Region, RegionMut, Tier, Version};
use tierflow_peers::{Borrowed, Lender, Lent, Part, PeerCache, Recall};
use tierflow_testing::noise;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn checkpoint(engine: &Engine, version: Version, length: usize) -> Result<(), Error> {
    let bytes = noise(version, length);
    engine.checkpoint(version, &[Region::from(bytes.as_slice())])
}

pub(crate) fn assert_restores(engine: &Engine, version: Version, length: usize) {
    let mut bytes = vec![0; length];
    let mut regions = [RegionMut::from(bytes.as_mut_slice())];
    engine.restore(version, &mut regions).unwrap();
    assert!(bytes == noise(version, length), "version {version}");
}

pub(crate) fn peers(devices: &[Device], each: usize) -> (PeerCache, Vec<Recall>) {
    let parts = devices[1..].iter().map(|peer| Part::on(peer, each));
    let (parts, recalls) = parts.unzip();
    (PeerCache::new(&devices[0], parts).unwrap(), recalls)
}

pub(crate) fn engine(device: &Device, peers: PeerCache, device_cache: usize) -> Engine {
    Engine::builder(device)
        .device_cache(device_cache)
        .tier(Tier::peers(peers))
        .host_cache(64 * device_cache)
        .after_restore(AfterRestore::Keep)
        .flush(Flush::Eager)
        .build()
        .unwrap()
}

/// Returns the bytes that are on peers now.
pub(crate) fn on_peers(engine: &Engine) -> u64 {
    let tiers = engine.metrics().tiers;
    let peers = tiers.iter().find(|tier| tier.name == "peers");
    peers.map(|tier| tier.used).unwrap()
}

pub(crate) fn hops(engine: &Engine, from: &str, to: &str) -> u64 {
    let hops = engine.metrics().hops;
    let mut hops = hops.iter().filter(|hop| hop.from == from && hop.to == to);
    hops.next().map_or(0, |hop| hop.transfers)
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Versions that the device cache cannot hold go to peers and come back. Peers take their memory back one after the
/// other while it is full, and no version is lost.
pub(crate) fn overflow_and_recall(devices: &[Device], length: usize) {
    let (cache, recalls) = peers(devices, 8 * length);
    let engine = engine(&devices[0], cache, 4 * length);
    // Fewer versions than the device and the peers hold.
    let count = 4 + 8 * (devices.len() as u64 - 1) - 4;
    for version in 0..count {
        checkpoint(&engine, version, length).unwrap();
    }
    // A transfer counts at its end, and the first ones may still be under way.
    eventually("no version goes to the peers", || {
        hops(&engine, "device", "peers") > 0
    });
    for version in (0..count).rev() {
        assert_restores(&engine, version, length);
    }
    assert!(on_peers(&engine) > 0, "{:?}", engine.metrics());
    for (at, recall) in recalls.iter().enumerate() {
        let free = devices[at + 1].free_bytes().unwrap();
        recall.ask();
        eventually("a peer waits for its memory", || recall.is_returned());
        let now = devices[at + 1].free_bytes().unwrap();
        assert!(
            now >= free + 8 * length as u64,
            "{now} bytes free, {free} before"
        );
        for version in 0..count {
            assert_restores(&engine, version, length);
        }
        // The engine still uses the peers that are left.
        checkpoint(&engine, 1000 + at as u64, length).unwrap();
    }
    eventually("something is left on peers", || on_peers(&engine) == 0);
    assert_restores(&engine, 1000, length);
}

/// Peers take their memory back while checkpoints and restores run.
pub(crate) fn recall_in_flight(devices: &[Device], length: usize) {
    for round in 0..4 {
        let (cache, recalls) = peers(devices, 4 * length);
        let engine = engine(&devices[0], cache, 2 * length);
        std::thread::scope(|scope| {
            let (engine, recalls) = (&engine, &recalls);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(3 * round));
                for recall in recalls.iter().rev() {
                    recall.ask();
                }
            });
            for writer in 0..2 {
                scope.spawn(move || {
                    for version in (0..30).map(|version| 100 * writer + version) {
                        checkpoint(engine, version, length).unwrap();
                        assert_restores(engine, version / 2 * 2, length);
                    }
                });
            }
        });
        for recall in &recalls {
            eventually("a peer waits for its memory", || recall.is_returned());
        }
        for version in (0..30).chain(100..130) {
            assert_restores(&engine, version, length);
        }
    }
}

/// Another process takes its memory back, or ends. The engine flushes the versions there in both cases, as mapped memory stays mapped.
pub(crate) fn lenders(devices: &[Device], length: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lender");
    let lender = Lender::bind(&devices[1], &path, 1 << 40).unwrap();
    let borrow = || -> (Part, Lent) {
        std::thread::scope(|scope| {
            let lending = scope.spawn(|| lender.lend(PATIENCE).unwrap());
            let loan = Borrowed::ask(&path, 4 * length as u64, PATIENCE).unwrap();
            (Part::borrowed(loan), lending.join().unwrap())
        })
    };
    let (recalled, first) = borrow();
    let (lost, second) = borrow();
    let cache = PeerCache::new(&devices[0], vec![recalled, lost]).unwrap();
    let engine = engine(&devices[0], cache, 4 * length);
    for version in 0..10 {
        checkpoint(&engine, version, length).unwrap();
    }
    eventually("nothing goes to peers", || on_peers(&engine) > 0);
    first.recall().unwrap();
    first.wait_returned(PATIENCE).unwrap();
    drop(first);
    for version in 0..10 {
        assert_restores(&engine, version, length);
    }
    checkpoint(&engine, 10, length).unwrap();
    // The connection closes, as at the end of a process.
    drop(second);
    eventually("what a dead lender had is kept", || on_peers(&engine) == 0);
    for version in 0..11 {
        assert_restores(&engine, version, length);
    }
}
