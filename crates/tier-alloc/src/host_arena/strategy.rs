//! The trait of strategies. Each strategy is a file with its implementation, and a line in `strategy_of`.

use std::fmt::Debug;
use std::sync::Arc;

use super::backing::{InitialBacking, Wanted};
use super::growing::Growing;
use crate::error::Result;
use crate::workers::Workers;

/// A way to make host memory fast.
pub(super) trait Strategy: Debug {
    /// Obtains the memory. Returns it, with the bytes that are usable, touched and pinned from the start.
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking>;

    /// Starts the threads that make the memory fast. A thread that raises a level ends that level, on errors and panics too.
    fn grow(self: Box<Self>, growing: &Arc<Growing>, workers: &mut Workers) -> Result<()>;
}
