mod optimum;
mod together;
mod whole;

use super::Strategy;
use crate::flow::{Network, Pieces, Residual};
use crate::{Bound, PlacementError, Problem, Schedule};

/// Min-time max-flow, exactly (the problem of MASCOTS'21; SC'22 showcase, slides 17, 49, 60 and 61).
///
/// In time T a link carries its bandwidth times T, so T multiplies the capacities of a flow network.
/// The smallest T by which everything fits is found by the discrete Newton (Dinkelbach) method on cuts:
/// start with a T that a cut proves necessary; a maximum flow either places everything, or its
/// minimum cut proves a larger T necessary, which is tried next. A few maximum flows are enough,
/// however many bytes there are. All arithmetic is in integers.
///
/// That T is the schedule's [`bound`](Schedule::bound). Then the same method is gone on with in whole
/// multiples of the alignment, from the bound upwards, so that the
/// [`makespan`](Schedule::makespan) is the smallest that such a schedule can have, too, if each
/// remainder's last part of a multiple is counted as a whole one. Peers are filled first: up to
/// rounding, hosts get what peers cannot take by then.
#[derive(Debug, Default)]
pub struct MinTimeMaxFlow {
    divided: Residual<u128>,
    whole: Residual<u64>,
    pieces: Pieces,
}

impl Strategy for MinTimeMaxFlow {
    fn schedule(&mut self, problem: &Problem<'_>) -> Result<Schedule, PlacementError> {
        let network = Network::new(problem, problem.alignment);
        if network.total == 0 {
            let nothing = Some(Bound::default());
            return Ok(Schedule::new(problem, Vec::new(), nothing));
        }
        let optimum = optimum::find(problem, &network, &mut self.divided)?;
        whole::find(problem, &network, &optimum, &mut self.whole)?;
        let flow = |edge| self.whole.flow(edge);
        let transfers = self.pieces.transfers(problem, &network, flow);
        let bound = optimum.bound(problem, &network);
        Ok(Schedule::new(problem, transfers, Some(bound)))
    }

    fn name(&self) -> &'static str {
        "min-time-max-flow"
    }
}
