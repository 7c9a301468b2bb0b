use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::policy::{Conduct, FlushOrder};
use crate::{Candidates, Distance, Policy, Window};

/// How much more it costs to bring back the next copy of the restore order than its transfer takes: everybody waits for it,
/// behind whatever is under way.
const NEXT: u64 = 3;

/// What a gap in the window is worth, in times that room for the new copy takes to flush. Gaps too small to be of use are
/// bytes that are paid for and not there; a window that takes them in gives them back.
const GAP: i128 = 5;

/// Estimates what an eviction will really cost, in ns, and gives up the window that costs least, in O(N).
///
/// For every fragment, the shortest window that starts there and is large enough is looked at. Where
/// [`Score`](crate::Score) adds up waits and distances, this adds up costs:
/// - copies are flushed side by side, so a window waits for the *last* of its copies: the maximum of the waits, not their
///   sum. The application stands still for it, so of two windows the one that waits less wins, whatever the rest;
/// - a lost copy costs the time to bring it back ([`Outlook::refetch`](crate::Outlook::refetch): its bytes, over the link from the tier that holds
///   the next copy) weighed by how soon it is wanted: the copy at distance *d* of the restore order has *d* restores time
///   to come back, so it counts as 3 / (1 + *d*) of it;
/// - what is given up had to be flushed before, and takes room below: bytes beyond those that are needed are for nothing;
/// - what goes is not there to be in the way: a gap counts as five times, and a copy at the end of the restore order
///   as once, the time in which room for the new copy is flushed. That keeps a cache of mixed sizes whole, and makes the farthest
///   copy go where none is wanted soon.
///
/// The two weights were found on simulated shots of compressed wavefields (docs/src/simulation.md). On a tie the
/// lowest offset wins.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Totals of everything to the left of a border.
    costs: Vec<i128>,
    /// Fragments of the window that may yet become the one that waits longest.
    waits: VecDeque<usize>,
}

impl Cost {
    /// Fills the totals.
    fn add_up(&mut self, candidates: &Candidates, size: u64) {
        let borders = &candidates.borders;
        let bandwidth = u128::from(candidates.flush_bandwidth().max(1));
        let room =
            i128::try_from(u128::from(size) * 1_000_000_000 / bandwidth).unwrap_or(i128::MAX);
        // 2^40 fragments of the largest cost do not overflow.
        let room = room.min(i128::from(u64::MAX));
        // ns for 2^20 bytes.
        let flush = (1_000_000_000_u128 << 20) / bandwidth;
        let copies = (0..candidates.len()).map(|index| copy(candidates, index));
        let hinted = copies.clone().filter_map(|copy| match copy {
            Some((Distance::At(distance), _)) => Some(distance),
            _ => None,
        });
        let horizon = i128::from(hinted.max().unwrap_or(0)) + 1;
        self.costs.clear();
        self.costs.reserve(borders.len());
        self.costs.push(0);
        let mut total = 0;
        for (copy, &refetch) in copies.zip(&candidates.refetch) {
            let Some((distance, bytes)) = copy else {
                total -= GAP * room;
                self.costs.push(total);
                continue;
            };
            let flushed = (u128::from(bytes) * flush) >> 20;
            total += i128::try_from(flushed)
                .unwrap_or(i128::MAX)
                .min(i128::from(u64::MAX));
            total += match distance {
                Distance::Unhinted => -room,
                Distance::At(distance) => {
                    let soon = refetch * NEXT / (1 + distance);
                    i128::from(soon) - room * i128::from(distance) / horizon
                }
            };
            self.costs.push(total);
        }
    }
}

/// The distance of a copy and its bytes; `None` for a gap.
fn copy(candidates: &Candidates, index: usize) -> Option<(Distance, u64)> {
    let candidate = candidates.get(index)?;
    let copy = candidate.occupant?;
    Some((copy.distance, candidate.size))
}

impl Policy for Cost {
    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        self.add_up(candidates, size);
        let borders = &candidates.borders;
        let wait = |index: usize| borders[index + 1].wait.wrapping_sub(borders[index].wait);
        let mut best = None;
        self.waits.clear();
        let mut last = 0;
        for first in 0..candidates.len() {
            while borders[last].offset - borders[first].offset < size {
                if last == candidates.len() {
                    return best.and_then(|(_, first, last)| candidates.window(first, last));
                }
                let newest = wait(last);
                while self
                    .waits
                    .back()
                    .is_some_and(|&index| wait(index) <= newest)
                {
                    self.waits.pop_back();
                }
                self.waits.push_back(last);
                last += 1;
            }
            while self.waits.front().is_some_and(|&index| index < first) {
                self.waits.pop_front();
            }
            if borders[first].nevers != borders[last].nevers {
                continue;
            }
            let longest = self.waits.front().map_or(0, |&index| wait(index));
            let key = (longest, self.costs[last] - self.costs[first]);
            if best.is_none_or(|(least, ..)| key < least) {
                best = Some((key, first, last));
            }
        }
        best.and_then(|(_, first, last)| candidates.window(first, last))
    }

    /// All that a policy can want of the transfers around it.
    fn conduct(&self) -> Conduct {
        Conduct {
            flush_order: FlushOrder::Evicted,
            guesses: true,
            rests: true,
            keeps_next: true,
            holds_back: true,
        }
    }

    fn name(&self) -> &'static str {
        "cost"
    }
}
