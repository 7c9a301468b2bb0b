//! The optimum does not depend on the initial estimate.

use proptest::prelude::{
    Just, ProptestConfig, Strategy as Generator, any, prop, prop_oneof, proptest,
};

use super::*;
use crate::{Destination, GpuId, HostId, HostLinkId, Share, Topology};

/// Links between any two GPUs, some of them missing, some GPUs with limits of their own, and every four of them with
/// a link to the host.
#[derive(Clone, Debug)]
struct Mesh {
    /// For each GPU: true for a remainder, false for spare capacity; its bytes; its egress or ingress in GB/s.
    gpus: Vec<(bool, u64, Option<u64>)>,
    links: Vec<u64>,
    host: u64,
    host_room: u64,
}

impl Mesh {
    fn topology(&self) -> Topology {
        let mut topology = Topology::new();
        let host = topology.host();
        let count = self.gpus.len();
        for (at, &(is_sender, _, limit)) in self.gpus.iter().enumerate() {
            let gpu = topology.gpu();
            match limit {
                Some(limit) if is_sender => topology.egress(gpu, limit as f64 * 1e9).unwrap(),
                Some(limit) => topology.ingress(gpu, limit as f64 * 1e9).unwrap(),
                None => {}
            }
            let host_bandwidth = self.host as f64 * 1e9;
            if at % 4 == 0 {
                topology.host_link(host, host_bandwidth).unwrap();
            }
            let uplink = HostLinkId(at / 4);
            topology.host_port(uplink, gpu, host_bandwidth).unwrap();
        }
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let bandwidth = self.links[(from * count + to) % self.links.len()];
                if bandwidth > 0 {
                    let bandwidth = bandwidth as f64 * 1e9;
                    topology.link(GpuId(from), GpuId(to), bandwidth).unwrap();
                }
            }
        }
        topology
    }

    fn problem<'a>(&self, topology: &'a Topology) -> Problem<'a> {
        let shares = self
            .gpus
            .iter()
            .map(|&(is_sender, bytes, _)| match is_sender {
                true => Share::Remainder(bytes),
                false => Share::Spare(bytes),
            });
        let problem = Problem::new(topology, &shares.collect::<Vec<_>>()).unwrap();
        problem.with_host_spare(HostId(0), self.host_room).unwrap()
    }
}

fn meshes(most: usize) -> impl Generator<Value = Mesh> {
    let limit = prop_oneof![3 => Just(None), 1 => (1..150_u64).prop_map(Some)];
    let bytes = prop_oneof![1 => 0..10_u64, 4 => 0..1_000_000_000_u64];
    let speed = prop_oneof![2 => Just(24), 2 => Just(48), 1 => 0..100_u64];
    let room = prop_oneof![3 => Just(u64::MAX), 1 => 0..4_000_000_000_u64];
    let gpus = prop::collection::vec((any::<bool>(), bytes, limit), 1..most);
    (gpus, prop::collection::vec(speed, 1..200), 1..100_u64, room).prop_map(
        |(gpus, links, host, host_room)| Mesh {
            gpus,
            links,
            host,
            host_room,
        },
    )
}

fn same_with_and_without_an_estimate(mesh: &Mesh, estimating: &mut MinTimeMaxFlow) {
    let topology = mesh.topology();
    let problem = mesh.problem(&topology);
    let plain = MinTimeMaxFlow::estimating_from(usize::MAX).schedule(&problem);
    match (estimating.schedule(&problem), plain) {
        (Ok(estimated), Ok(plain)) => {
            let bounds = [&estimated, &plain].map(|found| found.bound().unwrap().time);
            assert_eq!(bounds[0], bounds[1]);
            assert_eq!(estimated.makespan(), plain.makespan());
            let mut placed = vec![0; mesh.gpus.len()];
            let mut room: Vec<u64> = mesh.gpus.iter().map(|gpu| gpu.1).collect();
            assert!(estimated.to_hosts() <= mesh.host_room);
            for transfer in estimated.transfers() {
                if let Destination::Peer(peer) = transfer.to {
                    assert!(!mesh.gpus[peer.0].0);
                    room[peer.0] = room[peer.0].checked_sub(transfer.bytes).unwrap();
                }
                assert_eq!(transfer.offset, placed[transfer.from.0]);
                placed[transfer.from.0] += transfer.bytes;
            }
            for (gpu, placed) in mesh.gpus.iter().zip(placed) {
                assert_eq!(placed, if gpu.0 { gpu.1 } else { 0 });
            }
        }
        (estimated, plain) => assert_eq!(estimated.unwrap_err(), plain.unwrap_err()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn an_estimate_changes_nothing_on_small_meshes(mesh in meshes(12)) {
        same_with_and_without_an_estimate(&mesh, &mut MinTimeMaxFlow::estimating_from(0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn an_estimate_changes_nothing_on_large_meshes(mesh in meshes(100)) {
        same_with_and_without_an_estimate(&mesh, &mut MinTimeMaxFlow::estimating_from(0));
    }
}
