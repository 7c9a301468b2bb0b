//! The optimum in whole grains, from the divided optimum upwards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::optimum::{Optimum, shift};
use crate::flow::{Carried, Edge, EdgeKind, Network, Residual, UNLIMITED};
use crate::time::Fraction;
use crate::{ExactTime, PlacementError, Problem};

/// Changes `residual`, the optimum's flow, into a flow that places everything in whole grains as early as possible.
///
/// The optimum's cut proves a first time, and the minimum cuts of the flows that follow prove later times, until
/// everything is placed. Capacities only grow, so each flow is augmented to the next one.
///
/// # Errors
/// [`PlacementError::DoesNotFit`] if no time is enough; the optimum rules this out.
pub(super) fn find(
    problem: &Problem<'_>,
    network: &Network,
    optimum: &Optimum,
    residual: &mut Residual,
) -> Result<(), PlacementError> {
    // The divided optimum rules this error out.
    let fits_nowhere = |placed: u64| PlacementError::DoesNotFit {
        gpus: problem.remainders().map(|(gpu, _)| gpu).collect(),
        missing: (network.total - placed) * network.grain,
    };
    let time = after(network, |node| optimum.is_behind_cut(node), optimum.time);
    let mut time = time.ok_or_else(|| fits_nowhere(0))?;
    let mut carried = Carried::by(time, 0, network.total);
    let mut placed = residual.coarsen(network, shift(network), carried);
    // Paths to the sink are never taken back. Hosts come last, so peers get all that they can take.
    let mut with_hosts = false;
    while placed < network.total {
        residual.set_links(carried);
        for (at, edge) in network.edges.iter().enumerate() {
            if with_hosts || !matches!(edge.kind, EdgeKind::Host(_)) {
                residual.set_capacity(at, carried.through(edge));
            }
        }
        placed += residual.augment(network, network.total - placed);
        if with_hosts && placed < network.total {
            let later = after(network, |node| residual.is_behind_cut(node), time);
            time = later.ok_or_else(|| fits_nowhere(placed))?;
            carried = Carried::by(time, 0, network.total);
        }
        with_hosts = true;
    }
    Ok(())
}

/// Edges across the cut with the same bandwidth and no volume, or a single edge with a bandwidth and a volume.
struct Group {
    bandwidth: u64,
    count: u64,
    /// Grains that each edge can carry in addition.
    room: u64,
}

/// Returns the first time from `time` on at which the edges across a cut carry enough whole grains; `None` if there is
/// no such time.
fn after(
    network: &Network,
    is_behind: impl Fn(u32) -> bool + Copy,
    time: ExactTime,
) -> Option<ExactTime> {
    let by = Carried::by(time, 0, network.total);
    let mut fixed = 0;
    let mut growing: Vec<Edge> = Vec::new();
    for edge in network.across(is_behind) {
        let carried = by.through(&edge);
        if carried == edge.volume {
            fixed += carried;
        } else {
            growing.push(edge);
        }
    }
    if fixed == network.total {
        return Some(time);
    }
    // Divisible bytes need at least this time. Starting from it saves most of the single steps.
    let bandwidth = growing.iter().map(|edge| edge.bandwidth).sum();
    let time = ExactTime::new(network.total - fixed, bandwidth)?.max(time);

    let by = Carried::by(time, 0, network.total);
    let mut missing = network.total - fixed;
    growing.sort_unstable_by_key(|edge| edge.bandwidth);
    let mut groups: Vec<Group> = Vec::new();
    let mut steps = BinaryHeap::new();
    for edge in growing {
        let carried = by.through(&edge);
        missing = missing.saturating_sub(carried);
        let room = if edge.volume == UNLIMITED {
            UNLIMITED
        } else {
            edge.volume - carried
        };
        if room == 0 {
            continue;
        }
        if let Some(last) = groups.last_mut()
            && (last.bandwidth, last.room, room) == (edge.bandwidth, UNLIMITED, UNLIMITED)
        {
            last.count += 1;
            continue;
        }
        let first = Fraction {
            bytes: carried + 1,
            bandwidth: edge.bandwidth,
        };
        steps.push(Reverse((first, groups.len())));
        groups.push(Group {
            bandwidth: edge.bandwidth,
            count: 1,
            room,
        });
    }
    let mut time = time;
    while missing > 0 {
        let Reverse((step, at)) = steps.pop()?;
        let group = &mut groups[at];
        time = ExactTime::new(step.bytes, step.bandwidth)?;
        missing = missing.saturating_sub(group.count);
        if group.room != UNLIMITED {
            group.room -= 1;
        }
        if group.room > 0 {
            let next = Fraction {
                bytes: step.bytes + 1,
                bandwidth: step.bandwidth,
            };
            steps.push(Reverse((next, at)));
        }
    }
    Some(time)
}
