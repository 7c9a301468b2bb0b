mod optimum;
mod together;
mod whole;

use super::Strategy;
use crate::flow::{Fill, Network, Pieces, Residual};
use crate::{Bound, PlacementError, Problem, Schedule};

/// The strategy of min-time max-flow, solved exactly (the problem of MASCOTS'21; SC'22 showcase, slides 17, 49, 60 and
/// 61).
///
/// In time T a link carries its bandwidth times T, so T multiplies the capacities of a flow network. The discrete Newton
/// (Dinkelbach) method on cuts finds the smallest T by which all bytes fit. The first T is one that a cut proves
/// necessary. A maximum flow at T either places all bytes, or its minimum cut proves a larger T necessary, which is
/// tried next. A few maximum flows are enough, however many bytes there are. Flows are integers: they count parts of a
/// byte so small that all bytes together have at least 2^61 of them. (If rounding alone may have lost the parts that
/// are missing at the last T, that T is the optimum.)
///
/// The last cut is the schedule's [`bound`](Schedule::bound). From T upwards, the same method continues in whole
/// multiples of the alignment. Peers are filled first: up to rounding, hosts get the bytes that peers cannot take by
/// then.
///
/// The strategy solves the rounded problem: remainders are rounded up to multiples of the alignment, and room is rounded
/// down. No schedule of the rounded problem ends earlier. The [`makespan`](Schedule::makespan) counts bytes without
/// rounding. If remainders are no multiples of the alignment, it may be longer than another schedule's makespan, but
/// by less than the time of the bytes that rounding added.
///
/// With thousands of links, the method begins with an estimate in floating point, which spreads each GPU's bytes over
/// all its links. The optimum does not depend on the estimate; the choice among several best schedules does.
#[derive(Debug)]
pub struct MinTimeMaxFlow {
    /// Number of links above which an estimate saves time.
    many: usize,
    network: Network,
    fill: Fill,
    residual: Residual,
    pieces: Pieces,
}

impl Default for MinTimeMaxFlow {
    fn default() -> Self {
        Self::estimating_from(2048)
    }
}

impl MinTimeMaxFlow {
    fn estimating_from(many: usize) -> Self {
        Self {
            many,
            network: Network::default(),
            fill: Fill::default(),
            residual: Residual::default(),
            pieces: Pieces::default(),
        }
    }
}

impl Strategy for MinTimeMaxFlow {
    fn schedule(&mut self, problem: &Problem<'_>) -> Result<Schedule, PlacementError> {
        let Self {
            many,
            network,
            fill,
            residual,
            pieces,
        } = self;
        network.describe(problem, problem.alignment, *many);
        if network.total == 0 {
            let nothing = Some(Bound::default());
            return Ok(Schedule::new(problem, Vec::new(), nothing));
        }
        let optimum = optimum::find(problem, network, residual, fill)?;
        whole::find(problem, network, &optimum, residual)?;
        let transfers = pieces.transfers(problem, network, |at| residual.flow(at));
        let bound = optimum.bound(problem, network);
        Ok(Schedule::new(problem, transfers, Some(bound)))
    }

    fn name(&self) -> &'static str {
        "min-time-max-flow"
    }
}

#[cfg(test)]
mod tests;
