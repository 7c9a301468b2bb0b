//! Machines larger than one node, and shares to place on them.

use tierflow_placement::{Share, Topology};

/// A machine with so many GPUs.
pub type Machine = fn(usize) -> Topology;

/// Machines that can have any number of GPUs, by name.
pub const LARGE: [(&str, Machine); 3] =
    [("nodes", nodes), ("nvswitch", nvswitch), ("mesh", mesh)];

/// Nodes of 8 GPUs: NVSwitch and a host in each, and a network of 50 GB/s for each GPU between them.
pub fn nodes(gpus: usize) -> Topology {
    let build = || {
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
                topology.host_port(tierflow_placement::HostLinkId(at / 2), gpu, 55e9)?;
            }
        }
        Ok::<_, tierflow_placement::TopologyError>(topology)
    };
    build().unwrap_or_default()
}

/// All GPUs on one switch, four to a link to one host.
pub fn nvswitch(gpus: usize) -> Topology {
    let build = || {
        let mut topology = with_host(gpus)?;
        let switch = topology.switch();
        for gpu in 0..gpus {
            topology.port(switch, tierflow_placement::GpuId(gpu), 392e9)?;
        }
        Ok::<_, tierflow_placement::TopologyError>(topology)
    };
    build().unwrap_or_default()
}

/// A link between any two GPUs, of one or two NVLinks.
pub fn mesh(gpus: usize) -> Topology {
    let build = || {
        let mut topology = with_host(gpus)?;
        for from in 0..gpus {
            for to in (0..gpus).filter(|to| *to != from) {
                let nvlinks = 1 + (random((from * gpus + to) as u64) % 2) as u32;
                let (from, to) = (tierflow_placement::GpuId(from), tierflow_placement::GpuId(to));
                topology.link(from, to, 24e9 * f64::from(nvlinks))?;
            }
        }
        Ok::<_, tierflow_placement::TopologyError>(topology)
    };
    build().unwrap_or_default()
}

fn with_host(gpus: usize) -> Result<Topology, tierflow_placement::TopologyError> {
    let mut topology = Topology::new();
    let host = topology.host();
    for at in 0..gpus {
        let gpu = topology.gpu();
        if at.is_multiple_of(4) {
            topology.host_link(host, 55e9)?;
        }
        topology.host_port(tierflow_placement::HostLinkId(at / 4), gpu, 55e9)?;
    }
    Ok(topology)
}

/// Every second GPU has up to twice `mean` bytes too much, the others as much to spare.
pub fn shares(gpus: usize, mean: u64, seed: u64) -> Vec<Share> {
    let bytes = |gpu: usize| random(seed * 1_000_003 + gpu as u64) % (2 * mean) + 1;
    (0..gpus)
        .map(|gpu| match gpu % 2 {
            0 => Share::Remainder(bytes(gpu)),
            _ => Share::Spare(bytes(gpu)),
        })
        .collect()
}

/// Pseudo-random numbers that are the same in every run (SplitMix64).
fn random(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
