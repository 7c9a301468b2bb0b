mod optimum;
mod together;
mod whole;

use super::Strategy;
use crate::flow::{Fill, Network, Pieces, Residual};
use crate::{Bound, PlacementError, Problem, Schedule};

/// Min-time max-flow, exactly (the problem of MASCOTS'21; SC'22 showcase, slides 17, 49, 60 and 61).
///
/// In time T a link carries its bandwidth times T, so T multiplies the capacities of a flow network.
/// The smallest T by which everything fits is found by the discrete Newton (Dinkelbach) method on cuts:
/// start with a T that a cut proves necessary; a maximum flow either places everything, or its
/// minimum cut proves a larger T necessary, which is tried next. A few maximum flows are enough,
/// however many bytes there are. Flows are in integers: parts of a byte so small that all bytes have 2^61 of them or
/// more. (If at the last T so few of these are missing that rounding alone may have lost them, that T is it.)
///
/// The cut that proves it is the schedule's [`bound`](Schedule::bound). Then the same method is gone on with in whole
/// multiples of the alignment, from T upwards. Peers are filled first: up to rounding, hosts get what peers cannot
/// take by then.
///
/// All of this is the rounded problem: each remainder's last part of a multiple counts as a whole one, and room as the
/// whole multiples in it. In that, no schedule is done earlier. The [`makespan`](Schedule::makespan) counts bytes as
/// they are; where remainders are no multiples of the alignment, it may be longer than another schedule's, by less than
/// what the multiples take that its last parts were rounded up to.
///
/// With thousands of links, an estimate in floating point says where to begin: it spreads each GPU's bytes over
/// all its links. The optimum does not depend on the estimate; the choice among several best schedules does.
#[derive(Debug)]
pub struct MinTimeMaxFlow {
    /// With more links than this an estimate pays.
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
