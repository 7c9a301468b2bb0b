use super::Strategy;
use crate::{Destination, GpuId, HostId, HostLinkId, PlacementError, Problem, Route, Schedule};
use crate::{Topology, Transfer};

/// The strategy that sends every remainder to the GPU's hosts, by the fastest host link first, as checkpointing
/// runtimes do without peers (SC'22 showcase, slide 15, "local-only").
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalOnly;

impl Strategy for LocalOnly {
    fn schedule(&mut self, problem: &Problem<'_>) -> Result<Schedule, PlacementError> {
        let mut room = HostRoom::new(problem);
        let mut transfers = Vec::new();
        for (from, bytes) in problem.remainders() {
            if problem.topology.gpus[from.0].host_ports.is_empty() {
                return Err(PlacementError::Disconnected { gpu: from, bytes });
            }
            room.take(from, 0, bytes, &mut transfers)?;
        }
        Ok(Schedule::new(problem, transfers, None))
    }

    fn name(&self) -> &'static str {
        "local-only"
    }
}

/// The bytes that hosts still have room for.
pub(super) struct HostRoom<'a> {
    topology: &'a Topology,
    alignment: u64,
    left: Vec<u64>,
}

impl<'a> HostRoom<'a> {
    pub(super) fn new(problem: &Problem<'a>) -> Self {
        Self {
            topology: problem.topology,
            alignment: problem.alignment,
            left: problem.host_spare.clone(),
        }
    }

    /// Adds transfers to hosts for all bytes of a remainder from `offset` to `end`, over the fastest link first.
    pub(super) fn take(
        &mut self,
        from: GpuId,
        mut offset: u64,
        end: u64,
        transfers: &mut Vec<Transfer>,
    ) -> Result<(), PlacementError> {
        for (link, host) in host_links(self.topology, from) {
            let room = &mut self.left[host.0];
            let bytes = fitting(end - offset, *room, self.alignment);
            if bytes > 0 {
                *room = room.saturating_sub(bytes.next_multiple_of(self.alignment));
                transfers.push(Transfer {
                    from,
                    to: Destination::Host(host),
                    via: Route::Host(link),
                    offset,
                    bytes,
                });
                offset += bytes;
            }
        }
        if offset < end {
            return Err(PlacementError::DoesNotFit {
                gpus: vec![from],
                missing: end - offset,
            });
        }
        Ok(())
    }
}

/// Returns how many of `bytes` fit `room`: all, or a multiple of the alignment.
pub(super) fn fitting(bytes: u64, room: u64, alignment: u64) -> u64 {
    bytes.min(room / alignment * alignment)
}

/// Returns the host links of a GPU and their hosts, the fastest first.
fn host_links(topology: &Topology, gpu: GpuId) -> Vec<(HostLinkId, HostId)> {
    let ports = topology.gpus[gpu.0].host_ports.iter();
    let mut links: Vec<_> = ports
        .map(|&port| {
            let port = &topology.host_ports[port];
            let link = &topology.host_links[port.link.0];
            (port.bandwidth.min(link.bandwidth), port.link, link.host)
        })
        .collect();
    links.sort_by_key(|&(bandwidth, ..)| std::cmp::Reverse(bandwidth));
    links
        .into_iter()
        .map(|(_, link, host)| (link, host))
        .collect()
}
