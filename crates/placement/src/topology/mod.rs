mod ids;
mod presets;

pub use ids::{GpuId, HostId, HostLinkId, Limit, LinkId, SwitchId};

use crate::{MAX_BANDWIDTH, MAX_TOTAL_BANDWIDTH, TopologyError};

/// The links between the GPUs of a group and to their hosts, with bandwidths in bytes per
/// second.
///
/// A GPU reaches a peer over a *link* between the two (NVLink), or through a *switch* on which both have a port (NVSwitch,
/// a PCIe switch, a network). A GPU reaches a host over a *host link*, which several GPUs may share. All of them carry data
/// at the same time, as each GPU has enough copy engines (SC'22 showcase, slide 61). The *egress* of a GPU may limit the
/// bytes that it sends to all destinations together; its *ingress* may limit the bytes that peers send to it.
///
/// A switch of n ports stands for n² links, and is scheduled n times faster.
///
/// ```
/// use tierflow_placement::Topology;
///
/// let mut topology = Topology::new();
/// let (a, b) = (topology.gpu(), topology.gpu());
/// topology.link_both(a, b, 48e9)?;
/// topology.egress(a, 50e9)?;
/// // The two share 12 GB/s to one host.
/// let host = topology.host();
/// let uplink = topology.host_link(host, 12e9)?;
/// topology.host_port(uplink, a, 12e9)?;
/// topology.host_port(uplink, b, 12e9)?;
/// # Ok::<(), tierflow_placement::TopologyError>(())
/// ```
///
/// A walk over the edges of a `petgraph` graph makes it a topology:
///
/// ```
/// use petgraph::graph::DiGraph;
/// use tierflow_placement::Topology;
///
/// let graph = DiGraph::<(), f64>::from_edges([(0, 1, 48e9), (1, 0, 48e9), (1, 2, 96e9)]);
/// let mut topology = Topology::new();
/// let gpus: Vec<_> = graph.node_indices().map(|_| topology.gpu()).collect();
/// for edge in graph.raw_edges() {
///     let (from, to) = (edge.source().index(), edge.target().index());
///     topology.link(gpus[from], gpus[to], edge.weight)?;
/// }
/// assert_eq!(topology.gpus(), 3);
/// # Ok::<(), tierflow_placement::TopologyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) links: Vec<Link>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) switch_ports: Vec<SwitchPort>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) host_links: Vec<HostLink>,
    pub(crate) host_ports: Vec<HostPort>,
    total: u64,
}

/// A GPU of the topology, with indices into the topology's lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) egress: Option<u64>,
    pub(crate) ingress: Option<u64>,
    /// Links that leave this GPU.
    pub(crate) links: Vec<usize>,
    pub(crate) switch_ports: Vec<usize>,
    pub(crate) host_ports: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) from: GpuId,
    pub(crate) to: GpuId,
    pub(crate) bandwidth: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) bandwidth: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwitchPort {
    pub(crate) switch: SwitchId,
    pub(crate) gpu: GpuId,
    pub(crate) send: u64,
    pub(crate) receive: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) ingress: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostLink {
    pub(crate) host: HostId,
    pub(crate) bandwidth: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) link: HostLinkId,
    pub(crate) gpu: GpuId,
    pub(crate) bandwidth: u64,
}

impl Topology {
    /// Makes a topology without a GPU.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of GPUs, which are counted from 0.
    pub fn gpus(&self) -> usize {
        self.gpus.len()
    }

    /// Returns the number of hosts, which are counted from 0.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Adds a GPU without links.
    pub fn gpu(&mut self) -> GpuId {
        self.gpus.push(Gpu::default());
        GpuId(self.gpus.len() - 1)
    }

    /// Limits a GPU to sending `bandwidth` bytes/s to peers and hosts together.
    ///
    /// # Errors
    /// [`NoSuchGpu`](TopologyError::NoSuchGpu) if the GPU is unknown, [`Twice`](TopologyError::Twice) if it has a limit
    /// already, [`BadBandwidth`](TopologyError::BadBandwidth) or [`TotalBandwidth`](TopologyError::TotalBandwidth) if the
    /// bandwidth is out of range or too much in all.
    pub fn egress(&mut self, gpu: GpuId, bandwidth: f64) -> Result<(), TopologyError> {
        let at = Limit::Egress(gpu);
        if self.known(gpu)?.egress.is_some() {
            return Err(TopologyError::Twice { at });
        }
        self.gpus[gpu.0].egress = Some(self.bandwidth(at, bandwidth)?);
        Ok(())
    }

    /// Limits all peers together to sending `bandwidth` bytes/s to a GPU.
    ///
    /// # Errors
    /// The errors of [`egress`](Self::egress).
    pub fn ingress(&mut self, gpu: GpuId, bandwidth: f64) -> Result<(), TopologyError> {
        let at = Limit::Ingress(gpu);
        if self.known(gpu)?.ingress.is_some() {
            return Err(TopologyError::Twice { at });
        }
        self.gpus[gpu.0].ingress = Some(self.bandwidth(at, bandwidth)?);
        Ok(())
    }

    /// Adds a link that carries `bandwidth` bytes/s from one GPU to another, and nothing back.
    ///
    /// # Errors
    /// [`NoSuchGpu`](TopologyError::NoSuchGpu) if a GPU is unknown, [`SelfLink`](TopologyError::SelfLink) if both are the
    /// same, [`BadBandwidth`](TopologyError::BadBandwidth) or [`TotalBandwidth`](TopologyError::TotalBandwidth) if the
    /// bandwidth is out of range or too much in all.
    pub fn link(
        &mut self,
        from: GpuId,
        to: GpuId,
        bandwidth: f64,
    ) -> Result<LinkId, TopologyError> {
        self.known(from)?;
        self.known(to)?;
        if from == to {
            return Err(TopologyError::SelfLink(from));
        }
        let link = LinkId(self.links.len());
        let bandwidth = self.bandwidth(Limit::Link { link, from, to }, bandwidth)?;
        self.gpus[from.0].links.push(link.0);
        self.links.push(Link {
            from,
            to,
            bandwidth,
        });
        Ok(link)
    }

    /// Adds two links, one each way, of `bandwidth` bytes/s each.
    ///
    /// # Errors
    /// The errors of [`link`](Self::link), which add no link.
    pub fn link_both(&mut self, a: GpuId, b: GpuId, bandwidth: f64) -> Result<(), TopologyError> {
        let total = self.total;
        self.link(a, b, bandwidth)?;
        if let Err(error) = self.link(b, a, bandwidth) {
            self.links.pop();
            self.gpus[a.0].links.pop();
            self.total = total;
            return Err(error);
        }
        Ok(())
    }

    /// Adds a switch whose only limits are those of its ports.
    pub fn switch(&mut self) -> SwitchId {
        self.switches.push(Switch::default());
        SwitchId(self.switches.len() - 1)
    }

    /// Limits a switch to carrying `bandwidth` bytes/s in all.
    ///
    /// # Errors
    /// [`NoSuchSwitch`](TopologyError::NoSuchSwitch) if the switch is unknown, [`Twice`](TopologyError::Twice) if it has a
    /// limit already, [`BadBandwidth`](TopologyError::BadBandwidth) or [`TotalBandwidth`](TopologyError::TotalBandwidth) if
    /// the bandwidth is out of range or too much in all.
    pub fn backplane(&mut self, switch: SwitchId, bandwidth: f64) -> Result<(), TopologyError> {
        let at = Limit::Switch(switch);
        let known = self.switches.get(switch.0);
        let known = known.ok_or(TopologyError::NoSuchSwitch(switch))?;
        if known.bandwidth.is_some() {
            return Err(TopologyError::Twice { at });
        }
        self.switches[switch.0].bandwidth = Some(self.bandwidth(at, bandwidth)?);
        Ok(())
    }

    /// Puts a GPU on a switch, with `bandwidth` bytes/s each way.
    ///
    /// # Errors
    /// [`NoSuchSwitch`](TopologyError::NoSuchSwitch) or [`NoSuchGpu`](TopologyError::NoSuchGpu) if one of them is unknown,
    /// [`Twice`](TopologyError::Twice) if the GPU is on the switch already, [`BadBandwidth`](TopologyError::BadBandwidth) or
    /// [`TotalBandwidth`](TopologyError::TotalBandwidth) if the bandwidth is out of range or too much in all.
    pub fn port(
        &mut self,
        switch: SwitchId,
        gpu: GpuId,
        bandwidth: f64,
    ) -> Result<(), TopologyError> {
        if switch.0 >= self.switches.len() {
            return Err(TopologyError::NoSuchSwitch(switch));
        }
        let at = Limit::SwitchSend { switch, gpu };
        if self.port_on(self.known(gpu)?, switch).is_some() {
            return Err(TopologyError::Twice { at });
        }
        let (send, receive) =
            self.both_ways(at, Limit::SwitchReceive { switch, gpu }, bandwidth)?;
        self.gpus[gpu.0].switch_ports.push(self.switch_ports.len());
        self.switch_ports.push(SwitchPort {
            switch,
            gpu,
            send,
            receive,
        });
        Ok(())
    }

    /// Adds a host whose only limits are those of its host links.
    pub fn host(&mut self) -> HostId {
        self.hosts.push(Host::default());
        HostId(self.hosts.len() - 1)
    }

    /// Limits all GPUs together to writing `bandwidth` bytes/s to a host.
    ///
    /// # Errors
    /// [`NoSuchHost`](TopologyError::NoSuchHost) if the host is unknown, [`Twice`](TopologyError::Twice) if it has a limit
    /// already, [`BadBandwidth`](TopologyError::BadBandwidth) or [`TotalBandwidth`](TopologyError::TotalBandwidth) if the
    /// bandwidth is out of range or too much in all.
    pub fn host_ingress(&mut self, host: HostId, bandwidth: f64) -> Result<(), TopologyError> {
        let at = Limit::HostIngress(host);
        let known = self
            .hosts
            .get(host.0)
            .ok_or(TopologyError::NoSuchHost(host))?;
        if known.ingress.is_some() {
            return Err(TopologyError::Twice { at });
        }
        self.hosts[host.0].ingress = Some(self.bandwidth(at, bandwidth)?);
        Ok(())
    }

    /// Adds a link to a host that GPUs can share, of `bandwidth` bytes/s in all.
    ///
    /// # Errors
    /// [`NoSuchHost`](TopologyError::NoSuchHost) if the host is unknown, [`BadBandwidth`](TopologyError::BadBandwidth) or
    /// [`TotalBandwidth`](TopologyError::TotalBandwidth) if the bandwidth is out of range or too much in all.
    pub fn host_link(&mut self, host: HostId, bandwidth: f64) -> Result<HostLinkId, TopologyError> {
        if host.0 >= self.hosts.len() {
            return Err(TopologyError::NoSuchHost(host));
        }
        let link = HostLinkId(self.host_links.len());
        let bandwidth = self.bandwidth(Limit::HostLink(link), bandwidth)?;
        self.host_links.push(HostLink { host, bandwidth });
        Ok(link)
    }

    /// Puts a GPU on a host link. The GPU alone can send `bandwidth` bytes/s over it.
    ///
    /// # Errors
    /// [`NoSuchHostLink`](TopologyError::NoSuchHostLink) or [`NoSuchGpu`](TopologyError::NoSuchGpu) if one of them is
    /// unknown, [`Twice`](TopologyError::Twice) if the GPU is on the link already,
    /// [`BadBandwidth`](TopologyError::BadBandwidth) or [`TotalBandwidth`](TopologyError::TotalBandwidth) if the bandwidth
    /// is out of range or too much in all.
    pub fn host_port(
        &mut self,
        link: HostLinkId,
        gpu: GpuId,
        bandwidth: f64,
    ) -> Result<(), TopologyError> {
        if link.0 >= self.host_links.len() {
            return Err(TopologyError::NoSuchHostLink(link));
        }
        let at = Limit::HostPort { link, gpu };
        let ports = &self.known(gpu)?.host_ports;
        if ports.iter().any(|&port| self.host_ports[port].link == link) {
            return Err(TopologyError::Twice { at });
        }
        let bandwidth = self.bandwidth(at, bandwidth)?;
        self.gpus[gpu.0].host_ports.push(self.host_ports.len());
        self.host_ports.push(HostPort {
            link,
            gpu,
            bandwidth,
        });
        Ok(())
    }

    /// Returns the index of the port that a GPU has on a switch.
    pub(crate) fn port_on(&self, gpu: &Gpu, switch: SwitchId) -> Option<usize> {
        let mut ports = gpu.switch_ports.iter().copied();
        ports.find(|&port| self.switch_ports[port].switch == switch)
    }

    fn known(&self, gpu: GpuId) -> Result<&Gpu, TopologyError> {
        let gpus = self.gpus.len();
        self.gpus
            .get(gpu.0)
            .ok_or(TopologyError::NoSuchGpu { gpu, gpus })
    }

    /// Returns a bandwidth in whole bytes per second, and adds it to the total.
    /// Counts a bandwidth each way. An error counts neither.
    fn both_ways(
        &mut self,
        one: Limit,
        other: Limit,
        bandwidth: f64,
    ) -> Result<(u64, u64), TopologyError> {
        let total = self.total;
        let one = self.bandwidth(one, bandwidth)?;
        let other = self.bandwidth(other, bandwidth);
        let other = other.inspect_err(|_| self.total = total)?;
        Ok((one, other))
    }

    fn bandwidth(&mut self, at: Limit, bandwidth: f64) -> Result<u64, TopologyError> {
        if !(1.0..=MAX_BANDWIDTH as f64).contains(&bandwidth) {
            return Err(TopologyError::BadBandwidth { at, bandwidth });
        }
        let whole = bandwidth.round() as u64;
        let total = self.total.saturating_add(whole);
        if total > MAX_TOTAL_BANDWIDTH {
            return Err(TopologyError::TotalBandwidth { at });
        }
        self.total = total;
        Ok(whole)
    }
}

/// Returns the GPUs' names, as in `GPU 0, GPU 3`.
pub(crate) fn names(gpus: &[GpuId]) -> String {
    let names: Vec<_> = gpus.iter().map(GpuId::to_string).collect();
    names.join(", ")
}
