//! The optimum in whole grains, from the divided optimum upwards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::optimum::Optimum;
use crate::flow::{Edge, EdgeKind, Network, Residual, UNLIMITED};
use crate::time::Fraction;
use crate::{ExactTime, PlacementError, Problem};

/// Makes `residual` a flow that places everything in whole grains as early as that is possible.
///
/// The optimum's cut proves a first time, and the minimum cuts of the flows that follow prove later ones,
/// until everything is placed. As capacities only grow, each flow is gone on with for the next.
pub(super) fn find(
    problem: &Problem<'_>,
    network: &Network,
    optimum: &Optimum,
    residual: &mut Residual<u64>,
) -> Result<(), PlacementError> {
    residual.reset(network);
    let mut placed = 0;
    let mut time = after(network, |node| optimum.is_behind_cut(node), optimum.time);
    // Hosts come last, and paths to the sink are never taken back: peers get what they can.
    let mut with_hosts = false;
    while placed < network.total {
        // The divided optimum rules out that there is none.
        let by = time.ok_or_else(|| PlacementError::DoesNotFit {
            gpus: problem.remainders().map(|(gpu, _)| gpu).collect(),
            missing: (network.total - placed) * network.grain,
        })?;
        let mut floors = Floors::at(by);
        for (at, edge) in network.edges.iter().enumerate() {
            if with_hosts || !matches!(edge.kind, EdgeKind::Host(_)) {
                residual.set_capacity(at, floors.of(edge));
            }
        }
        placed += residual.augment();
        if with_hosts && placed < network.total {
            time = after(network, |node| residual.is_behind_cut(node), by);
        }
        with_hosts = true;
    }
    Ok(())
}

/// How many whole grains edges carry by a time.
struct Floors {
    time: ExactTime,
    /// The last answer: neighbouring links are often equal, and 128-bit division is slow.
    last: (u64, u64),
}

impl Floors {
    fn at(time: ExactTime) -> Self {
        Self { time, last: (0, 0) }
    }

    fn of(&mut self, edge: &Edge) -> u64 {
        if edge.bandwidth == UNLIMITED {
            return edge.volume;
        }
        if self.last.0 != edge.bandwidth {
            self.last = (edge.bandwidth, self.carried(edge.bandwidth));
        }
        edge.volume.min(self.last.1)
    }

    fn carried(&self, bandwidth: u64) -> u64 {
        let (grains, denominator) = (self.time.numerator(), self.time.denominator());
        match bandwidth.checked_mul(grains) {
            Some(product) => product / denominator,
            None => {
                let product = u128::from(bandwidth) * u128::from(grains);
                let carried = product / u128::from(denominator);
                u64::try_from(carried).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Edges across the cut that have the same bandwidth and no volume, or one that has both.
struct Group {
    bandwidth: u64,
    count: u64,
    /// How many grains more each can carry.
    room: u64,
}

/// The first time from `time` on at which what crosses a cut carries enough whole grains; `None` if there is
/// none.
fn after(network: &Network, is_behind: impl Fn(u32) -> bool, time: ExactTime) -> Option<ExactTime> {
    let mut floors = Floors::at(time);
    let mut fixed = 0;
    let mut growing: Vec<&Edge> = Vec::new();
    for edge in &network.edges {
        if !is_behind(edge.from) || is_behind(edge.to) {
            continue;
        }
        let carried = floors.of(edge);
        if carried == edge.volume {
            fixed += carried;
        } else {
            growing.push(edge);
        }
    }
    if fixed == network.total {
        return Some(time);
    }
    // Divided at will, they need this long at least. It saves most of the single steps.
    let bandwidth = growing.iter().map(|edge| edge.bandwidth).sum();
    let time = ExactTime::new(network.total - fixed, bandwidth)?.max(time);

    let mut floors = Floors::at(time);
    let mut missing = network.total - fixed;
    growing.sort_unstable_by_key(|edge| edge.bandwidth);
    let mut groups: Vec<Group> = Vec::new();
    let mut steps = BinaryHeap::new();
    for edge in growing {
        let carried = floors.of(edge);
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
