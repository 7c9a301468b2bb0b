//! If the overflow of a group checkpoint is known, it goes to peers and the host by a schedule, over all links at once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test panics where it fails"
)]

mod history;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tierflow_device::host::{self, LinkCopy, OnLink};
use tierflow_device::{Device, Memory};
use tierflow_engine::{Engine, Region, RegionMut, Tier};
use tierflow_peers::GroupOverflow;
use tierflow_peers::placement::{Destination, GpuId, Share, Topology};

const MIB: u64 = 1 << 20;

/// The far end of a link: a peer's number, or the host.
type End = Option<usize>;

/// A meeting of links. Holds the first copy over each link back until all links have one.
#[derive(Default)]
struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    expected: usize,
    /// Bytes of the first copy over each link.
    first: BTreeMap<End, u64>,
    missed: bool,
}

impl Meeting {
    fn on_link(self: &Arc<Self>) -> OnLink {
        let meeting = Arc::clone(self);
        Arc::new(move |copy| meeting.come(copy))
    }

    fn come(&self, copy: LinkCopy) {
        let mut state = self.state.lock().unwrap();
        state.first.entry(copy.peer).or_insert(copy.bytes);
        self.changed.notify_all();
        let is_alone = |state: &mut State| state.first.len() < state.expected && !state.missed;
        let patience = Duration::from_secs(20);
        let (mut state, waited) = self
            .changed
            .wait_timeout_while(state, patience, is_alone)
            .unwrap();
        state.missed |= waited.timed_out();
    }

    /// Begins the next meeting, of `expected` links. Returns the bytes of the first copy over each link in the last meeting, and true if all
    /// links met.
    fn next(&self, expected: usize) -> (BTreeMap<End, u64>, bool) {
        let mut state = self.state.lock().unwrap();
        let last = std::mem::take(&mut *state);
        state.expected = expected;
        (last.first, !last.missed)
    }
}

/// Returns a topology of three GPUs. The first one's links to the others and to the host carry 200, 100 and 100 MB/s.
fn topology() -> Topology {
    let mut topology = Topology::new();
    let gpus = [topology.gpu(), topology.gpu(), topology.gpu()];
    topology.link(gpus[0], gpus[1], 200e6).unwrap();
    topology.link(gpus[0], gpus[2], 100e6).unwrap();
    let host = topology.host();
    let link = topology.host_link(host, 100e6).unwrap();
    for gpu in gpus {
        topology.host_port(link, gpu, 100e6).unwrap();
    }
    topology
}

fn devices(meeting: &Arc<Meeting>, spare: u64) -> Vec<Device> {
    let options = host::Options::default().device_bytes(256 * MIB);
    let own = host::open(options.clone().on_link(meeting.on_link()));
    let peer = |ordinal| host::open(options.clone().ordinal(ordinal).device_bytes(spare));
    [own, peer(1), peer(2)].map(Result::unwrap).to_vec()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8).collect()
}

fn state(device: &Device, bytes: &[u8]) -> Memory {
    let memory = device.alloc(bytes.len()).unwrap();
    let stream = device.stream().unwrap();
    stream
        .write(bytes, &mut memory.lend_mut(0..bytes.len()).unwrap())
        .unwrap();
    memory
}

fn engine(device: &Device, overflow: GroupOverflow) -> Engine {
    let mut builder = Engine::builder(device)
        .device_cache(16 << 20)
        .host_cache(64 << 20);
    if let Some(cache) = overflow.cache {
        builder = builder.tier(Tier::peers(cache));
    }
    builder.build().unwrap()
}

#[test]
fn an_overflow_goes_by_its_schedule_over_all_links_at_once() {
    let meeting = Arc::new(Meeting::default());
    let devices = devices(&meeting, 64 * MIB);
    let shares = [
        Share::Remainder(32 * MIB),
        Share::Spare(64 * MIB),
        Share::Spare(64 * MIB),
    ];
    let overflow = GroupOverflow::new(&devices, GpuId(0), &topology(), &shares).unwrap();
    assert!(overflow.refusals.is_empty(), "{:?}", overflow.refusals);
    let transfers = overflow.schedule.transfers().iter();
    let scheduled: BTreeMap<End, u64> = transfers
        .map(|transfer| match transfer.to {
            Destination::Peer(peer) => (Some(peer.0), transfer.bytes),
            Destination::Host(_) => (None, transfer.bytes),
        })
        .collect();
    let wanted = [(None, 8 * MIB), (Some(1), 16 * MIB), (Some(2), 8 * MIB)];
    assert_eq!(scheduled, BTreeMap::from(wanted));

    let engine = engine(&devices[0], overflow);
    let bytes = content(48 << 20);
    let memory = state(&devices[0], &bytes);
    meeting.next(3);
    engine.checkpoint(1, &[Region::from(&memory)]).unwrap();
    let (first, all_met) = meeting.next(0);
    assert!(all_met, "links copied one after the other: {first:?}");
    // Flushes follow over the same links.
    assert_eq!(first, scheduled);

    let back = state(&devices[0], &vec![0; bytes.len()]);
    engine.restore(1, &mut [RegionMut::from(&back)]).unwrap();
    let restored = back.lend(0..bytes.len()).unwrap();
    assert!(restored.bytes().unwrap() == bytes);
}

#[test]
fn a_peer_that_refuses_is_left_out_and_no_byte_is_lost() {
    let meeting = Arc::new(Meeting::default());
    // Each peer has 4 MiB, though the engine was told that it has 64.
    let devices = devices(&meeting, 4 * MIB);
    let shares = [
        Share::Remainder(32 * MIB),
        Share::Spare(64 * MIB),
        Share::Spare(64 * MIB),
    ];
    let overflow = GroupOverflow::new(&devices, GpuId(0), &topology(), &shares).unwrap();
    let refused: Vec<_> = overflow.refusals.iter().map(|(peer, _)| peer.0).collect();
    assert_eq!(refused, [1, 2]);
    assert_eq!(overflow.schedule.to_hosts(), 24 * MIB);
    let engine = engine(&devices[0], overflow);
    let bytes = content(48 << 20);
    let memory = state(&devices[0], &bytes);
    engine.checkpoint(1, &[Region::from(&memory)]).unwrap();
    history::assert_restores(&engine, 1, &bytes);
}
