use super::Links;
use crate::{GpuId, HostId, HostLinkId, Limit, LinkId, Problem, Share, SwitchId};

/// The node that all remainders come from.
pub(crate) const SOURCE: u32 = 0;
/// The node that all room leads to.
pub(crate) const SINK: u32 = 1;
/// The volume or the bandwidth of an edge that has no such limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The part of the topology that an edge stands for, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    /// The remainder of a GPU, and its egress.
    Remainder(usize),
    /// The spare capacity of a peer, and its ingress.
    Spare(usize),
    Link(usize),
    /// A switch port, sending.
    Send(usize),
    /// A switch port, receiving.
    Receive(usize),
    Backplane(usize),
    HostPort(usize),
    HostLink(usize),
    /// The room of a host, and its ingress.
    Host(usize),
}

/// An edge, which carries the smaller of `volume` and `bandwidth` · T in time T.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) kind: EdgeKind,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Grains in all; [`UNLIMITED`] for no limit.
    pub(crate) volume: u64,
    /// Bytes per second; [`UNLIMITED`] for no limit.
    pub(crate) bandwidth: u64,
}

/// A problem as a network. Bytes are counted in grains of `grain` bytes: remainders are rounded up, room is rounded down.
///
/// The network has a node for each GPU with a remainder, each switch (two if it has a limit of its
/// own), each host link and host, and each peer with spare capacity (SC'22 showcase, slide 60).
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// All edges that are not in `links`.
    pub(crate) edges: Vec<Edge>,
    /// Links from GPUs with a remainder to peers with room, if there are many: if each pair of GPUs has a link, nearly all
    /// edges are links. Otherwise `edges` contains them.
    pub(crate) links: Links,
    pub(crate) nodes: usize,
    /// The node of each GPU.
    pub(super) node: Vec<u32>,
    /// The GPUs in the order of their nodes. GPUs with a remainder come first, so the peers behind the links of a GPU
    /// mostly have consecutive nodes.
    pub(super) gpu: Vec<GpuId>,
    /// The remainders together, in grains.
    pub(crate) total: u64,
    pub(crate) grain: u64,
}

impl Network {
    pub(crate) fn new(problem: &Problem<'_>, grain: u64) -> Self {
        let mut network = Self::default();
        network.describe(problem, grain, usize::MAX);
        network
    }

    /// Replaces the network by that of this problem. Links are stored row by row if there may be more than `many`.
    pub(crate) fn describe(&mut self, problem: &Problem<'_>, grain: u64, many: usize) {
        let topology = problem.topology;
        let (gpus, switches) = (topology.gpus.len(), topology.switches.len());
        let (links, hosts) = (topology.host_links.len(), topology.hosts.len());
        let switch_in = |switch: SwitchId| (2 + gpus + switch.0) as u32;
        let link_node = |link: HostLinkId| (2 + gpus + switches + link.0) as u32;
        let host_node = |host: HostId| (2 + gpus + switches + links + host.0) as u32;
        let mut nodes = 2 + gpus + switches + links + hosts;
        self.edges.clear();
        self.links.clear();
        let spare: Vec<u64> = (0..gpus)
            .map(|gpu| problem.spare(GpuId(gpu)) / grain)
            .collect();
        let links_out = problem
            .remainders()
            .map(|(gpu, _)| topology.gpus[gpu.0].links.len());
        let is_dense = links_out.sum::<usize>() > many;
        self.gpu.clear();
        self.gpu.extend(problem.remainders().map(|(gpu, _)| gpu));
        let is_sender = |gpu: &GpuId| matches!(problem.shares[gpu.0], Share::Remainder(1..));
        self.gpu
            .extend((0..gpus).map(GpuId).filter(|gpu| !is_sender(gpu)));
        self.node.clear();
        self.node.resize(gpus, 0);
        for (node, gpu) in (2..).zip(&self.gpu) {
            self.node[gpu.0] = node;
        }
        let node = &self.node;
        let gpu_node = |gpu: GpuId| node[gpu.0];
        let mut total = 0;
        let (edges, direct) = (&mut self.edges, &mut self.links);
        let mut edge = |kind, from, to, volume, bandwidth: Option<u64>| {
            edges.push(Edge {
                kind,
                from,
                to,
                volume,
                bandwidth: bandwidth.unwrap_or(UNLIMITED),
            });
        };

        for (gpu, bytes) in problem.remainders() {
            let known = &topology.gpus[gpu.0];
            let (volume, node) = (bytes.div_ceil(grain), gpu_node(gpu));
            total += volume;
            edge(
                EdgeKind::Remainder(gpu.0),
                SOURCE,
                node,
                volume,
                known.egress,
            );
            if is_dense {
                direct.start_row(node);
                for &at in &known.links {
                    let link = &topology.links[at];
                    if spare[link.to.0] > 0 {
                        direct.push(at, gpu_node(link.to), link.bandwidth);
                    }
                }
            } else {
                // Each GPU begins with the peers of larger numbers, so that not all GPUs fill the same peers first.
                let behind = known
                    .links
                    .partition_point(|&at| topology.links[at].to < gpu);
                let (before, behind) = known.links.split_at(behind);
                for &at in behind.iter().chain(before) {
                    let link = &topology.links[at];
                    if spare[link.to.0] > 0 {
                        let (to, bandwidth) = (gpu_node(link.to), Some(link.bandwidth));
                        edge(EdgeKind::Link(at), node, to, UNLIMITED, bandwidth);
                    }
                }
            }
            for &at in &known.switch_ports {
                let port = &topology.switch_ports[at];
                let (to, bandwidth) = (switch_in(port.switch), Some(port.send));
                edge(EdgeKind::Send(at), node, to, UNLIMITED, bandwidth);
            }
            for &at in &known.host_ports {
                let port = &topology.host_ports[at];
                let (to, bandwidth) = (link_node(port.link), Some(port.bandwidth));
                edge(EdgeKind::HostPort(at), node, to, UNLIMITED, bandwidth);
            }
        }
        let mut switch_out = Vec::with_capacity(switches);
        for (at, switch) in topology.switches.iter().enumerate() {
            let entry = switch_in(SwitchId(at));
            if switch.bandwidth.is_none() {
                switch_out.push(entry);
                continue;
            }
            let exit = nodes as u32;
            nodes += 1;
            switch_out.push(exit);
            edge(
                EdgeKind::Backplane(at),
                entry,
                exit,
                UNLIMITED,
                switch.bandwidth,
            );
        }
        for (gpu, &volume) in spare.iter().enumerate().filter(|(_, spare)| **spare > 0) {
            let (known, node) = (&topology.gpus[gpu], gpu_node(GpuId(gpu)));
            for &at in &known.switch_ports {
                let port = &topology.switch_ports[at];
                let (from, bandwidth) = (switch_out[port.switch.0], Some(port.receive));
                edge(EdgeKind::Receive(at), from, node, UNLIMITED, bandwidth);
            }
            let volume = volume.min(total);
            edge(EdgeKind::Spare(gpu), node, SINK, volume, known.ingress);
        }
        for (at, link) in topology.host_links.iter().enumerate() {
            let (from, to) = (link_node(HostLinkId(at)), host_node(link.host));
            edge(
                EdgeKind::HostLink(at),
                from,
                to,
                UNLIMITED,
                Some(link.bandwidth),
            );
        }
        for (at, host) in topology.hosts.iter().enumerate() {
            let room = problem.host_spare[at] / grain;
            let volume = if room < total { room } else { UNLIMITED };
            let from = host_node(HostId(at));
            edge(EdgeKind::Host(at), from, SINK, volume, host.ingress);
        }
        direct.finish(nodes);
        (self.nodes, self.total, self.grain) = (nodes, total, grain);
    }

    /// Returns the node of a GPU.
    pub(crate) fn node(&self, gpu: GpuId) -> u32 {
        self.node[gpu.0]
    }

    /// Returns the GPU of a node, which must be the node of a GPU.
    pub(crate) fn gpu(&self, node: u32) -> GpuId {
        self.gpu[node as usize - 2]
    }

    /// Returns the edges that lead from nodes behind a cut to other nodes.
    pub(crate) fn across(
        &self,
        is_behind: impl Fn(u32) -> bool + Copy,
    ) -> impl Iterator<Item = Edge> {
        let edges = self.edges.iter().copied();
        let edges = edges.filter(move |edge| is_behind(edge.from) && !is_behind(edge.to));
        let rows = self.links.rows().filter(move |(from, _)| is_behind(*from));
        let links = rows.flat_map(move |(from, row)| {
            let links = row.filter(move |&at| !is_behind(self.links.to[at]));
            links.map(move |at| self.links.edge(from, at))
        });
        edges.chain(links)
    }

    /// Returns every edge. Links come after the others.
    pub(crate) fn all(&self) -> impl Iterator<Item = Edge> {
        self.edges.iter().copied().chain(self.links.edges())
    }
}

impl EdgeKind {
    /// Returns the limit that a full edge has met: its room or its bandwidth.
    pub(crate) fn limit(self, problem: &Problem<'_>, is_room: bool) -> Limit {
        let topology = problem.topology;
        match self {
            Self::Remainder(gpu) => Limit::Egress(GpuId(gpu)),
            Self::Spare(gpu) if is_room => Limit::Spare(GpuId(gpu)),
            Self::Spare(gpu) => Limit::Ingress(GpuId(gpu)),
            Self::Link(at) => Limit::Link {
                link: LinkId(at),
                from: topology.links[at].from,
                to: topology.links[at].to,
            },
            Self::Send(at) => Limit::SwitchSend {
                switch: topology.switch_ports[at].switch,
                gpu: topology.switch_ports[at].gpu,
            },
            Self::Receive(at) => Limit::SwitchReceive {
                switch: topology.switch_ports[at].switch,
                gpu: topology.switch_ports[at].gpu,
            },
            Self::Backplane(switch) => Limit::Switch(SwitchId(switch)),
            Self::HostPort(at) => Limit::HostPort {
                link: topology.host_ports[at].link,
                gpu: topology.host_ports[at].gpu,
            },
            Self::HostLink(link) => Limit::HostLink(HostLinkId(link)),
            Self::Host(host) if is_room => Limit::HostSpare(HostId(host)),
            Self::Host(host) => Limit::HostIngress(HostId(host)),
        }
    }
}
