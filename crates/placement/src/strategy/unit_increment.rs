use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;

use super::Strategy;
use crate::flow::{Edge, Network, Pieces, SINK, SOURCE, UNLIMITED};
use crate::time::Fraction;
use crate::{GpuId, PlacementError, Problem, Schedule};

/// The strategy of min-time max-flow one unit at a time, as published (MASCOTS'21; SC'22 showcase, slides 17 and 60).
///
/// The cost of a link is the time at which one unit more would have passed it. Each step sends one unit along the path
/// whose most expensive link is cheapest, and so raises the costs of the path's links. A link in reverse costs nothing
/// and takes an earlier decision back. The result is optimal in whole units. The strategy takes O(F · E log N) for F
/// units, E links and N nodes, so its time grows with the number of bytes. [`MinTimeMaxFlow`](crate::MinTimeMaxFlow)
/// has no such factor.
#[derive(Clone, Debug)]
pub struct UnitIncrement {
    unit: NonZeroU64,
}

impl UnitIncrement {
    /// Makes a strategy that moves `unit` bytes at a time, rounded up to the problem's alignment.
    pub fn new(unit: NonZeroU64) -> Self {
        Self { unit }
    }
}

impl Strategy for UnitIncrement {
    fn schedule(&mut self, problem: &Problem<'_>) -> Result<Schedule, PlacementError> {
        let alignment = problem.alignment;
        let grain = self.unit.get().checked_next_multiple_of(alignment);
        let grain = grain
            .filter(|grain| *grain <= crate::MAX_BYTES)
            .ok_or(PlacementError::BadAlignment(self.unit.get()))?;
        problem.check_total(grain)?;
        let network = Network::new(problem, grain);
        let mut search = Search::new(&network);
        for sent in 0..network.total {
            if !search.increment() {
                return Err(PlacementError::DoesNotFit {
                    gpus: search.unplaced(problem),
                    missing: (network.total - sent) * grain,
                });
            }
        }
        let transfers = Pieces::default().transfers(problem, &network, |edge| search.flow[edge]);
        Ok(Schedule::new(problem, transfers, None))
    }

    fn name(&self) -> &'static str {
        "unit-increment"
    }
}

struct Search {
    all: Vec<Edge>,
    flow: Vec<u64>,
    /// The edges at each node.
    edges: Vec<Vec<usize>>,
    /// Cost of the cheapest path to each node; `None` if no path was found yet.
    cost: Vec<Option<Fraction>>,
    /// Last edge of the cheapest path to each node.
    by: Vec<usize>,
}

const NOTHING: Fraction = Fraction {
    bytes: 0,
    bandwidth: 1,
};

impl Search {
    fn new(network: &Network) -> Self {
        let all: Vec<Edge> = network.all().collect();
        let mut edges = vec![Vec::new(); network.nodes];
        for (at, edge) in all.iter().enumerate() {
            edges[edge.from as usize].push(at);
            edges[edge.to as usize].push(at);
        }
        Self {
            flow: vec![0; all.len()],
            all,
            edges,
            cost: vec![None; network.nodes],
            by: vec![0; network.nodes],
        }
    }

    /// Sends one unit more. Returns false if there is no path.
    fn increment(&mut self) -> bool {
        self.cost.fill(None);
        self.cost[SOURCE as usize] = Some(NOTHING);
        // The heap returns the cheapest node first, and of equal nodes the one with the fewest hops.
        let mut open = BinaryHeap::from([Reverse((NOTHING, 0_u32, SOURCE))]);
        while let Some(Reverse((cost, hops, node))) = open.pop() {
            if node == SINK {
                self.send();
                return true;
            }
            if self.cost[node as usize].is_some_and(|known| known < cost) {
                continue;
            }
            for &at in &self.edges[node as usize] {
                let edge = &self.all[at];
                let Some((to, own)) = step(edge, self.flow[at], node) else {
                    continue;
                };
                let cost = cost.max(own);
                if self.cost[to as usize].is_none_or(|known| cost < known) {
                    self.cost[to as usize] = Some(cost);
                    self.by[to as usize] = at;
                    open.push(Reverse((cost, hops + 1, to)));
                }
            }
        }
        false
    }

    fn send(&mut self) {
        let mut node = SINK;
        while node != SOURCE {
            let at = self.by[node as usize];
            let edge = &self.all[at];
            if edge.to == node {
                self.flow[at] += 1;
                node = edge.from;
            } else {
                self.flow[at] -= 1;
                node = edge.to;
            }
        }
    }

    /// Returns the GPUs that have units left to send.
    fn unplaced(&self, problem: &Problem<'_>) -> Vec<GpuId> {
        let edges = self.all.iter().zip(&self.flow);
        let is_left = |gpu: GpuId| {
            edges.clone().any(|(edge, flow)| {
                edge.kind == crate::flow::EdgeKind::Remainder(gpu.0) && *flow < edge.volume
            })
        };
        let gpus = problem.remainders().map(|(gpu, _)| gpu);
        gpus.filter(|gpu| is_left(*gpu)).collect()
    }
}

/// Returns the node that one unit can reach from `node` by an edge, and the cost of the step.
fn step(edge: &Edge, flow: u64, node: u32) -> Option<(u32, Fraction)> {
    if edge.to == node {
        return (flow > 0).then_some((edge.from, NOTHING));
    }
    let cost = match edge.bandwidth {
        UNLIMITED => NOTHING,
        bandwidth => Fraction {
            bytes: flow + 1,
            bandwidth,
        },
    };
    (flow < edge.volume).then_some((edge.to, cost))
}
