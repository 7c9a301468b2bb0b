mod greedy;
mod local_only;
mod min_time_max_flow;
mod unit_increment;

pub use greedy::Greedy;
pub use local_only::LocalOnly;
pub use min_time_max_flow::MinTimeMaxFlow;
pub use unit_increment::UnitIncrement;

use crate::{PlacementError, Problem, Schedule};

/// Decides how much of each remainder is sent where.
///
/// A strategy is pure: what it knows arrives as arguments, and the same problem gives the same
/// schedule. `&mut self` is for scratch memory alone, so one value that is kept schedules faster than a
/// new one each time.
pub trait Strategy: std::fmt::Debug {
    /// A schedule that places every byte of every remainder and overfills nothing.
    ///
    /// # Errors
    /// [`Disconnected`](PlacementError::Disconnected) or [`DoesNotFit`](PlacementError::DoesNotFit)
    /// when the strategy finds no place for some bytes.
    fn schedule(&mut self, problem: &Problem<'_>) -> Result<Schedule, PlacementError>;

    /// The name by which the strategy is chosen and reported.
    fn name(&self) -> &'static str;
}
