//! The trait of strategies. A strategy is a file, and a line in `strategy_of`.

use std::fmt::Debug;
use std::sync::Arc;

use super::backing::{InitialBacking, Wanted};
use super::growing::Growing;
use crate::error::Result;
use crate::workers::Workers;

/// A way to make host memory fast.
pub(super) trait Strategy: Debug {
    /// The memory, and how much of it is usable, touched and pinned from the start.
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking>;

    /// Starts the threads that do the rest. A thread that raises a level ends it, on errors and panics too.
    fn grow(self: Box<Self>, growing: &Arc<Growing>, workers: &mut Workers) -> Result<()>;
}
