//! Compares the policy with an oracle that tries all windows and computes each sum anew.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::cmp::Reverse;

use proptest::prelude::*;
use tierflow_evict::{
    Candidate, Candidates, Distance, GAP_DISTANCE, MAX_WAIT, Outlook, Policy, Score,
    UNHINTED_DISTANCE, Window,
};

type Fragment = (u64, Option<Outlook>);

fn candidates(fragments: &[Fragment]) -> Candidates {
    let mut candidates = Candidates::new();
    for &(size, occupant) in fragments {
        candidates.push(size, occupant);
    }
    candidates
}

/// Draws small numbers, so that ties are common, and sometimes extremes.
fn outlook() -> impl Strategy<Value = Outlook> {
    let wait = prop_oneof![
        5 => Just(Some(0)),
        3 => (0..4_u64).prop_map(Some),
        1 => Just(Some(u64::MAX)),
        1 => Just(None),
    ];
    let distance = prop_oneof![
        4 => (0..6_u64).prop_map(Distance::At),
        1 => Just(Distance::At(u64::MAX)),
        1 => Just(Distance::Unhinted),
    ];
    (wait, distance).prop_map(|(evictable_in, distance)| Outlook {
        evictable_in,
        distance,
    })
}

/// Draws fragments as a cache has them, without two gaps side by side.
fn fragments() -> impl Strategy<Value = Vec<Fragment>> {
    prop::collection::vec((1..6_u64, prop::option::weighted(0.75, outlook())), 0..40).prop_map(
        |mut fragments| {
            fragments.dedup_by(|b, a| a.1.is_none() && b.1.is_none());
            fragments
        },
    )
}

/// Returns the admissible windows: for every start the shortest one that is large enough.
fn windows(fragments: &[Fragment], size: u64) -> Vec<Window> {
    let mut windows = Vec::new();
    for first in 0..fragments.len() {
        for last in first + 1..=fragments.len() {
            let inside = &fragments[first..last];
            let span = inside.iter().map(|f| f.0).sum::<u64>();
            if span < size {
                continue;
            }
            let copies = || inside.iter().filter_map(|f| f.1);
            if copies().all(|copy| copy.evictable_in.is_some()) {
                windows.push(Window {
                    first,
                    last,
                    offset: fragments[..first].iter().map(|f| f.0).sum(),
                    span,
                    p_score: copies()
                        .filter_map(|c| c.evictable_in)
                        .map(|w| w.min(MAX_WAIT))
                        .sum(),
                    s_score: inside
                        .iter()
                        .map(|f| match f.1.map(|copy| copy.distance) {
                            None => GAP_DISTANCE,
                            Some(Distance::Unhinted) => UNHINTED_DISTANCE,
                            Some(Distance::At(d)) => d.min(UNHINTED_DISTANCE - 1),
                        })
                        .sum(),
                });
            }
            break;
        }
    }
    windows
}

/// The best window by `value`, smaller being better; on a tie the one of lowest offset.
fn oracle<V: Ord>(
    fragments: &[Fragment],
    size: u64,
    value: impl Fn(&Window) -> V,
) -> Option<Window> {
    let windows = windows(fragments, size);
    let one_gap = |w: &&Window| w.last == w.first + 1 && fragments[w.first].1.is_none();
    // `min_by_key` gives the first of equals.
    windows
        .iter()
        .find(one_gap)
        .or_else(|| windows.iter().min_by_key(|window| value(window)))
        .copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn score_is_the_best_of_all_windows(fragments in fragments(), size in 1..30_u64) {
        let best = oracle(&fragments, size, |w| (w.p_score, Reverse(w.s_score)));
        prop_assert_eq!(Score.choose(&candidates(&fragments), size), best);
    }

    #[test]
    fn candidates_give_back_what_was_pushed(fragments in fragments()) {
        let candidates = candidates(&fragments);
        let mut offset = 0;
        let mut expected = Vec::new();
        for &(size, occupant) in &fragments {
            let occupant = occupant.map(|copy| Outlook {
                evictable_in: copy.evictable_in.map(|wait| wait.min(MAX_WAIT)),
                distance: match copy.distance {
                    Distance::At(d) => Distance::At(d.min(UNHINTED_DISTANCE - 1)),
                    Distance::Unhinted => Distance::Unhinted,
                },
            });
            expected.push(Candidate { offset, size, occupant });
            offset += size;
        }
        let got: Vec<_> = (0..candidates.len()).filter_map(|index| candidates.get(index)).collect();
        prop_assert_eq!(got, expected);
        prop_assert_eq!(candidates.bytes(), offset);
        prop_assert_eq!(candidates.get(fragments.len()), None);
    }
}

#[test]
fn nothing_is_chosen_for_no_bytes_or_too_many() {
    let mut full = Candidates::new();
    assert_eq!(Score.choose(&full, 1), None);
    full.push(u64::MAX, None);
    assert_eq!(Score.choose(&full, 0), None);
    assert_eq!(Score.choose(&full, u64::MAX), None);
    assert!(Score.choose(&full, full.bytes()).is_some());
}

/// The totals exceed a `u64`. The scores, which are differences of totals, must still be exact.
#[test]
fn scores_are_exact_after_totals_have_wrapped() {
    let longest = Outlook {
        evictable_in: Some(u64::MAX),
        distance: Distance::Unhinted,
    };
    let mut candidates = Candidates::new();
    // 2^24 longest waits are just below 2^64.
    for _ in 0..(1 << 24) + 10 {
        candidates.push(1, Some(longest));
    }
    candidates.push(
        1,
        Some(Outlook {
            evictable_in: Some(7),
            ..longest
        }),
    );
    candidates.push(
        1,
        Some(Outlook {
            distance: Distance::At(3),
            ..longest
        }),
    );
    let last = candidates.len();

    let window = Score
        .choose(&candidates, 2)
        .expect("all are evictable in time");
    assert_eq!((window.first, window.last), (last - 3, last - 1));
    assert_eq!(
        (window.p_score, window.s_score),
        (MAX_WAIT + 7, 2 * UNHINTED_DISTANCE)
    );
}

#[test]
fn there_is_no_fragment_at_the_largest_index() {
    let some = candidates(&[(1, None), (2, None)]);
    assert_eq!(some.get(usize::MAX), None);
    assert!(some.get(1).is_some());
}
