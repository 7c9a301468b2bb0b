use crate::{Destination, ExactTime, GpuId, HostLinkId, Limit, LinkId, Problem, Route, Topology};
use crate::{SwitchId, Transfer};

/// How many bytes a set of transfers puts on everything that has a bandwidth.
#[derive(Debug)]
pub(crate) struct Loads<'a> {
    topology: &'a Topology,
    egress: Vec<u64>,
    ingress: Vec<u64>,
    links: Vec<u64>,
    send: Vec<u64>,
    receive: Vec<u64>,
    switches: Vec<u64>,
    host_ports: Vec<u64>,
    host_links: Vec<u64>,
    hosts: Vec<u64>,
}

impl<'a> Loads<'a> {
    pub(crate) fn of(problem: &Problem<'a>, transfers: &[Transfer]) -> Self {
        let topology = problem.topology;
        let ports = topology.switch_ports.len();
        let mut loads = Self {
            topology,
            egress: vec![0; topology.gpus.len()],
            ingress: vec![0; topology.gpus.len()],
            links: vec![0; topology.links.len()],
            send: vec![0; ports],
            receive: vec![0; ports],
            switches: vec![0; topology.switches.len()],
            host_ports: vec![0; topology.host_ports.len()],
            host_links: vec![0; topology.host_links.len()],
            hosts: vec![0; topology.hosts.len()],
        };
        for transfer in transfers {
            loads.add(transfer);
        }
        loads
    }

    fn add(&mut self, transfer: &Transfer) {
        let (from, bytes) = (&self.topology.gpus[transfer.from.0], transfer.bytes);
        self.egress[transfer.from.0] += bytes;
        match transfer.to {
            Destination::Peer(peer) => self.ingress[peer.0] += bytes,
            Destination::Host(host) => self.hosts[host.0] += bytes,
        }
        match transfer.via {
            Route::Link(link) => self.links[link.0] += bytes,
            Route::Switch(switch) => {
                self.switches[switch.0] += bytes;
                if let Some(port) = self.topology.port_on(from, switch) {
                    self.send[port] += bytes;
                }
                if let Destination::Peer(peer) = transfer.to
                    && let Some(port) = self.topology.port_on(&self.topology.gpus[peer.0], switch)
                {
                    self.receive[port] += bytes;
                }
            }
            Route::Host(link) => {
                self.host_links[link.0] += bytes;
                let mut ports = from.host_ports.iter();
                if let Some(&port) =
                    ports.find(|&&port| self.topology.host_ports[port].link == link)
                {
                    self.host_ports[port] += bytes;
                }
            }
        }
    }

    /// The longest time that anything takes, and what takes it.
    pub(crate) fn longest(&self) -> (ExactTime, Option<Limit>) {
        let topology = self.topology;
        let mut longest = Longest(ExactTime::ZERO, None);
        for (gpu, known) in topology.gpus.iter().enumerate() {
            longest.or(self.egress[gpu], known.egress, || Limit::Egress(GpuId(gpu)));
            longest.or(self.ingress[gpu], known.ingress, || {
                Limit::Ingress(GpuId(gpu))
            });
        }
        for (at, link) in topology.links.iter().enumerate() {
            longest.or(self.links[at], Some(link.bandwidth), || Limit::Link {
                link: LinkId(at),
                from: link.from,
                to: link.to,
            });
        }
        for (at, port) in topology.switch_ports.iter().enumerate() {
            let (switch, gpu) = (port.switch, port.gpu);
            longest.or(self.send[at], Some(port.send), || Limit::SwitchSend {
                switch,
                gpu,
            });
            longest.or(self.receive[at], Some(port.receive), || {
                Limit::SwitchReceive { switch, gpu }
            });
        }
        for (at, switch) in topology.switches.iter().enumerate() {
            longest.or(self.switches[at], switch.bandwidth, || {
                Limit::Switch(SwitchId(at))
            });
        }
        for (at, port) in topology.host_ports.iter().enumerate() {
            let (link, gpu) = (port.link, port.gpu);
            longest.or(self.host_ports[at], Some(port.bandwidth), || {
                Limit::HostPort { link, gpu }
            });
        }
        for (at, link) in topology.host_links.iter().enumerate() {
            longest.or(self.host_links[at], Some(link.bandwidth), || {
                Limit::HostLink(HostLinkId(at))
            });
        }
        for (at, host) in topology.hosts.iter().enumerate() {
            longest.or(self.hosts[at], host.ingress, || {
                Limit::HostIngress(crate::HostId(at))
            });
        }
        (longest.0, longest.1)
    }
}

struct Longest(ExactTime, Option<Limit>);

impl Longest {
    fn or(&mut self, bytes: u64, bandwidth: Option<u64>, limit: impl FnOnce() -> Limit) {
        // Comparing comes before the division that brings a time into lowest terms.
        let Some(bandwidth) = bandwidth.filter(|_| bytes > 0) else {
            return;
        };
        let ours = u128::from(bytes) * u128::from(self.0.denominator());
        if ours > u128::from(self.0.numerator()) * u128::from(bandwidth)
            && let Some(time) = ExactTime::new(bytes, bandwidth)
        {
            *self = Self(time, Some(limit()));
        }
    }
}
