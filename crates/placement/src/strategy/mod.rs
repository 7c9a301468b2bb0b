mod greedy;
mod local_only;
mod min_time_max_flow;
mod unit_increment;

pub use greedy::Greedy;
pub use local_only::LocalOnly;
pub use min_time_max_flow::MinTimeMaxFlow;
pub use unit_increment::UnitIncrement;

use crate::{PlacementError, Problem, Schedule};

/// A rule that decides how many bytes of each remainder go to which destination.
///
/// A strategy is pure: it knows its arguments only, and the same problem gives the same schedule. `&mut self` is for
/// scratch memory alone. A strategy that is kept therefore schedules faster than a new one for each problem.
pub trait Strategy: std::fmt::Debug {
    /// Returns a schedule that places every byte of every remainder and overfills no memory.
    ///
    /// # Errors
    /// [`Disconnected`](PlacementError::Disconnected) if a GPU has bytes to place and no link;
    /// [`DoesNotFit`](PlacementError::DoesNotFit) if the strategy finds no place for some bytes. [`UnitIncrement`] also
    /// returns [`BadAlignment`](PlacementError::BadAlignment) and [`TotalOverflows`](PlacementError::TotalOverflows) if its
    /// unit is too large.
    fn schedule(&mut self, problem: &Problem<'_>) -> Result<Schedule, PlacementError>;

    /// Returns the name by which the strategy is chosen and reported.
    fn name(&self) -> &'static str;
}
