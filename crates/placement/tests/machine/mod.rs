//! Random machines, described without the crate's types, and the properties that every schedule on them must have.

use std::collections::HashMap;

use proptest::prelude::*;
use tierflow_placement::{
    Destination, ExactTime, GpuId, HostId, HostLinkId, Problem, Route, Schedule, Share, SwitchId,
    Topology,
};

/// A machine with numbers that are small enough for an LP solver to be exact. The methods scale them for the crate.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) shares: Vec<Share>,
    pub(crate) egress: Vec<Option<u64>>,
    pub(crate) ingress: Vec<Option<u64>>,
    /// A GPU, its target and the bandwidth.
    pub(crate) links: Vec<(usize, usize, u64)>,
    /// The limit and the ports of each switch.
    pub(crate) switches: Vec<(Option<u64>, Vec<Port>)>,
    /// Room and ingress bandwidth of each host.
    pub(crate) hosts: Vec<(Option<u64>, Option<u64>)>,
    /// Host, bandwidth and ports of each host link.
    pub(crate) host_links: Vec<(usize, u64, Vec<Port>)>,
}

/// A GPU and the bandwidth of its port.
pub(crate) type Port = (usize, u64);

/// A way from a GPU to a place, as indices into the machine's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Link(usize),
    /// Switch, sending port, receiving port.
    Switch(usize, usize, usize),
    /// Host link, port.
    Host(usize, usize),
}

/// A part of the machine that has a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    Egress(usize),
    Ingress(usize),
    Link(usize),
    Send(usize, usize),
    Receive(usize, usize),
    Backplane(usize),
    HostLink(usize),
    HostPort(usize, usize),
    Host(usize),
}

impl Machine {
    pub(crate) fn remainder(&self, gpu: usize) -> u64 {
        match self.shares[gpu] {
            Share::Remainder(bytes) => bytes,
            Share::Spare(_) => 0,
        }
    }

    pub(crate) fn spare(&self, gpu: usize) -> u64 {
        match self.shares[gpu] {
            Share::Spare(bytes) => bytes,
            Share::Remainder(_) => 0,
        }
    }

    /// Returns every way from a GPU to a place that may have room.
    pub(crate) fn ways(&self, from: usize) -> Vec<Way> {
        let mut ways = Vec::new();
        let links = self.links.iter().enumerate();
        ways.extend(
            links
                .filter(|(_, link)| link.0 == from)
                .map(|(at, _)| Way::Link(at)),
        );
        for (switch, (_, ports)) in self.switches.iter().enumerate() {
            for (send, _) in ports.iter().enumerate().filter(|(_, port)| port.0 == from) {
                let receivers = ports.iter().enumerate().filter(|(_, port)| port.0 != from);
                ways.extend(receivers.map(|(receive, _)| Way::Switch(switch, send, receive)));
            }
        }
        for (link, (_, _, ports)) in self.host_links.iter().enumerate() {
            let ours = ports.iter().enumerate().filter(|(_, port)| port.0 == from);
            ways.extend(ours.map(|(port, _)| Way::Host(link, port)));
        }
        ways
    }

    /// Returns the peer or the host at the end of a way.
    pub(crate) fn end(&self, way: Way) -> Destination {
        match way {
            Way::Link(at) => Destination::Peer(GpuId(self.links[at].1)),
            Way::Switch(switch, _, receive) => {
                Destination::Peer(GpuId(self.switches[switch].1[receive].0))
            }
            Way::Host(link, _) => Destination::Host(HostId(self.host_links[link].0)),
        }
    }

    /// Returns the resources that a transfer from a GPU by a way uses, each with its bandwidth.
    pub(crate) fn resources(&self, from: usize, way: Way) -> Vec<(Resource, u64)> {
        let mut all = vec![(Resource::Egress(from), self.egress[from])];
        match self.end(way) {
            Destination::Peer(GpuId(gpu)) => {
                all.push((Resource::Ingress(gpu), self.ingress[gpu]));
            }
            Destination::Host(HostId(host)) => {
                all.push((Resource::Host(host), self.hosts[host].1));
            }
        }
        match way {
            Way::Link(at) => all.push((Resource::Link(at), Some(self.links[at].2))),
            Way::Switch(at, send, receive) => {
                let (limit, ports) = &self.switches[at];
                all.push((Resource::Backplane(at), *limit));
                all.push((Resource::Send(at, send), Some(ports[send].1)));
                all.push((Resource::Receive(at, receive), Some(ports[receive].1)));
            }
            Way::Host(link, port) => {
                let (_, bandwidth, ports) = &self.host_links[link];
                all.push((Resource::HostLink(link), Some(*bandwidth)));
                all.push((Resource::HostPort(link, port), Some(ports[port].1)));
            }
        }
        let limited = all.into_iter();
        limited
            .filter_map(|(resource, bandwidth)| Some((resource, bandwidth?)))
            .collect()
    }

    /// Returns the machine's topology with each bandwidth multiplied by `scale`.
    pub(crate) fn topology(&self, scale: u64) -> Topology {
        let mut topology = Topology::new();
        let bandwidth = |bandwidth: u64| (bandwidth * scale) as f64;
        for gpu in 0..self.shares.len() {
            let id = topology.gpu();
            if let Some(limit) = self.egress[gpu] {
                topology.egress(id, bandwidth(limit)).unwrap();
            }
            if let Some(limit) = self.ingress[gpu] {
                topology.ingress(id, bandwidth(limit)).unwrap();
            }
        }
        for &(from, to, speed) in &self.links {
            topology
                .link(GpuId(from), GpuId(to), bandwidth(speed))
                .unwrap();
        }
        for (limit, ports) in &self.switches {
            let switch = topology.switch();
            if let Some(limit) = *limit {
                topology.backplane(switch, bandwidth(limit)).unwrap();
            }
            for &(gpu, speed) in ports {
                topology.port(switch, GpuId(gpu), bandwidth(speed)).unwrap();
            }
        }
        for &(_, ingress) in &self.hosts {
            let host = topology.host();
            if let Some(ingress) = ingress {
                topology.host_ingress(host, bandwidth(ingress)).unwrap();
            }
        }
        for (host, speed, ports) in &self.host_links {
            let link = topology
                .host_link(HostId(*host), bandwidth(*speed))
                .unwrap();
            for &(gpu, speed) in ports {
                topology
                    .host_port(link, GpuId(gpu), bandwidth(speed))
                    .unwrap();
            }
        }
        topology
    }

    /// Returns the machine's problem with each number of bytes multiplied by `scale`.
    pub(crate) fn problem<'a>(&self, topology: &'a Topology, scale: u64) -> Problem<'a> {
        let shares = self.shares.iter().map(|share| match *share {
            Share::Remainder(bytes) => Share::Remainder(bytes * scale),
            Share::Spare(bytes) => Share::Spare(bytes * scale),
        });
        let mut problem = Problem::new(topology, &shares.collect::<Vec<_>>()).unwrap();
        for (host, (room, _)) in self.hosts.iter().enumerate() {
            if let Some(room) = room {
                problem = problem.with_host_spare(HostId(host), room * scale).unwrap();
            }
        }
        problem
    }

    /// Asserts that a schedule places every byte once, aligned, within the room of each place and over existing ways, and that its makespan
    /// is the time of the busiest resource.
    pub(crate) fn check(&self, schedule: &Schedule, alignment: u64, speed: u64, bytes: u64) {
        let mut placed = vec![0; self.shares.len()];
        let mut room: HashMap<Destination, u64> = HashMap::new();
        let mut loads: HashMap<Resource, (u64, u64)> = HashMap::new();
        for transfer in schedule.transfers() {
            let GpuId(from) = transfer.from;
            assert!(transfer.bytes > 0, "{transfer}");
            assert_eq!(transfer.offset, placed[from], "{transfer}");
            assert_eq!(transfer.offset % alignment, 0, "{transfer}");
            placed[from] += transfer.bytes;
            let is_last = placed[from] == self.remainder(from) * bytes;
            assert!(
                is_last || transfer.bytes.is_multiple_of(alignment),
                "{transfer}"
            );
            *room.entry(transfer.to).or_default() += transfer.bytes;
            let way = self.way(from, transfer.to, transfer.via);
            for (resource, bandwidth) in self.resources(from, way) {
                loads.entry(resource).or_insert((0, bandwidth * speed)).0 += transfer.bytes;
            }
        }
        for (gpu, placed) in placed.iter().enumerate() {
            assert_eq!(*placed, self.remainder(gpu) * bytes, "all bytes of {gpu}");
        }
        for (place, used) in room {
            let there = match place {
                Destination::Peer(GpuId(gpu)) => self.spare(gpu) * bytes,
                Destination::Host(HostId(host)) => {
                    self.hosts[host].0.map_or(u64::MAX, |room| room * bytes)
                }
            };
            assert!(used <= there, "{used} bytes in {there} of {place}");
        }
        let times = loads
            .values()
            .map(|&(load, bandwidth)| ExactTime::new(load, bandwidth).unwrap());
        assert_eq!(
            schedule.makespan(),
            times.max().unwrap_or(ExactTime::ZERO),
            "{schedule:?}"
        );
    }

    /// Returns the makespan with every transfer rounded up to a multiple of the alignment, in the machine's own units. Compare it only with
    /// makespans of the same machine.
    pub(crate) fn rounded(&self, schedule: &Schedule, alignment: u64) -> ExactTime {
        let mut loads: HashMap<Resource, (u64, u64)> = HashMap::new();
        for transfer in schedule.transfers() {
            let GpuId(from) = transfer.from;
            let way = self.way(from, transfer.to, transfer.via);
            for (resource, bandwidth) in self.resources(from, way) {
                let load = loads.entry(resource).or_insert((0, bandwidth));
                load.0 += transfer.bytes.next_multiple_of(alignment);
            }
        }
        let times = loads.into_values();
        let times = times.map(|(load, bandwidth)| ExactTime::new(load, bandwidth).unwrap());
        times.max().unwrap_or(ExactTime::ZERO)
    }

    fn way(&self, from: usize, to: Destination, via: Route) -> Way {
        let is_it = |way: &Way| match (*way, via) {
            (Way::Link(at), Route::Link(link)) => at == link.0,
            (Way::Switch(at, ..), Route::Switch(SwitchId(switch))) => at == switch,
            (Way::Host(at, _), Route::Host(HostLinkId(link))) => at == link,
            _ => false,
        };
        let mut ways = self.ways(from).into_iter();
        ways.find(|way| is_it(way) && self.end(*way) == to)
            .expect("the transfer takes a way that is there")
    }
}

fn speed() -> impl Strategy<Value = u64> {
    // Real machines have equal speeds, and calibrations find others.
    prop_oneof![Just(24), Just(48), 1..100_u64]
}

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![
        (0..1000_u64).prop_map(Share::Remainder),
        (0..1000_u64).prop_map(Share::Spare),
    ]
}

fn limit() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![3 => Just(None), 1 => (1..150_u64).prop_map(Some)]
}

fn room() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![3 => Just(None), 1 => (0..2000_u64).prop_map(Some)]
}

fn ports(gpus: usize) -> impl Strategy<Value = Vec<Port>> {
    prop::collection::vec(prop::option::of(speed()), gpus).prop_map(|ports| {
        let ports = ports.into_iter().enumerate();
        ports
            .filter_map(|(gpu, speed)| Some((gpu, speed?)))
            .collect()
    })
}

prop_compose! {
    /// Draws machines of 1 to 6 GPUs, up to 2 switches, 2 hosts and 3 host links.
    pub(crate) fn machines()(gpus in 1..7_usize, hosts in prop_oneof![1 => Just(0_usize), 5 => 1..3_usize])(
        shares in prop::collection::vec(share(), gpus),
        egress in prop::collection::vec(limit(), gpus),
        ingress in prop::collection::vec(limit(), gpus),
        links in prop::collection::vec((0..gpus, 0..gpus, speed()), 0..12),
        switches in prop::collection::vec((limit(), ports(gpus)), 0..3),
        hosts in prop::collection::vec((room(), limit()), hosts),
        host_links in prop::collection::vec(
            (0..hosts.max(1), speed(), ports(gpus)),
            if hosts > 0 { 1..4 } else { 0..1 },
        ),
    ) -> Machine {
        let links = links.into_iter().filter(|(from, to, _)| from != to).collect();
        Machine { shares, egress, ingress, links, switches, hosts, host_links }
    }
}
