//! The optimum if bytes could be divided at will, by the discrete Newton method on cuts.

use super::together;
use crate::flow::{Carried, Edge, EdgeKind, Fill, Network, Residual, SINK, SOURCE, UNLIMITED};
use crate::time::Fraction;
use crate::{Bound, Cut, ExactTime, GpuId, PlacementError, Problem, Share};

/// The shortest time by which everything fits, and the cut that proves it.
pub(super) struct Optimum {
    /// The time, with grains in place of bytes.
    pub(super) time: ExactTime,
    /// The nodes on the source's side of the cut.
    pub(super) behind: Vec<bool>,
    /// Time of the flow whose cut this is. The time decides whether volume or bandwidth limits each edge.
    pub(super) cut_at: ExactTime,
}

/// Most cuts that are estimated. Each costs as much as one more adjustment of the estimate.
const MOST_CUTS: usize = 4;

/// Finds the optimum, and fills `residual` with a flow at its time. Flows count parts of a grain; 2^[`shift`] parts make a
/// grain.
///
/// The capacities of edges are rounded down to such parts. A flow of everything is a proof all the same. If a few parts are
/// missing at the optimum, the cut of that flow proves no later time.
///
/// # Errors
/// [`PlacementError::Disconnected`] if a GPU has a remainder and no link; [`PlacementError::DoesNotFit`] if the room is
/// too small.
pub(super) fn find(
    problem: &Problem<'_>,
    network: &Network,
    residual: &mut Residual,
    fill: &mut Fill,
) -> Result<Optimum, PlacementError> {
    let mut optimum = first(problem, network)?;
    together::raise(network, &mut optimum);
    residual.reset(network);
    let shift = shift(network);
    let mut missing = network.total << shift;
    if network.links.len() > 0 {
        optimum = estimate(network, optimum, residual, fill);
        missing -= residual.follow_links(network);
    }
    // Hosts come last, so they do not get bytes that peers can take.
    let mut with_hosts = false;
    loop {
        let carried = Carried::by(optimum.time, shift, network.total);
        residual.set_links(carried);
        for (at, edge) in network.edges.iter().enumerate() {
            if with_hosts || !matches!(edge.kind, EdgeKind::Host(_)) {
                residual.set_capacity(at, carried.through(edge));
            }
        }
        missing -= residual.augment(network, missing);
        if missing == 0 {
            return Ok(optimum);
        }
        if !with_hosts {
            with_hosts = true;
            continue;
        }
        let is_behind = |node: usize| residual.is_behind_cut(node as u32);
        let cut = Optimum {
            time: optimum.time,
            behind: (0..network.nodes).map(is_behind).collect(),
            cut_at: optimum.time,
        };
        let sums = cut.sums(network);
        let time = ExactTime::new(sums.remainder.saturating_sub(sums.room), sums.bandwidth)
            .ok_or_else(|| does_not_fit(&cut, network, &sums))?;
        if time <= optimum.time {
            return Ok(optimum);
        }
        optimum = Optimum { time, ..cut };
    }
}

/// Estimates the flow through the links and a cut, and moves to the time that the cut proves, until a cut proves no later
/// time. Leaves the flow in `residual`.
fn estimate(
    network: &Network,
    mut optimum: Optimum,
    residual: &mut Residual,
    fill: &mut Fill,
) -> Optimum {
    fill.start(network);
    for _ in 0..MOST_CUTS {
        let carried = Carried::by(optimum.time, shift(network), network.total);
        fill.adjust(network, &carried);
        let cut = fill.cut(network, &carried);
        match cut.and_then(|behind| optimum.later(network, behind)) {
            Some(later) => optimum = later,
            None => break,
        }
    }
    let carried = Carried::by(optimum.time, shift(network), network.total);
    fill.links(network, &carried, residual.links_mut());
    optimum
}

/// Returns the logarithm of the number of parts in a grain: all parts together stay below 2^63.
pub(super) fn shift(network: &Network) -> u32 {
    network.total.leading_zeros().saturating_sub(2)
}

/// Returns a first lower bound: the longest of the times that single GPUs need if each has all its links alone.
fn first(problem: &Problem<'_>, network: &Network) -> Result<Optimum, PlacementError> {
    let mut out = vec![0_u64; network.nodes];
    for edge in network.edges.iter().filter(|edge| edge.from != SOURCE) {
        // An edge without a bandwidth leads to the sink, not out of a GPU.
        if edge.bandwidth != UNLIMITED {
            out[edge.from as usize] += edge.bandwidth;
        }
    }
    for (node, row) in network.links.rows() {
        let links = &network.links.bandwidth[row];
        out[node as usize] += links.iter().map(|link| *link as u64).sum::<u64>();
    }
    let mut longest = (
        Fraction {
            bytes: 0,
            bandwidth: 1,
        },
        None,
    );
    for edge in network.edges.iter().filter(|edge| edge.from == SOURCE) {
        let links = out[edge.to as usize];
        if links == 0
            && let EdgeKind::Remainder(gpu) = edge.kind
        {
            return Err(PlacementError::Disconnected {
                gpu: GpuId(gpu),
                bytes: problem
                    .remainders()
                    .find(|(at, _)| at.0 == gpu)
                    .map_or(0, |(_, bytes)| bytes),
            });
        }
        let time = Fraction {
            bytes: edge.volume,
            bandwidth: links.min(edge.bandwidth),
        };
        if time > longest.0 {
            // If the egress is the limit, the GPU itself is beyond the cut.
            longest = (time, (links < edge.bandwidth).then_some(edge.to));
        }
    }
    let mut behind = vec![false; network.nodes];
    behind[SOURCE as usize] = true;
    if let Some(node) = longest.1 {
        behind[node as usize] = true;
    }
    let time = ExactTime::new(longest.0.bytes, longest.0.bandwidth).unwrap_or(ExactTime::ZERO);
    Ok(Optimum {
        time,
        behind,
        cut_at: time,
    })
}

/// Returns true if its volume limits an edge at that time, not its bandwidth.
pub(super) fn is_room(edge: &Edge, time: ExactTime) -> bool {
    let volume = u128::from(edge.volume) * u128::from(time.denominator());
    edge.bandwidth == UNLIMITED
        || edge.volume != UNLIMITED
            && volume < u128::from(edge.bandwidth) * u128::from(time.numerator())
}

/// The sums of a [`Cut`], in grains.
struct Sums {
    remainder: u64,
    room: u64,
    bandwidth: u64,
}

impl Optimum {
    /// Returns the optimum of another cut, if that cut proves a later time.
    fn later(&self, network: &Network, behind: Vec<bool>) -> Option<Self> {
        let cut = Self {
            time: self.time,
            behind,
            cut_at: self.time,
        };
        let sums = cut.sums(network);
        let left = sums.remainder.checked_sub(sums.room)?;
        let time = ExactTime::new(left, sums.bandwidth)?;
        (time > self.time).then_some(Self { time, ..cut })
    }

    pub(super) fn is_behind_cut(&self, node: u32) -> bool {
        self.behind[node as usize]
    }

    /// Returns the edges across the cut, each with true if its volume limits it.
    fn crossing<'a>(&'a self, network: &'a Network) -> impl Iterator<Item = (Edge, bool)> {
        let edges = network.across(|node| self.behind[node as usize]);
        edges.map(|edge| (edge, is_room(&edge, self.cut_at)))
    }

    fn sums(&self, network: &Network) -> Sums {
        let mut sums = Sums {
            remainder: network.total,
            room: 0,
            bandwidth: 0,
        };
        for (edge, is_room) in self.crossing(network) {
            match edge.kind {
                EdgeKind::Remainder(_) if is_room => sums.remainder -= edge.volume,
                _ if is_room => sums.room += edge.volume,
                _ => sums.bandwidth += edge.bandwidth,
            }
        }
        sums
    }

    /// Returns the GPUs whose remainders the cut holds back.
    fn gpus(&self, network: &Network) -> Vec<GpuId> {
        let edges = network.edges.iter();
        let held = edges.filter_map(|edge| match edge.kind {
            EdgeKind::Remainder(gpu)
                if self.behind[edge.to as usize] || !is_room(edge, self.cut_at) =>
            {
                Some(GpuId(gpu))
            }
            _ => None,
        });
        held.collect()
    }

    pub(super) fn bound(&self, problem: &Problem<'_>, network: &Network) -> Bound {
        let grain = network.grain;
        let sums = self.sums(network);
        let limits = self.crossing(network).filter_map(|(edge, is_room)| {
            let is_others = is_room && matches!(edge.kind, EdgeKind::Remainder(_));
            (!is_others).then(|| edge.kind.limit(problem, is_room))
        });
        let gpus = self.gpus(network);
        // Remainders count without rounding. Rounded up, they would prove more than is true.
        let held = |gpu: &GpuId| match problem.shares()[gpu.0] {
            Share::Remainder(bytes) => bytes,
            Share::Spare(_) => 0,
        };
        let cut = Cut {
            remainder: gpus.iter().map(held).sum(),
            gpus,
            room: sums.room * grain,
            bandwidth: sums.bandwidth,
            limits: limits.collect(),
        };
        let time = ExactTime::new(cut.remainder.saturating_sub(cut.room), cut.bandwidth);
        Bound {
            time: time.unwrap_or(ExactTime::ZERO),
            cut,
        }
    }
}

fn does_not_fit(optimum: &Optimum, network: &Network, sums: &Sums) -> PlacementError {
    debug_assert!(!optimum.behind[SINK as usize]);
    PlacementError::DoesNotFit {
        gpus: optimum.gpus(network),
        missing: (sums.remainder - sums.room) * network.grain,
    }
}
