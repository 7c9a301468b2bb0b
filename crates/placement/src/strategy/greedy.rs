use std::cmp::Reverse;

use super::Strategy;
use super::local_only::{HostRoom, fitting};
use crate::{Destination, GpuId, LinkId, PlacementError, Problem, Route, Schedule, SwitchId};
use crate::{Topology, Transfer};

/// The strategy that serves one GPU after the other, the largest remainder first. Each GPU fills the fastest peer that
/// has spare capacity, then the next, and sends the rest to its host (MASCOTS'21; SC'22 showcase, slide 16).
///
/// Greedy may find no place for bytes that another order would have placed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl Strategy for Greedy {
    fn schedule(&mut self, problem: &Problem<'_>) -> Result<Schedule, PlacementError> {
        let topology = problem.topology;
        let mut spare: Vec<u64> = (0..topology.gpus())
            .map(|gpu| problem.spare(GpuId(gpu)))
            .collect();
        let mut room = HostRoom::new(problem);
        let mut remainders: Vec<_> = problem.remainders().collect();
        remainders.sort_by_key(|&(_, bytes)| Reverse(bytes));

        let mut transfers = Vec::new();
        for (from, remainder) in remainders {
            let peers = peers(topology, from, &spare);
            if peers.is_empty() && topology.gpus[from.0].host_ports.is_empty() {
                return Err(PlacementError::Disconnected {
                    gpu: from,
                    bytes: remainder,
                });
            }
            let mut offset = 0;
            for (_, Reverse(peer), Reverse(via)) in peers {
                let bytes = fitting(remainder - offset, spare[peer.0], problem.alignment);
                if bytes > 0 {
                    let taken = bytes.next_multiple_of(problem.alignment);
                    spare[peer.0] = spare[peer.0].saturating_sub(taken);
                    transfers.push(Transfer {
                        from,
                        to: Destination::Peer(peer),
                        via,
                        offset,
                        bytes,
                    });
                    offset += bytes;
                }
            }
            room.take(from, offset, remainder, &mut transfers)?;
        }
        transfers.sort_by_key(|transfer| (transfer.from, transfer.offset));
        Ok(Schedule::new(problem, transfers, None))
    }

    fn name(&self) -> &'static str {
        "greedy"
    }
}

/// Returns the peers with spare capacity that a GPU reaches, the fastest first: bandwidth, peer and route.
fn peers(
    topology: &Topology,
    from: GpuId,
    spare: &[u64],
) -> Vec<(u64, Reverse<GpuId>, Reverse<Route>)> {
    let gpu = &topology.gpus[from.0];
    let links = gpu.links.iter().map(|&at| {
        let link = &topology.links[at];
        let via = Route::Link(LinkId(at));
        (link.bandwidth, Reverse(link.to), Reverse(via))
    });
    let ports = gpu.switch_ports.iter().flat_map(|&at| {
        let ours = &topology.switch_ports[at];
        let SwitchId(switch) = ours.switch;
        let backplane = topology.switches[switch].bandwidth.unwrap_or(u64::MAX);
        let ports = topology.switch_ports.iter();
        ports
            .filter(|port| port.switch == ours.switch && port.gpu != from)
            .map(move |port| {
                let bandwidth = ours.send.min(port.receive).min(backplane);
                let via = Route::Switch(ours.switch);
                (bandwidth, Reverse(port.gpu), Reverse(via))
            })
    });
    let mut peers: Vec<_> = links
        .chain(ports)
        .filter(|(_, Reverse(peer), _)| spare[peer.0] > 0)
        .collect();
    peers.sort_unstable_by(|a, b| b.cmp(a));
    peers
}
