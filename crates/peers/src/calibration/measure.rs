//! Measures copies, with memory and streams for them.

use std::ops::Range;
use std::time::Duration;

use tierflow_device::{Device, HostReservation, Memory, PeerLink, Reservation, Stream};

use super::{Effort, way};
use crate::error::{DeviceContext, Result};
use crate::overflow::host_memory;
use crate::timed_copies::{self, TimedCopy};

/// Memory and streams for measuring a device.
struct Endpoint {
    /// The source of its copies, on the device.
    source: Memory,
    /// Addresses for memory of its peers, `bytes` for each.
    at_peers: Reservation,
    at_host: HostReservation,
    /// A stream for each peer, and one for the host.
    streams: Vec<Stream>,
}

/// A copy to measure: from a GPU to a peer, or to the host.
#[derive(Clone, Copy)]
struct CopySpec {
    from: usize,
    /// The peer; `None` for the host.
    to: Option<usize>,
    bytes: usize,
}

impl CopySpec {
    const fn new(from: usize, to: Option<usize>, bytes: usize) -> Self {
        Self { from, to, bytes }
    }
}

pub(super) struct Bench<'a> {
    devices: &'a [Device],
    endpoints: Vec<Endpoint>,
    /// The link from each device to each other device; `None` if there is no link.
    ways: Vec<Vec<Option<PeerLink>>>,
    bytes: usize,
    effort: Effort,
}

impl<'a> Bench<'a> {
    pub(super) fn new(devices: &'a [Device], effort: Effort) -> Result<Self> {
        let granularity = devices.iter().map(|device| device.info().granularity);
        let granularity = granularity.max().unwrap_or(1);
        let bytes = effort.bytes.max(1).checked_next_multiple_of(granularity);
        let bytes = bytes.unwrap_or(usize::MAX);
        let mut bench = Self {
            devices,
            endpoints: Vec::new(),
            ways: Vec::new(),
            bytes,
            effort,
        };
        for device in devices {
            let ways = devices.iter().map(|peer| way(device, peer));
            bench.ways.push(ways.collect::<Result<_>>()?);
        }
        for at in 0..devices.len() {
            let endpoint = bench.endpoint(at)?;
            bench.endpoints.push(endpoint);
        }
        Ok(bench)
    }

    fn endpoint(&self, at: usize) -> Result<Endpoint> {
        let device = &self.devices[at];
        let doing = || format!("memory for the calibration of GPU {at}");
        let source = device.alloc(self.bytes).when(doing)?;
        let at_peers = device
            .reserve(self.bytes * self.devices.len())
            .when(doing)?;
        let streams = self.devices.iter().map(|_| device.stream());
        let streams: Vec<_> = streams
            .chain([device.stream()])
            .collect::<tierflow_device::Result<_>>()
            .when(doing)?;
        for (peer, to) in self.devices.iter().enumerate() {
            if self.ways[at][peer].is_some() {
                let room = self.room(peer);
                at_peers
                    .map_on(room, to)
                    .when(|| format!("memory of GPU {peer} for GPU {at}"))?;
            }
        }
        let at_host = host_memory(device, self.bytes).when(doing)?;
        let all = source.lend_mut(0..self.bytes).when(doing)?;
        let mut all = all;
        streams[0].fill(&mut all, 0x5a).when(doing)?;
        drop(all);
        Ok(Endpoint {
            source,
            at_peers,
            at_host,
            streams,
        })
    }

    fn room(&self, peer: usize) -> Range<usize> {
        peer * self.bytes..(peer + 1) * self.bytes
    }

    pub(super) fn way(&self, from: usize, to: usize) -> Option<PeerLink> {
        self.ways[from][to]
    }

    /// Measures the bytes per second from a device to a peer.
    pub(super) fn alone(&self, from: usize, to: usize) -> Result<f64> {
        self.best(&[CopySpec::new(from, Some(to), self.bytes)])
    }

    /// Measures the bytes per second from a device to these peers at once; `None` if there is no peer.
    pub(super) fn send(&self, from: usize, peers: &[usize]) -> Result<Option<f64>> {
        let copies: Vec<_> = peers
            .iter()
            .map(|&peer| CopySpec::new(from, Some(peer), self.bytes))
            .collect();
        self.best_of_some(&copies)
    }

    /// Measures the bytes per second from these peers to a device at once; `None` if there is no peer.
    pub(super) fn receive(&self, to: usize, peers: &[usize]) -> Result<Option<f64>> {
        let copies: Vec<_> = peers
            .iter()
            .map(|&peer| CopySpec::new(peer, Some(to), self.bytes))
            .collect();
        self.best_of_some(&copies)
    }

    /// Measures the bytes per second from a device to these peers and the host at once. Chooses the lengths so that all copies
    /// end together if they do not disturb each other.
    pub(super) fn send_all(
        &self,
        from: usize,
        peers: &[usize],
        to_peers: f64,
        to_host: f64,
    ) -> Result<f64> {
        let for_peers = (self.bytes * peers.len()) as f64;
        let for_host = ((for_peers * to_host / to_peers) as usize).max(1);
        // If the host is faster than a peer, the peers get fewer bytes.
        let scale = (self.bytes as f64 / for_host as f64).min(1.0);
        let scaled = |bytes: usize| ((bytes as f64 * scale) as usize).clamp(1, self.bytes);
        let mut copies: Vec<_> = peers
            .iter()
            .map(|&peer| CopySpec::new(from, Some(peer), scaled(self.bytes)))
            .collect();
        copies.push(CopySpec::new(from, None, scaled(for_host)));
        self.best(&copies)
    }

    /// Measures the bytes per second from these devices to the host at once.
    pub(super) fn to_host(&self, gpus: &[usize]) -> Result<f64> {
        let copies: Vec<_> = gpus
            .iter()
            .map(|&gpu| CopySpec::new(gpu, None, self.bytes))
            .collect();
        self.best(&copies)
    }

    fn best_of_some(&self, copies: &[CopySpec]) -> Result<Option<f64>> {
        if copies.is_empty() {
            return Ok(None);
        }
        self.best(copies).map(Some)
    }

    /// Measures the bytes per second of all these copies together. The fastest trial counts.
    fn best(&self, copies: &[CopySpec]) -> Result<f64> {
        let bytes: usize = copies.iter().map(|copy| copy.bytes).sum();
        let mut shortest = Duration::MAX;
        // There is one more trial than `trials`, to warm up.
        for _ in 0..=self.effort.trials {
            let timed_copies = copies.iter().map(|copy| self.timed_copy(*copy));
            let timed_copies = timed_copies.collect::<Result<Vec<_>>>()?;
            let took = timed_copies::run(
                "a copy of the calibration",
                timed_copies,
                self.effort.patience,
            )?;
            shortest = shortest.min(took.into_iter().max().unwrap_or_default());
        }
        Ok(bytes as f64 / shortest.max(Duration::from_nanos(1)).as_secs_f64())
    }

    fn timed_copy(&self, copy: CopySpec) -> Result<TimedCopy<'_>> {
        let CopySpec { from, to, bytes } = copy;
        let endpoint = &self.endpoints[from];
        let doing = || format!("a copy of the calibration from GPU {from}");
        let (memory, start, stream) = match to {
            Some(peer) => (endpoint.at_peers.memory(), self.room(peer).start, peer),
            None => (endpoint.at_host.memory(), 0, self.devices.len()),
        };
        Ok(TimedCopy {
            stream: &endpoint.streams[stream],
            from: endpoint.source.lend(0..bytes).when(doing)?,
            to: memory.lend_mut(start..start + bytes).when(doing)?,
        })
    }
}
