//! A measured machine: its file, and its topology.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tierflow_device::Device;
use tierflow_placement::{GpuId, HostLinkId, Topology};

use crate::error::{Error, Result};

/// The format of the file.
const FORMAT: u32 = 1;
/// The share by which bandwidths may differ and count as equal: two measurements of one link differ by as much.
const ALIKE: f64 = 0.08;

/// GPUs and the bandwidths between them and to their host, in bytes per second. [`calibrate`](crate::calibrate) measures
/// a machine, [`save`](Self::save) writes it to a TOML file, and [`topology`](Self::topology) makes a [`Topology`] of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    format: u32,
    /// Bandwidth of all GPUs to the host at once.
    to_host: f64,
    #[serde(rename = "gpu")]
    gpus: Vec<Gpu>,
    #[serde(rename = "link", default)]
    links: Vec<Link>,
    #[serde(rename = "host_link")]
    host_links: Vec<HostLink>,
}

/// A GPU. GPUs are numbered from 0, in the order of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// The driver's name of the GPU.
    pub name: String,
    /// Address on the PCI bus; `None` on the host back end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<String>,
    /// The NUMA node next to the GPU, if the machine names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Bandwidth to the host, while no other GPU sends.
    pub to_host: f64,
    /// Bandwidth to all peers at once; `None` without peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_peers: Option<f64>,
    /// Bandwidth from all peers at once; `None` without peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_peers: Option<f64>,
    /// Bandwidth to all peers and the host at once; `None` without peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_all: Option<f64>,
}

/// The link from one GPU to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The GPU that sends.
    pub from: usize,
    /// The GPU that receives.
    pub to: usize,
    /// Bandwidth, while no other link is used.
    pub bandwidth: f64,
    /// The driver's rank of the link, see [`PeerLink`](tierflow_device::PeerLink).
    pub performance_rank: i32,
    /// True if the link has atomic operations in hardware, as NVLink does.
    pub native_atomics: bool,
}

/// A link to the host that GPUs share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLink {
    /// The GPUs.
    pub gpus: Vec<usize>,
    /// Bandwidth of all of these GPUs together.
    pub bandwidth: f64,
}

impl Machine {
    pub(crate) fn measured(
        gpus: Vec<Gpu>,
        links: Vec<Link>,
        host_links: Vec<HostLink>,
        to_host: f64,
    ) -> Self {
        Self {
            format: FORMAT,
            to_host,
            gpus,
            links,
            host_links,
        }
    }

    /// Returns the GPUs.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Returns the links between the GPUs.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the links to the host. Each GPU is on one of them.
    pub fn host_links(&self) -> &[HostLink] {
        &self.host_links
    }

    /// Returns the bandwidth of all GPUs together to the host.
    pub fn to_host(&self) -> f64 {
        self.to_host
    }

    /// Writes the machine to a file.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written; [`Error::Format`] if the machine cannot be written as TOML.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = toml::to_string(self).map_err(|error| Error::Format {
            path: path.to_owned(),
            format: FORMAT,
            why: error.to_string(),
        })?;
        std::fs::write(path, text).map_err(|why| Error::File {
            doing: "write",
            path: path.to_owned(),
            why,
        })
    }

    /// Reads a file that [`save`](Self::save) or a person wrote.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be read; [`Error::Format`] if it has another format; [`Error::NoDevices`] if it describes no GPU;
    /// [`Error::Description`] if it names a GPU that it does not describe, or a GPU is not on exactly one host link.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|why| Error::File {
            doing: "read",
            path: path.to_owned(),
            why,
        })?;
        let wrong = |why: String| Error::Format {
            path: path.to_owned(),
            format: FORMAT,
            why,
        };
        // The format comes first, as another format may have other fields.
        let table: toml::Table = text.parse().map_err(|error| wrong(format!("{error}")))?;
        match table.get("format").and_then(toml::Value::as_integer) {
            Some(format) if format == i64::from(FORMAT) => {}
            Some(format) => return Err(wrong(format!("its format is {format}"))),
            None => return Err(wrong("it has no `format`".to_owned())),
        }
        let machine: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        machine.check()?;
        Ok(machine)
    }

    /// Checks that these devices are the machine's GPUs, in its order.
    ///
    /// # Errors
    /// [`Error::OtherMachine`] names the first GPU that differs.
    pub fn fits(&self, devices: &[Device]) -> Result<()> {
        for at in 0..self.gpus.len().max(devices.len()) {
            let expected = self.gpus.get(at).map(|gpu| named(&gpu.name, &gpu.bus_id));
            let found = devices
                .get(at)
                .map(|device| named(&device.info().name, &device.bus_id()));
            if expected != found {
                let missing = || "missing".to_owned();
                return Err(Error::OtherMachine {
                    gpu: GpuId(at),
                    expected: expected.unwrap_or_else(missing),
                    found: found.unwrap_or_else(missing),
                });
            }
        }
        Ok(())
    }

    /// Returns the topology for scheduling. If all links are equal, and no GPU sends more to all peers than to one, the GPUs
    /// are on a switch. Otherwise each link is a link of the topology. In both cases, the measured bandwidth to and from all
    /// limits the links of a GPU together.
    ///
    /// # Errors
    /// [`Error::Description`] and [`Error::Topology`] name the node that is wrong.
    pub fn topology(&self) -> Result<Topology> {
        self.check()?;
        let mut topology = Topology::new();
        for _ in &self.gpus {
            topology.gpu();
        }
        match self.ports() {
            Some(ports) => {
                let switch = topology.switch();
                for (gpu, bandwidth) in ports.into_iter().enumerate() {
                    topology.port(switch, GpuId(gpu), bandwidth)?;
                }
            }
            None => {
                for link in &self.links {
                    topology.link(GpuId(link.from), GpuId(link.to), link.bandwidth)?;
                }
            }
        }
        for (at, gpu) in self.gpus.iter().enumerate() {
            self.limit(&mut topology, at, gpu)?;
        }
        let host = topology.host();
        let mut apart = 0.0;
        for (at, link) in self.host_links.iter().enumerate() {
            topology.host_link(host, link.bandwidth)?;
            apart += link.bandwidth;
            for &gpu in &link.gpus {
                let own = self.gpus[gpu].to_host;
                topology.host_port(HostLinkId(at), GpuId(gpu), own)?;
            }
        }
        if self.to_host < apart {
            topology.host_ingress(host, self.to_host)?;
        }
        Ok(topology)
    }

    /// Returns the bandwidth of each GPU's port, if a switch describes the links.
    fn ports(&self) -> Option<Vec<f64>> {
        let count = self.gpus.len();
        let bandwidths = || self.links.iter().map(|link| link.bandwidth);
        let (least, most) = (
            bandwidths().reduce(f64::min)?,
            bandwidths().reduce(f64::max)?,
        );
        if self.links.len() != count * (count - 1) || least < (1.0 - 2.0 * ALIKE) * most {
            return None;
        }
        let ports = self.gpus.iter().enumerate().map(|(at, gpu)| {
            let out = self.links.iter().filter(|link| link.from == at);
            let alone = out.map(|link| link.bandwidth).reduce(f64::max)?;
            let together = gpu.to_peers?;
            (together <= (1.0 + ALIKE) * alone).then_some(together.max(alone))
        });
        ports.collect()
    }

    /// Limits the bandwidth with which a GPU sends and receives at once to the measured bandwidth, if its links together have more. A
    /// difference of 2% counts, too: without the limit, the predicted time would be off by as much.
    fn limit(&self, topology: &mut Topology, at: usize, gpu: &Gpu) -> Result<()> {
        let of = |ours: fn(&Link) -> usize| {
            let links = self.links.iter().filter(move |link| ours(link) == at);
            links.map(|link| link.bandwidth)
        };
        let is_switch = self.ports().is_some();
        let sends: f64 = if is_switch {
            gpu.to_peers.unwrap_or_default()
        } else {
            of(|link| link.from).sum()
        };
        if let Some(to_all) = gpu.to_all
            && to_all < sends + gpu.to_host
        {
            topology.egress(GpuId(at), to_all)?;
        }
        let receives: f64 = if is_switch {
            gpu.to_peers.unwrap_or_default()
        } else {
            of(|link| link.to).sum()
        };
        if let Some(from_peers) = gpu.from_peers
            && from_peers < receives
        {
            topology.ingress(GpuId(at), from_peers)?;
        }
        Ok(())
    }

    /// Checks that every GPU in the links is described, and that every GPU is on one host link.
    fn check(&self) -> Result<()> {
        let wrong = |node: String, why: &str| Error::Description {
            node,
            why: why.to_owned(),
        };
        let count = self.gpus.len();
        if count == 0 {
            return Err(Error::NoDevices);
        }
        for link in &self.links {
            let node = || format!("the link from GPU {} to GPU {}", link.from, link.to);
            if link.from >= count || link.to >= count {
                return Err(wrong(node(), "one of them is not described"));
            }
            if link.from == link.to {
                return Err(wrong(node(), "a GPU has no link to itself"));
            }
        }
        let mut on = vec![0; count];
        for (at, link) in self.host_links.iter().enumerate() {
            for &gpu in &link.gpus {
                let Some(on) = on.get_mut(gpu) else {
                    let why = format!("GPU {gpu} is not described");
                    return Err(wrong(format!("host link {at}"), &why));
                };
                *on += 1;
            }
        }
        match on.iter().position(|links| *links != 1) {
            None => Ok(()),
            Some(gpu) => Err(wrong(format!("GPU {gpu}"), "it must be on one host link")),
        }
    }
}

fn named(name: &str, bus_id: &Option<String>) -> String {
    match bus_id {
        Some(bus_id) => format!("{name} at {bus_id}"),
        None => name.to_owned(),
    }
}
