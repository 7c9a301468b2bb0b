use alloc::collections::VecDeque;

use super::newest::oldest_window;
use crate::{Candidates, Policy, Window};

/// Least recently used, over contiguous windows, in O(N): a baseline.
///
/// Gives up the window whose newest copy was *used* longest ago; on a tie the smallest, then the
/// one of lowest offset. Waits and hints are not looked at, only that every copy of the window
/// becomes evictable at all.
#[derive(Clone, Debug, Default)]
pub struct Lru {
    queue: VecDeque<usize>,
}

impl Policy for Lru {
    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        oldest_window(candidates, size, &mut self.queue, |copy| copy.used)
    }

    fn name(&self) -> &'static str {
        "lru"
    }
}
