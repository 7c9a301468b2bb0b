use alloc::collections::VecDeque;

use crate::candidates::Traits;
use crate::{Candidates, GAP_DISTANCE, Window};

/// Returns the window whose newest copy is oldest, in O(N); the common part of FIFO and LRU.
///
/// `tick` gives the age of a fragment, 0 in gaps. For every fragment, the shortest window that ends there and is large
/// enough is looked at. The best one has the smallest maximum tick, then the smallest span, then the lowest offset.
/// (Several windows share a newest copy; the smallest evicts the least.)
///
/// No gap is large enough by itself, so every window has a copy. Copies that can never be evicted, and copies newer
/// than the newest of the best window so far, are skipped: once the oldest copies were seen, most are.
///
/// `queue` is scratch: the indices in the window that may yet become its newest fragment, in offset order. Their ticks
/// decrease (a monotonic queue: each index enters and leaves once).
#[inline(always)]
pub(super) fn oldest_window(
    candidates: &Candidates,
    size: u64,
    queue: &mut VecDeque<usize>,
    tick: impl Fn(&Traits) -> u64,
) -> Option<Window> {
    let (borders, traits) = (&candidates.borders, &candidates.traits);
    let is_gap = |index: usize| traits[index].distance == GAP_DISTANCE;
    let is_never = |index: usize| borders[index].nevers != borders[index + 1].nevers;
    let mut best = None;
    let mut best_key = (u64::MAX, u64::MAX);

    let mut last = 0;
    while last < traits.len() {
        if is_gap(last) | is_never(last) | (tick(&traits[last]) > best_key.0) {
            last += 1;
            continue;
        }
        // Neighbours from here on may be evicted together.
        let mut first = last - usize::from(last > 0 && is_gap(last - 1));
        queue.clear();
        while last < traits.len() && !is_never(last) && tick(&traits[last]) <= best_key.0 {
            let newest = tick(&traits[last]);
            while queue
                .back()
                .is_some_and(|&index| tick(&traits[index]) <= newest)
            {
                queue.pop_back();
            }
            queue.push_back(last);
            last += 1;
            let end = borders[last].offset;
            if end - borders[first].offset < size {
                continue;
            }
            while end - borders[first + 1].offset >= size {
                first += 1;
            }
            while queue.front().is_some_and(|&index| index < first) {
                queue.pop_front();
            }
            let newest = queue.front().map_or(0, |&index| tick(&traits[index]));
            let key = (newest, end - borders[first].offset);
            if best.is_none() || key < best_key {
                best_key = key;
                best = Some((first, last));
            }
        }
    }
    best.and_then(|(first, last)| candidates.window(first, last))
}
