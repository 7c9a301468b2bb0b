use crate::topology::Link;
use crate::{Destination, ExactTime, GpuId, HostLinkId, Limit, Problem, Route, Topology};
use crate::{SwitchId, Transfer};

/// Bytes that a set of transfers sends through each limit of bandwidth.
#[derive(Debug)]
pub(crate) struct Loads<'a> {
    topology: &'a Topology,
    /// The busiest of the links.
    links: Longest,
    egress: Vec<u64>,
    ingress: Vec<u64>,
    send: Vec<u64>,
    receive: Vec<u64>,
    switches: Vec<u64>,
    host_ports: Vec<u64>,
    host_links: Vec<u64>,
    hosts: Vec<u64>,
}

impl<'a> Loads<'a> {
    /// Counts the bytes of transfers. No two transfers may take the same link between GPUs.
    pub(crate) fn of(problem: &Problem<'a>, transfers: &[Transfer]) -> Self {
        let topology = problem.topology;
        let ports = topology.switch_ports.len();
        let mut loads = Self {
            topology,
            links: Longest(ExactTime::ZERO, 0.0, None),
            egress: vec![0; topology.gpus.len()],
            ingress: vec![0; topology.gpus.len()],
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
            // Each transfer has its link alone, so there is nothing to add up.
            Route::Link(link) => {
                let Link {
                    from,
                    to,
                    bandwidth,
                } = self.topology.links[link.0];
                let limit = || Limit::Link { link, from, to };
                self.links.or(bytes, Some(bandwidth), limit);
            }
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

    /// Returns the longest time that a limit takes, and the limit.
    pub(crate) fn longest(self) -> (ExactTime, Option<Limit>) {
        let topology = self.topology;
        let mut longest = self.links;
        for (gpu, known) in topology.gpus.iter().enumerate() {
            longest.or(self.egress[gpu], known.egress, || Limit::Egress(GpuId(gpu)));
            longest.or(self.ingress[gpu], known.ingress, || {
                Limit::Ingress(GpuId(gpu))
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
        (longest.0, longest.2)
    }
}

/// A ratio below this one is no effect of rounding.
const NEARLY: f64 = 1.0 - 1e-9;

/// The longest time, the same in seconds, and the limit that takes it.
#[derive(Clone, Copy, Debug)]
struct Longest(ExactTime, f64, Option<Limit>);

impl Longest {
    fn or(&mut self, bytes: u64, bandwidth: Option<u64>, limit: impl FnOnce() -> Limit) {
        let Some(bandwidth) = bandwidth.filter(|_| bytes > 0) else {
            return;
        };
        // Most times are much shorter. The exact comparison costs more, and the division into lowest terms costs most.
        if (bytes as f64) < self.1 * bandwidth as f64 * NEARLY {
            return;
        }
        let ours = u128::from(bytes) * u128::from(self.0.denominator());
        if ours > u128::from(self.0.numerator()) * u128::from(bandwidth)
            && let Some(time) = ExactTime::new(bytes, bandwidth)
        {
            *self = Self(time, time.as_secs_f64(), Some(limit()));
        }
    }
}
