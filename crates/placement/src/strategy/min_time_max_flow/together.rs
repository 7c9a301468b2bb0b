//! The least time of all GPUs together: peers take the bytes that they have room for, and the hosts take the rest. On large
//! machines, the bound saves the flows at times that are far too short.

use super::optimum::{Optimum, is_room};
use crate::ExactTime;
use crate::flow::{Edge, EdgeKind, Network, SINK};

/// The kinds of edges at which the paths to the hosts are cut, the kind nearest to the hosts first.
const AT_HOSTS: [fn(EdgeKind) -> bool; 3] = [
    |kind| matches!(kind, EdgeKind::Host(_)),
    |kind| matches!(kind, EdgeKind::HostLink(_)),
    |kind| matches!(kind, EdgeKind::HostPort(_)),
];

/// Raises the optimum's time to the latest time that one of these cuts proves necessary, if that is later.
pub(super) fn raise(network: &Network, optimum: &mut Optimum) {
    let is_end = |edge: &&Edge| {
        matches!(edge.kind, EdgeKind::Spare(_)) || AT_HOSTS.iter().any(|at| at(edge.kind))
    };
    let ends: Vec<&Edge> = network.edges.iter().filter(is_end).collect();
    let mut latest = None;
    for (at, at_hosts) in AT_HOSTS.iter().enumerate() {
        let is_cut = |edge: &&&Edge| matches!(edge.kind, EdgeKind::Spare(_)) || at_hosts(edge.kind);
        let cut: Vec<&Edge> = ends.iter().filter(is_cut).copied().collect();
        while let Some(time) = needed(network, &cut, optimum.time) {
            latest = Some((at, optimum.time));
            optimum.time = time;
        }
    }
    let Some((at, cut_at)) = latest else {
        return;
    };
    optimum.cut_at = cut_at;
    optimum.behind.fill(true);
    optimum.behind[SINK as usize] = false;
    // Beyond the cut are the hosts, and the links between it and them.
    for beyond in &AT_HOSTS[..at] {
        for edge in ends.iter().filter(|edge| beyond(edge.kind)) {
            optimum.behind[edge.from as usize] = false;
        }
    }
}

/// Returns the time that a cut proves necessary, if that is later than `time`. `time` decides whether room or bandwidth
/// limits each edge.
fn needed(network: &Network, cut: &[&Edge], time: ExactTime) -> Option<ExactTime> {
    let (mut room, mut bandwidth) = (0_u64, 0_u64);
    for edge in cut {
        if is_room(edge, time) {
            room = room.saturating_add(edge.volume);
        } else {
            bandwidth = bandwidth.saturating_add(edge.bandwidth);
        }
    }
    let later = ExactTime::new(network.total.checked_sub(room)?, bandwidth)?;
    (later > time).then_some(later)
}
