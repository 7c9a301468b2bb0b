//! Machines that are widely used. The figures here suffice for a first schedule. Figures that a calibration measured on the
//! machine itself are better.

use super::{Gpu, GpuId, Host, HostId, HostLink, HostLinkId, HostPort, Link, Switch, SwitchPort};
use super::{SwitchId, Topology};

const GB: u64 = 1_000_000_000;

/// The NVLinks between the GPUs of a DGX-1 with V100: 1 or 2 of 24 GB/s each, as `nvidia-smi topo -m`
/// prints them.
const DGX_1_NVLINKS: [[u64; 8]; 8] = [
    [0, 1, 1, 2, 2, 0, 0, 0],
    [1, 0, 2, 1, 0, 2, 0, 0],
    [1, 2, 0, 2, 0, 0, 1, 0],
    [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2],
    [0, 2, 0, 0, 1, 0, 2, 1],
    [0, 0, 1, 0, 1, 2, 0, 2],
    [0, 0, 0, 1, 2, 1, 2, 0],
];

impl Topology {
    /// Makes an NVIDIA DGX-1: 8 V100 in a hybrid cube mesh, with the SC'22 showcase's figures (slides 15–17):
    /// 24 or 48 GB/s between linked peers, 12 GB/s to the host. Each pair of GPUs shares a PCIe
    /// switch and with it those 12 GB/s.
    pub fn dgx_1() -> Self {
        let mut topology = Self::with_gpus(8);
        for (from, row) in DGX_1_NVLINKS.iter().enumerate() {
            for (to, &nvlinks) in row.iter().enumerate().filter(|(_, nvlinks)| **nvlinks > 0) {
                topology.gpus[from].links.push(topology.links.len());
                topology.links.push(Link {
                    from: GpuId(from),
                    to: GpuId(to),
                    bandwidth: nvlinks * 24 * GB,
                });
            }
        }
        topology.with_uplinks(2, 12 * GB).counted()
    }

    /// Makes an NVIDIA DGX A100: 8 A100 on NVSwitch, 300 GB/s each way (data sheet); each pair shares a PCIe
    /// 4.0 switch with 25 GB/s to the host.
    pub fn dgx_a100() -> Self {
        let mut topology = Self::with_gpus(8);
        topology.put_on_switch(0..8, 300 * GB);
        topology.with_uplinks(2, 25 * GB).counted()
    }

    /// Makes an NVIDIA HGX H100: 8 H100 on NVSwitch. NVLink and PCIe are of the same generation as those of
    /// [`hgx_h200`](Self::hgx_h200), so the figures are the same.
    pub fn hgx_h100() -> Self {
        Self::hgx_h200()
    }

    /// Makes an NVIDIA HGX H200: 8 H200 on NVSwitch, 392 GB/s each way (measured between any pair), and 55 GB/s to the host
    /// (measured with one GPU), which pairs share. With all 8 GPUs at once, between 25 and 55 GB/s were measured.
    pub fn hgx_h200() -> Self {
        let mut topology = Self::with_gpus(8);
        topology.put_on_switch(0..8, 392 * GB);
        topology.with_uplinks(2, 55 * GB).counted()
    }

    /// Makes GPUs without NVLink on PCIe 4.0: each sends 25 GB/s to peers and host together, and receives 25 GB/s. Four GPUs
    /// share a switch, through which they reach one another, and its uplink of 25 GB/s to the host.
    pub fn pcie_only(gpus: usize) -> Self {
        let mut topology = Self::with_gpus(gpus);
        for gpu in &mut topology.gpus {
            (gpu.egress, gpu.ingress) = (Some(25 * GB), Some(25 * GB));
        }
        for first in (0..gpus).step_by(4) {
            topology.put_on_switch(first..gpus.min(first + 4), 25 * GB);
        }
        topology.with_uplinks(4, 25 * GB).counted()
    }

    fn with_gpus(gpus: usize) -> Self {
        Self {
            gpus: vec![Gpu::default(); gpus],
            ..Self::default()
        }
    }

    fn put_on_switch(&mut self, gpus: std::ops::Range<usize>, bandwidth: u64) {
        let switch = SwitchId(self.switches.len());
        self.switches.push(Switch::default());
        for gpu in gpus {
            self.gpus[gpu].switch_ports.push(self.switch_ports.len());
            self.switch_ports.push(SwitchPort {
                switch,
                gpu: GpuId(gpu),
                send: bandwidth,
                receive: bandwidth,
            });
        }
    }

    /// Adds one host, and for each `share` neighbouring GPUs one link to it.
    fn with_uplinks(mut self, share: usize, bandwidth: u64) -> Self {
        self.hosts.push(Host::default());
        for gpu in 0..self.gpus.len() {
            let link = HostLinkId(gpu / share);
            if gpu.is_multiple_of(share) {
                self.host_links.push(HostLink {
                    host: HostId(0),
                    bandwidth,
                });
            }
            self.gpus[gpu].host_ports.push(self.host_ports.len());
            self.host_ports.push(HostPort {
                link,
                gpu: GpuId(gpu),
                bandwidth,
            });
        }
        self
    }

    /// Sets the total of the bandwidths, which the checked methods count part by part. Presets are far below all limits.
    fn counted(mut self) -> Self {
        let gpus = self.gpus.iter().flat_map(|gpu| [gpu.egress, gpu.ingress]);
        let links = self.links.iter().map(|link| link.bandwidth);
        let ports = self
            .switch_ports
            .iter()
            .map(|port| port.send + port.receive);
        let host_links = self.host_links.iter().map(|link| link.bandwidth);
        let host_ports = self.host_ports.iter().map(|port| port.bandwidth);
        let all = gpus.flatten().chain(links).chain(ports);
        self.total = all.chain(host_links).chain(host_ports).sum();
        self
    }
}
