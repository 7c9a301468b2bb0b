//! Calibrates links: measures copies between pairs of devices and to the host, alone and together.

mod measure;

use std::time::Duration;

use tierflow_device::Device;
use tierflow_placement::GpuId;

use crate::error::{DeviceContext, Error, Result};
use crate::machine::{Gpu, HostLink, Link, Machine};
use measure::Bench;

/// The thoroughness of a calibration. The default takes well under a second, and 1.3 GiB of each GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effort {
    /// Bytes of a copy. With too few, the start of a copy dominates.
    pub bytes: usize,
    /// Number of trials, of which the fastest counts. More trials filter out more disturbances.
    pub trials: usize,
    /// The longest time of a copy.
    pub patience: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            trials: 4,
            patience: Duration::from_secs(10),
        }
    }
}

impl Effort {
    /// Returns this effort with copies of `bytes` bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Returns this effort with `trials` trials.
    #[must_use]
    pub fn trials(mut self, trials: usize) -> Self {
        self.trials = trials;
        self
    }
}

/// Two GPUs that together send less than this share of their separate bandwidths share a link to the host.
const SHARED: f64 = 0.85;

/// Measures the bandwidth of the links between devices, and from them to the host: each link alone; each device to all peers, to all
/// peers and the host, and from all peers; each pair of devices to the host; the devices that share a link to the host; and all
/// devices to the host. GPU n is the n-th device.
///
/// Other programs should leave the devices idle meanwhile.
///
/// # Errors
/// [`Error::NoDevices`] without a device; [`Error::Twice`] if two devices are the same; [`Error::TimedOut`] if a copy takes longer than the
/// patience; [`Error::Device`] if memory is short or a copy fails; [`Error::System`] if no thread can be started.
pub fn calibrate(devices: &[Device], effort: Effort) -> Result<Machine> {
    distinct(devices)?;
    let bench = Bench::new(devices, effort)?;
    let count = devices.len();
    let mut links = Vec::new();
    for from in 0..count {
        for to in (0..count).filter(|to| *to != from) {
            let Some(way) = bench.way(from, to) else {
                continue;
            };
            links.push(Link {
                from,
                to,
                bandwidth: bench.alone(from, to)?,
                performance_rank: way.performance_rank,
                native_atomics: way.native_atomics,
            });
        }
    }
    let mut gpus = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        let out: Vec<&Link> = links.iter().filter(|link| link.from == at).collect();
        let into: Vec<usize> = links
            .iter()
            .filter(|link| link.to == at)
            .map(|link| link.from)
            .collect();
        let peers: Vec<usize> = out.iter().map(|link| link.to).collect();
        let to_host = bench.to_host(&[at])?;
        let to_peers = bench.send(at, &peers)?;
        gpus.push(Gpu {
            name: device.info().name.clone(),
            bus_id: device.bus_id(),
            numa_node: device.numa_node(),
            to_host,
            to_peers,
            from_peers: bench.receive(at, &into)?,
            to_all: match to_peers {
                Some(to_peers) => Some(bench.send_all(at, &peers, to_peers, to_host)?),
                None => None,
            },
        });
    }
    let groups = sharing(&bench, &gpus)?;
    let mut host_links = Vec::new();
    for gpus in groups {
        let bandwidth = bench.to_host(&gpus)?;
        host_links.push(HostLink { gpus, bandwidth });
    }
    let all: Vec<usize> = (0..count).collect();
    let to_host = bench.to_host(&all)?;
    Ok(Machine::measured(gpus, links, host_links, to_host))
}

fn distinct(devices: &[Device]) -> Result<()> {
    if devices.is_empty() {
        return Err(Error::NoDevices);
    }
    for (other, device) in devices.iter().enumerate() {
        if let Some(one) = devices[..other].iter().position(|one| one.is_same(device)) {
            let (one, other) = (GpuId(one), GpuId(other));
            return Err(Error::Twice { one, other });
        }
    }
    Ok(())
}

/// Returns groups of GPUs that share a link to the host.
fn sharing(bench: &Bench<'_>, gpus: &[Gpu]) -> Result<Vec<Vec<usize>>> {
    let mut group: Vec<usize> = (0..gpus.len()).collect();
    for one in 0..gpus.len() {
        for other in one + 1..gpus.len() {
            let apart = gpus[one].to_host + gpus[other].to_host;
            if bench.to_host(&[one, other])? < SHARED * apart {
                let (keep, gone) = (group[one], group[other]);
                for member in group.iter_mut().filter(|member| **member == gone) {
                    *member = keep;
                }
            }
        }
    }
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); gpus.len()];
    for (gpu, of) in group.into_iter().enumerate() {
        groups[of].push(gpu);
    }
    groups.retain(|group| !group.is_empty());
    Ok(groups)
}

/// Returns the link from one device to another's memory.
fn way(from: &Device, to: &Device) -> Result<Option<tierflow_device::PeerLink>> {
    from.link_to(to).when(|| {
        let (from, to) = (&from.info().ordinal, &to.info().ordinal);
        format!("asking how device {from} reaches device {to}")
    })
}
