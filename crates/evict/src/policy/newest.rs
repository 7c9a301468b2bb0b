use alloc::collections::VecDeque;

use crate::{Candidates, Window};

/// The window whose newest copy is oldest, in O(N); the common part of FIFO and LRU.
///
/// `ticks` has the age of every fragment, 0 in gaps. For every fragment, the shortest window that
/// starts there and is large enough is looked at. The best one has the smallest maximum tick, among
/// those the smallest span (several windows share a newest copy; the smallest gives up the least),
/// among those the lowest offset.
///
/// `queue` is scratch: the indices in the window that may yet become its newest fragment, in offset
/// order, so their ticks decrease (a monotonic queue: each index enters and leaves once).
pub(super) fn oldest_window(
    candidates: &Candidates,
    ticks: &[u64],
    size: u64,
    queue: &mut VecDeque<usize>,
) -> Option<Window> {
    let borders = &candidates.borders;
    let mut best = None;
    let mut best_key = (u64::MAX, u64::MAX);

    queue.clear();
    let mut last = 0;
    for first in 0..ticks.len() {
        while borders[last].offset - borders[first].offset < size {
            let Some(&tick) = ticks.get(last) else {
                return best.and_then(|(first, last)| candidates.window(first, last));
            };
            while queue.back().is_some_and(|&index| ticks[index] <= tick) {
                queue.pop_back();
            }
            queue.push_back(last);
            last += 1;
        }
        while queue.front().is_some_and(|&index| index < first) {
            queue.pop_front();
        }

        let newest = queue.front().map_or(0, |&index| ticks[index]);
        let key = (newest, borders[last].offset - borders[first].offset);
        if (best.is_none() || key < best_key) && borders[first].nevers == borders[last].nevers {
            best_key = key;
            best = Some((first, last));
        }
    }
    best.and_then(|(first, last)| candidates.window(first, last))
}
