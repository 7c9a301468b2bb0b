use alloc::collections::VecDeque;

use crate::candidates::Traits;
use crate::{Candidates, Window};

/// The window whose newest copy is oldest, in O(N); the common part of FIFO and LRU.
///
/// `tick` gives the age of a fragment, 0 in gaps. For every fragment, the shortest window that
/// ends there and is large enough is looked at. The best one has the smallest maximum tick, among
/// those the smallest span (several windows share a newest copy; the smallest gives up the least),
/// among those the lowest offset.
///
/// A fragment newer than the newest of the best window so far ends every window before it, as one that can never be
/// evicted does: most are, once the oldest were come by.
///
/// `queue` is scratch: the indices in the window that may yet become its newest fragment, in offset
/// order, so their ticks decrease (a monotonic queue: each index enters and leaves once).
#[inline(always)]
pub(super) fn oldest_window(
    candidates: &Candidates,
    size: u64,
    queue: &mut VecDeque<usize>,
    tick: impl Fn(&Traits) -> u64,
) -> Option<Window> {
    let (borders, traits) = (&candidates.borders, &candidates.traits);
    let mut best = None;
    let mut best_key = (u64::MAX, u64::MAX);

    queue.clear();
    let mut first = 0;
    for (last, (sides, copy)) in borders.windows(2).zip(traits).enumerate() {
        let newest = tick(copy);
        if newest > best_key.0 || sides[0].nevers != sides[1].nevers {
            queue.clear();
            first = last + 1;
            continue;
        }
        while queue
            .back()
            .is_some_and(|&index| tick(&traits[index]) <= newest)
        {
            queue.pop_back();
        }
        queue.push_back(last);
        let end = sides[1].offset;
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
            best = Some((first, last + 1));
        }
    }
    best.and_then(|(first, last)| candidates.window(first, last))
}
