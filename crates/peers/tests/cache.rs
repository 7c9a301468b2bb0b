//! Tests of memory of several peers as one range. The owners take parts back.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use std::time::Duration;

use common::hosts;
use tierflow_device::{Device, Memory};
use tierflow_peers::{Borrowed, Effort, Error, Lender, Part, PeerCache, calibrate};
use tierflow_placement::{GpuId, MinTimeMaxFlow, Problem, Share, Strategy, Topology};
use tierflow_testing::noise;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

fn write(device: &Device, memory: &Memory, start: usize, bytes: &[u8]) {
    let mut loan = memory.lend_mut(start..start + bytes.len()).unwrap();
    device.stream().unwrap().write(bytes, &mut loan).unwrap();
}

fn read(device: &Device, memory: &Memory, start: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let loan = memory.lend(start..start + len).unwrap();
    device.stream().unwrap().read(&loan, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_part_that_is_wanted_back_goes_and_those_behind_it_move_up() {
    let devices = hosts(4, 8 << 20);
    let parts = devices[1..].iter().map(|peer| Part::on(peer, 2 * MIB));
    let (parts, recalls): (Vec<_>, Vec<_>) = parts.unzip();
    let cache = PeerCache::new(&devices[0], parts).unwrap();
    assert_eq!((cache.capacity(), cache.usable()), (6 * MIB, 6 * MIB));
    assert_eq!(
        (cache.wanted(), cache.give_back(0).unwrap()),
        (None, 6 * MIB)
    );
    let free = |at: usize| devices[at].free_bytes().unwrap();
    assert_eq!(
        [free(0), free(1), free(2), free(3)],
        [8, 6, 6, 6].map(|mib| mib << 20)
    );
    // The bytes cross the border between two peers.
    let bytes = noise(1, 3 * MIB);
    write(&devices[0], cache.memory(), MIB / 2, &bytes);
    assert!(read(&devices[0], cache.memory(), MIB / 2, bytes.len()) == bytes);

    recalls[1].ask();
    assert_eq!(cache.wanted(), Some(2 * MIB));
    // All bytes stay readable until the part is given back. The part cannot be given back while a byte of it is lent.
    assert!(read(&devices[0], cache.memory(), MIB / 2, bytes.len()) == bytes);
    let reader = cache.memory().lend(5 * MIB..5 * MIB + 1).unwrap();
    assert!(matches!(cache.give_back(0), Err(Error::Device { .. })));
    assert!(!recalls[1].is_returned());
    drop(reader);
    assert_eq!(cache.give_back(0).unwrap(), 4 * MIB);
    assert!(recalls[1].is_returned() && !recalls[2].is_returned());
    assert_eq!([free(1), free(2), free(3)], [6, 8, 6].map(|mib| mib << 20));
    let before = &bytes[..2 * MIB - MIB / 2];
    assert!(read(&devices[0], cache.memory(), MIB / 2, before.len()) == before);
    let again = noise(2, 2 * MIB);
    write(&devices[0], cache.memory(), 2 * MIB, &again);
    assert!(read(&devices[0], cache.memory(), 2 * MIB, again.len()) == again);

    recalls[0].ask();
    recalls[2].ask();
    assert_eq!((cache.wanted(), cache.give_back(0).unwrap()), (Some(0), 0));
    assert_eq!([free(1), free(2), free(3)], [8 << 20; 3]);
}

#[test]
fn a_process_that_lends_is_a_part_like_another() {
    let devices = hosts(3, 8 << 20);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lender");
    let lender = Lender::bind(&devices[1], &path, 8 << 20).unwrap();
    let borrow = || {
        std::thread::scope(|scope| {
            let lending = scope.spawn(|| lender.lend(PATIENCE).unwrap());
            let loan = Borrowed::ask(&path, 2 << 20, PATIENCE).unwrap();
            (Part::borrowed(loan), lending.join().unwrap())
        })
    };
    let (first, lent_first) = borrow();
    let (second, lent_second) = borrow();
    let (third, _) = Part::on(&devices[2], 2 * MIB);
    let cache = PeerCache::new(&devices[0], vec![first, second, third]).unwrap();
    let bytes = noise(3, 6 * MIB);
    write(&devices[0], cache.memory(), 0, &bytes);
    assert!(read(&devices[0], cache.memory(), 0, bytes.len()) == bytes);

    lent_first.recall().unwrap();
    assert_eq!(cache.wanted(), Some(0));
    assert_eq!(cache.wanted(), Some(0), "a recall is said once and holds");
    assert_eq!(cache.give_back(0).unwrap(), 4 * MIB);
    lent_first.wait_returned(PATIENCE).unwrap();
    write(&devices[0], cache.memory(), 0, &bytes[..4 * MIB]);

    // After the lender has ended, its bytes stay readable until they are given back.
    assert_eq!(cache.wanted(), None);
    drop(lent_second);
    assert_eq!(cache.wanted(), Some(0));
    assert!(read(&devices[0], cache.memory(), 0, 4 * MIB) == bytes[..4 * MIB]);
    assert_eq!(cache.give_back(0).unwrap(), 2 * MIB);
    write(&devices[0], cache.memory(), 0, &bytes[..2 * MIB]);
    assert!(read(&devices[0], cache.memory(), 0, 2 * MIB) == bytes[..2 * MIB]);

    // Of several recalls, none leaves its descriptor readable.
    let (parts, lent): (Vec<_>, Vec<_>) = [borrow(), borrow()].into_iter().unzip();
    let cache = PeerCache::new(&devices[0], parts).unwrap();
    assert_eq!(cache.recalls().len(), 2);
    lent.iter().for_each(|lent| lent.recall().unwrap());
    assert_eq!((cache.wanted(), cache.recalls().len()), (Some(0), 0));
}

#[test]
fn parts_are_what_a_schedule_says() {
    let devices = hosts(8, 64 << 20);
    let topology = Topology::dgx_1();
    let mut shares = [Share::Spare(0); 8];
    shares[0] = Share::Remainder(48 << 20);
    shares[6] = Share::Remainder(24 << 20);
    shares[4] = Share::Spare(48 << 20);
    shares[1] = Share::Spare(24 << 20);
    let problem = Problem::new(&topology, &shares).unwrap();
    let problem = problem.aligned_to(1 << 16).unwrap();
    let schedule = MinTimeMaxFlow::default().schedule(&problem).unwrap();
    let parts = Part::by_schedule(&devices, GpuId(0), &schedule).unwrap();
    let to_peers: u64 = 48 << 20;
    let to_peers = to_peers
        - schedule.transfers().iter().fold(0, |sum, transfer| {
            let is_host = matches!(transfer.to, tierflow_placement::Destination::Host(_));
            sum + if transfer.from == GpuId(0) && is_host {
                transfer.bytes
            } else {
                0
            }
        });
    let parts = parts.into_iter().map(|(part, _)| part).collect();
    let cache = PeerCache::new(&devices[0], parts).unwrap();
    assert_eq!(cache.capacity() as u64, to_peers);
    assert!(Part::by_schedule(&devices[..1], GpuId(0), &schedule).is_err());
    assert!(matches!(
        PeerCache::new(&devices[0], Vec::new()),
        Err(Error::NoDevices)
    ));
    let (large, _) = Part::on(&devices[1], 1 << 30);
    assert!(matches!(
        PeerCache::new(&devices[0], vec![large]),
        Err(Error::Device { .. })
    ));
}

#[test]
fn a_length_beyond_all_addresses_is_an_error() {
    let devices = hosts(2, 8 << 20);
    let (part, _) = Part::on(&devices[1], usize::MAX);
    let refused = PeerCache::new(&devices[0], vec![part]);
    assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
    let refused = calibrate(&devices, Effort::default().bytes(usize::MAX));
    assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
}
