use core::array::from_fn;

use crate::candidates::Border;

/// Returns the best window of at least `size` bytes as the indices of its first and last border: the one with the
/// smallest `key`, then the lowest offset. `None` if no window has a key below `worst`. O(N).
///
/// For every fragment, the shortest window that starts there and is large enough is compared. `key` gets the window's two
/// borders. Every window calls `key`, so it should not branch.
#[inline(always)]
pub(super) fn best_window<K: Ord + Copy>(
    borders: &[Border],
    size: u64,
    worst: K,
    key: impl Fn(&Border, &Border) -> K,
) -> Option<(usize, usize)> {
    let fragments = borders.len().saturating_sub(1);
    if is_each_enough(borders, size) {
        return best_fragment(borders, size, worst, key);
    }
    let first_end = |first: usize| {
        let target = borders[first].offset + size;
        borders.partition_point(|border| border.offset < target)
    };

    // For each lane: the borders at which windows start, the borders from the end of the last window on, the best key so far,
    // and the start of that window, counted from the start of the lane.
    let share = fragments / LANES;
    let starts: [_; LANES] = from_fn(|lane| &borders[lane * share..][..share]);
    let mut ends: [_; LANES] = from_fn(|lane| &borders[first_end(lane * share)..]);
    let mut keys = [worst; LANES];
    let mut steps = [0; LANES];
    #[expect(clippy::needless_range_loop, reason = "all lanes take the same step")]
    for step in 0..share {
        for lane in 0..LANES {
            let left = &starts[lane][step];
            let Some(right) = reach(&mut ends[lane], left.offset + size) else {
                continue;
            };
            let key = key(left, right);
            if key < keys[lane] {
                keys[lane] = key;
                steps[lane] = step;
            }
        }
    }

    // The few starts that are left when N is not a multiple of the number of lanes.
    let rest = (LANES * share..fragments).filter_map(|first| {
        let right = borders.get(first_end(first))?;
        Some((key(&borders[first], right), first))
    });
    // Keys are compared in offset order, and the first of equal keys wins.
    let lanes = (0..LANES).map(|lane| (keys[lane], lane * share + steps[lane]));
    let (best, first) = lanes.chain(rest).min_by_key(|&(key, _)| key)?;
    (best < worst).then(|| (first, first_end(first)))
}

/// Returns true if every fragment except perhaps the last is large enough by itself, as when all copies have one size.
#[inline(always)]
fn is_each_enough(borders: &[Border], size: u64) -> bool {
    let Some((_, but_last)) = borders.split_last() else {
        return false;
    };
    but_last
        .windows(2)
        .all(|sides| sides[1].offset - sides[0].offset >= size)
}

/// Returns the best window if each window is one fragment.
#[inline(always)]
fn best_fragment<K: Ord + Copy>(
    borders: &[Border],
    size: u64,
    worst: K,
    key: impl Fn(&Border, &Border) -> K,
) -> Option<(usize, usize)> {
    let (mut least, mut best) = (worst, 0);
    for (first, sides) in borders.windows(2).enumerate() {
        let key = key(&sides[0], &sides[1]);
        if key < least && sides[1].offset - sides[0].offset >= size {
            (least, best) = (key, first);
        }
    }
    (least < worst).then_some((best, best + 1))
}

/// Number of parts of the buffer that are walked at the same time.
///
/// The end of a window depends on the end of the one before: a chain of loads and comparisons that leaves most of a
/// core idle. Four independent chains fill a core; the state of eight no longer fits the registers.
const LANES: usize = 4;

/// Moves `ends` on to the first border at or beyond `target`, and returns that border.
///
/// When a window slides by one fragment, its end moves by one on average, but by none or by three just as well.
/// Counting over the next three borders decides this without a branch. With copies of different sizes, the processor would
/// mispredict a branch every other time.
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

/// Counts among the last few borders. Kept out of the loop over the lanes, which is unrolled only while its body is
/// small.
#[cold]
#[inline(never)]
fn count_short(ends: &[Border], target: u64) -> usize {
    ends.iter()
        .take_while(|border| border.offset < target)
        .count()
}
