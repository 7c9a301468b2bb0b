use core::array::from_fn;

use crate::candidates::Border;
use crate::{Candidates, Policy, Window};

/// Gap-aware look-ahead eviction by scores: Algorithm 1 of HPDC'23 (§4.2), in O(N).
///
/// For every fragment, the shortest window that starts there and is large enough is scored. The
/// best one has the smallest `p_score` (sum of the waits until its copies are evictable), among
/// those the largest `s_score` (sum of the prefetch distances), among those the lowest offset.
///
/// Where the published pseudo-code cannot be meant as printed, this is what is done:
/// - `size_target` (line 11) is `size_new`;
/// - the loop ends as soon as a window touches the end of the buffer (`j < n`, line 6); here the
///   starts after that are tried too, as long as their window is large enough;
/// - a gap has no entry in *P*. It waits for nothing, and as it has "the highest eviction priority"
///   (§4.1.6) it counts as farther than any copy. If it counted 0, ten copies would win over one
///   copy with a large gap beside it;
/// - a copy without a hint has no entry in *P* either: it counts as farther than any hinted one;
/// - an infinite wait must not be added to a sum and subtracted again: a window that holds a copy
///   with no eviction in sight is not a candidate. Such copies are counted, not summed;
/// - scores are integers, and differences of running totals rather than sums that slide along:
///   they are exact wherever the window came from. Waits count up to [`MAX_WAIT`](crate::MAX_WAIT);
/// - a window of a gap alone wins before any score is looked at ([`Policy::choose`]); by the sums,
///   evicting two unhinted copies would beat it;
/// - lines 22 to 32 (waiting, erasing, inserting) are the caller's: a policy only chooses.
///
/// What is kept though it can be questioned: waits are summed though they overlap, and distances
/// are summed, so that many near copies beat one far copy, and a window may begin with a copy whose
/// bytes are not needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score;

impl Policy for Score {
    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        if size == 0 || size > candidates.bytes() {
            return None;
        }
        let borders = candidates.borders.as_slice();
        let first_end = |first: usize| {
            let target = borders[first].offset + size;
            borders.partition_point(|border| border.offset < target)
        };

        // Per lane: the borders from the end of the last window on, the scores of the best window
        // so far, and where it starts, counted from the start of the lane.
        let share = candidates.len() / LANES;
        let starts: [_; LANES] = from_fn(|lane| &borders[lane * share..][..share]);
        let mut ends: [_; LANES] = from_fn(|lane| &borders[first_end(lane * share)..]);
        let mut keys = [NO_WINDOW; LANES];
        let mut steps = [0; LANES];
        #[expect(clippy::needless_range_loop, reason = "all lanes take the same step")]
        for step in 0..share {
            for lane in 0..LANES {
                let left = &starts[lane][step];
                let Some(right) = reach(&mut ends[lane], left.offset + size) else {
                    continue;
                };
                let key = key(left, right);
                if key < keys[lane] && left.nevers == right.nevers {
                    keys[lane] = key;
                    steps[lane] = step;
                }
            }
        }

        // The few starts that are left when N is not a multiple of the number of lanes.
        let rest = (LANES * share..candidates.len()).filter_map(|first| {
            let (left, right) = (&borders[first], borders.get(first_end(first))?);
            (left.nevers == right.nevers).then(|| (key(left, right), first))
        });
        // In offset order, and the first of equals wins.
        let lanes = (0..LANES).map(|lane| (keys[lane], lane * share + steps[lane]));
        let (key, first) = lanes.chain(rest).min_by_key(|&(key, _)| key)?;
        if key == NO_WINDOW {
            None
        } else {
            candidates.window(first, first_end(first))
        }
    }

    fn name(&self) -> &'static str {
        "score"
    }
}

/// How many parts of the buffer are walked at the same time.
///
/// Where a window ends depends on where the one before it ended: a chain of loads and comparisons
/// that leaves most of a core idle. Four independent chains fill it; with eight, their state no
/// longer fits the registers.
const LANES: usize = 4;

/// The scores of a window as one number, smaller being better: small waits first, then large
/// distances.
#[inline(always)]
fn key(left: &Border, right: &Border) -> u128 {
    let p_score = right.wait.wrapping_sub(left.wait);
    let s_score = right.distance.wrapping_sub(left.distance);
    (u128::from(p_score) << 64) | u128::from(!s_score)
}

/// Worse than the [`key`] of any window.
const NO_WINDOW: u128 = u128::MAX;

/// Moves `ends` on to the first border at or beyond `target`, and gives it.
///
/// As a window slides by one fragment, its end moves by one on average, but by none or by three
/// just as well. Counting over the next three borders decides that without a branch, which the
/// processor would guess wrongly every other time when sizes differ.
#[inline(always)]
fn reach<'a>(ends: &mut &'a [Border], target: u64) -> Option<&'a Border> {
    while let Some(next) = ends.first_chunk::<4>() {
        let [a, b, c, _] = next;
        let short = usize::from(a.offset < target)
            + usize::from(b.offset < target)
            + usize::from(c.offset < target);
        *ends = &ends[short..];
        let end = &next[short & 3];
        if end.offset >= target {
            return Some(end);
        }
    }
    let short = count_short(ends, target);
    *ends = &ends[short..];
    ends.first()
}

/// The same for the last few borders. Kept out of the loop over the lanes, which is unrolled only
/// while its body is small.
#[cold]
#[inline(never)]
fn count_short(ends: &[Border], target: u64) -> usize {
    ends.iter()
        .take_while(|border| border.offset < target)
        .count()
}
