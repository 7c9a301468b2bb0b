use super::windows::best_window;
use crate::{Candidates, Policy, Window};

/// Gap-aware look-ahead eviction by scores: Algorithm 1 of HPDC'23 (§4.2), in O(N).
///
/// For every fragment, the policy scores the shortest window that starts there and is large enough. The best window has
/// the smallest `p_score` (sum of the waits until its copies are evictable). Among equal windows, the best has the largest
/// `s_score` (sum of the prefetch distances), then the lowest offset.
///
/// The published pseudo-code is changed where it cannot work as printed:
/// - `size_target` (line 11) is `size_new`;
/// - the loop ends as soon as a window touches the end of the buffer (`j < n`, line 6); here the
///   starts after that are tried too, as long as their window is large enough;
/// - a gap has no entry in *P*. Here a gap has the wait 0, and a distance larger than any copy's, as it has "the highest
///   eviction priority" (§4.1.6). With a distance of 0, ten copies would win over one copy with a large gap beside it;
/// - a copy without a hint has no entry in *P* either. Here it has a distance larger than any hinted copy's;
/// - an infinite wait must not be added to a sum and subtracted again: a window that holds a copy
///   with no eviction in sight is not a candidate. Such copies are counted, not summed;
/// - scores are integers, and differences of running totals instead of sliding sums, so they are exact in every window.
///   Waits count up to [`MAX_WAIT`](crate::MAX_WAIT);
/// - a window of a gap alone wins before any score is looked at ([`Policy::choose`]); by the sums,
///   evicting two unhinted copies would beat it;
/// - lines 22 to 32 (waiting, erasing, inserting) are left to the caller: a policy only chooses.
///
/// Three questionable points of the paper are kept: waits are summed though they overlap; distances are summed, so that
/// many near copies beat one far copy; a window may begin with a copy whose bytes are not needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score;

impl Policy for Score {
    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        if size == 0 || size > candidates.bytes() {
            return None;
        }
        let borders = candidates.borders.as_slice();
        // Usually some window can be evicted at once. Then only the distances of such windows count, and comparing one
        // number is faster than comparing two. A copy that is never evictable has the longest wait here.
        let at_once = best_window(borders, size, u64::MAX, |left, right| {
            let s_score = right.distance.wrapping_sub(left.distance);
            if left.wait == right.wait {
                !s_score
            } else {
                u64::MAX
            }
        });
        // Small waits first, then large distances.
        let (first, last) = at_once.or_else(|| {
            best_window(borders, size, u128::MAX, |left, right| {
                let p_score = right.wait.wrapping_sub(left.wait);
                let s_score = right.distance.wrapping_sub(left.distance);
                if left.nevers == right.nevers {
                    (u128::from(p_score) << 64) | u128::from(!s_score)
                } else {
                    u128::MAX
                }
            })
        })?;
        candidates.window(first, last)
    }
}
