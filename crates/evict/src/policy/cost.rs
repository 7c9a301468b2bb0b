use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::windows::{Edge, best_window};
use crate::policy::{Conduct, FlushOrder};
use crate::{Candidates, MAX_WAIT, Policy, UNHINTED_DISTANCE, Window};

/// How much more it costs to bring back the next copy of the restore order than its transfer takes: everybody waits for it,
/// behind whatever is under way.
const NEXT: u64 = 3;

/// What a gap in the window is worth, in times that room for the new copy takes to flush. Gaps too small to be of use are
/// bytes that are paid for and not there; a window that takes them in gives them back.
const GAP: i64 = 5;

/// Times above this, in ns, count as this.
const LONGEST: u128 = MAX_WAIT as u128;

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
/// The two weights were found on simulated shots of compressed wavefields (the book's chapter *Simulation*). On a tie the
/// lowest offset wins.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    borders: Vec<Border>,
    /// Fragments of the window that may yet become the one that waits longest.
    waits: VecDeque<usize>,
}

/// The border between two fragments, with the totals of everything to the left of it. They may wrap; their differences
/// do not, over a window of up to 2^19 fragments.
#[derive(Clone, Copy, Debug, Default)]
struct Border {
    offset: u64,
    /// ns. A copy that is never evictable counts as the longest wait.
    wait: u64,
    /// ns.
    cost: i64,
}

impl Edge for Border {
    fn offset(&self) -> u64 {
        self.offset
    }
}

impl Cost {
    /// Fills the borders.
    fn add_up(&mut self, candidates: &Candidates, size: u64) {
        let bandwidth = u128::from(candidates.flush_bandwidth().max(1));
        let room = (u128::from(size) * 1_000_000_000 / bandwidth).min(LONGEST) as u64;
        // One more than the largest distance of a hinted copy; what is unhinted becomes 0 by this, and a gap 1.
        let horizons = candidates
            .traits
            .iter()
            .map(|copy| (copy.distance + 1) as u32);
        let share = Share::of(room, u64::from(horizons.max().unwrap_or(0)));
        let room = room.cast_signed();
        // ns for 2^20 bytes, and bytes for `MAX_WAIT`.
        let flush = ((1_000_000_000 << 20) / bandwidth) as u64;
        let most = (MAX_WAIT << 20) / flush.max(1);
        let flushed = |bytes: u64| (bytes.min(most) * flush) >> 20;

        let start = Border::default();
        self.borders.resize(candidates.borders.len(), start);
        self.borders[0] = start;
        let (mut cost, mut offset) = (0_i64, 0);
        let ends = candidates.borders[1..].iter().zip(&candidates.traits);
        for (border, (end, copy)) in self.borders[1..].iter_mut().zip(ends) {
            let bytes = end.offset - offset;
            offset = end.offset;
            cost = cost.wrapping_add(if copy.distance < UNHINTED_DISTANCE {
                let soon = copy.refetch * NEXT / (1 + copy.distance);
                let far = share.at(copy.distance);
                (flushed(bytes) + soon).cast_signed() - far.cast_signed()
            } else if copy.distance == UNHINTED_DISTANCE {
                flushed(bytes).cast_signed() - room
            } else {
                -GAP * room
            });
            *border = Border {
                offset: end.offset,
                wait: end.wait,
                cost,
            };
        }
    }

    /// The window that waits least, and of those the one that costs least.
    fn least_wait(&mut self, candidates: &Candidates, size: u64) -> Option<(usize, usize)> {
        let (borders, nevers) = (&self.borders, &candidates.borders);
        let wait = |index: usize| borders[index + 1].wait.wrapping_sub(borders[index].wait);
        let mut best = None;
        self.waits.clear();
        let mut last = 0;
        for first in 0..candidates.len() {
            while borders[last].offset - borders[first].offset < size {
                if last == candidates.len() {
                    return best.map(|(_, window)| window);
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
            if nevers[first].nevers != nevers[last].nevers {
                continue;
            }
            let longest = self.waits.front().map_or(0, |&index| wait(index));
            let key = (
                longest,
                borders[last].cost.wrapping_sub(borders[first].cost),
            );
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, (first, last)));
            }
        }
        best.map(|(_, window)| window)
    }
}

impl Policy for Cost {
    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        if size == 0 || size > candidates.bytes() {
            return None;
        }
        self.add_up(candidates, size);
        let at_once = best_window(&self.borders, size, i64::MAX, |left, right| {
            if left.wait == right.wait {
                right.cost.wrapping_sub(left.cost)
            } else {
                i64::MAX
            }
        });
        let (first, last) = at_once.or_else(|| self.least_wait(candidates, size))?;
        candidates.window(first, last)
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

/// A time in equal shares to so many entries of the restore order, multiplied instead of divided, which takes longer
/// for each fragment than all else.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// 2^(64 - `shift`) shares, rounded up.
    shares: u64,
    shift: u32,
}

impl Share {
    /// Of `time` (ns, up to [`MAX_WAIT`]) among up to 2^32 `entries`.
    fn of(time: u64, entries: u64) -> Self {
        let entries = entries.max(1);
        // As many shares as fit.
        let shift = u64::BITS - (time / entries).leading_zeros();
        let shares = (u128::from(time) << (u64::BITS - shift)).div_ceil(u128::from(entries));
        Self {
            shares: u64::try_from(shares).unwrap_or(u64::MAX),
            shift,
        }
    }

    /// `time * distance / entries`, rounded down, for a distance below `entries`.
    ///
    /// Rounding up made all shares together too large by less than one, and the product by less than
    /// `distance / 2^(64 - shift)`. With up to 2^23 entries that is less than `1 / entries`: too little for the result to
    /// reach the next whole number.
    fn at(self, distance: u64) -> u64 {
        let product = u128::from(distance << self.shift) * u128::from(self.shares);
        (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_to_the_ns() {
        let entries = [1, 2, 3, 7, 1000, 1 << 20, 1 << 23];
        for entries in entries {
            for time in [0, 1, 999, 335_544, MAX_WAIT - 1, MAX_WAIT] {
                let share = Share::of(time, entries);
                let distances = (0..1000).chain(entries.saturating_sub(1000)..entries);
                for distance in distances.filter(|&distance| distance < entries) {
                    let exact = u128::from(time) * u128::from(distance) / u128::from(entries);
                    assert_eq!(u128::from(share.at(distance)), exact);
                }
            }
        }
        // With more of them to the next.
        let share = Share::of(MAX_WAIT, UNHINTED_DISTANCE);
        let half = share.at(UNHINTED_DISTANCE / 2);
        assert!(half.abs_diff(MAX_WAIT / 2) <= 1 << 8, "{half}");
    }
}
