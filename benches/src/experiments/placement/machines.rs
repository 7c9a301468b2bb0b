//! Machines larger than one node, and shares to place on them.

use tierflow_placement::{GpuId, HostLinkId, Share, Topology, TopologyError};

use crate::random::mix;

/// A function that makes a machine of a number of GPUs.
pub type MakeTopology = fn(usize) -> Result<Topology, TopologyError>;

/// Machines of any number of GPUs: the name, the function, and the most GPUs that are measured.
pub const LARGE: [(&str, MakeTopology, usize); 3] = [
    ("nodes", nodes, 4096),
    ("nvswitch", nvswitch, 4096),
    ("mesh", mesh, 1024),
];

/// Makes nodes of 8 GPUs. Each node has an NVSwitch, and a host with a link for each pair of GPUs. A network between the nodes has 50
/// GB/s for each GPU.
///
/// # Errors
/// An error if there are too many GPUs to compute with.
pub fn nodes(gpus: usize) -> Result<Topology, TopologyError> {
    let mut topology = Topology::new();
    let network = topology.switch();
    for first in (0..gpus).step_by(8) {
        let nvswitch = topology.switch();
        let host = topology.host();
        for at in first..gpus.min(first + 8) {
            let gpu = topology.gpu();
            topology.port(nvswitch, gpu, 392e9)?;
            topology.port(network, gpu, 50e9)?;
            if at.is_multiple_of(2) {
                topology.host_link(host, 55e9)?;
            }
            topology.host_port(HostLinkId(at / 2), gpu, 55e9)?;
        }
    }
    Ok(topology)
}

/// Makes a machine with all GPUs on one switch and one host, four GPUs to a host link.
///
/// # Errors
/// An error if there are too many GPUs to compute with.
pub fn nvswitch(gpus: usize) -> Result<Topology, TopologyError> {
    let mut topology = with_host(gpus)?;
    let switch = topology.switch();
    for gpu in 0..gpus {
        topology.port(switch, GpuId(gpu), 392e9)?;
    }
    Ok(topology)
}

/// Makes a machine with a link of 24 or 48 GB/s from each GPU to each other, and one host. The links have no structure that a strategy
/// could use.
///
/// # Errors
/// An error if there are too many GPUs to compute with.
pub fn mesh(gpus: usize) -> Result<Topology, TopologyError> {
    let mut topology = with_host(gpus)?;
    for from in 0..gpus {
        for to in (0..gpus).filter(|to| *to != from) {
            let is_double = random((from * gpus + to) as u64).is_multiple_of(2);
            let bandwidth = if is_double { 48e9 } else { 24e9 };
            topology.link(GpuId(from), GpuId(to), bandwidth)?;
        }
    }
    Ok(topology)
}

fn with_host(gpus: usize) -> Result<Topology, TopologyError> {
    let mut topology = Topology::new();
    let host = topology.host();
    for at in 0..gpus {
        let gpu = topology.gpu();
        if at.is_multiple_of(4) {
            topology.host_link(host, 55e9)?;
        }
        topology.host_port(HostLinkId(at / 4), gpu, 55e9)?;
    }
    Ok(topology)
}

/// Draws shares: every second GPU has up to twice `mean` bytes too much, the others have as much to spare.
pub fn shares(gpus: usize, mean: u64, seed: u64) -> Vec<Share> {
    shares_with(1, gpus, mean, seed)
}

/// Draws the shares of [`shares`], with `times` times as much to spare.
pub(super) fn shares_with(times: u64, gpus: usize, mean: u64, seed: u64) -> Vec<Share> {
    let bytes = |gpu: usize| random(seed * 1_000_003 + gpu as u64) % (2 * mean) + 1;
    (0..gpus)
        .map(|gpu| match gpu % 2 {
            0 => Share::Remainder(bytes(gpu)),
            _ => Share::Spare(times * bytes(gpu)),
        })
        .collect()
}

/// Pseudo-random numbers that are the same in every run.
pub(super) fn random(seed: u64) -> u64 {
    mix(seed.wrapping_add(1))
}
