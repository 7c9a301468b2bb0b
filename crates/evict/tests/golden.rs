//! Tests Algorithm 1 on cases that were computed by hand: `testdata/score.txt`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fmt::Write as _;

use tierflow_evict::{
    Candidates, Distance, GAP_DISTANCE, Outlook, Policy, Score, UNHINTED_DISTANCE,
};

/// Adds a candidate in the form `-:SIZE` or `WAIT@DISTANCE:SIZE`. The head of the file of cases describes the form.
fn push(candidates: &mut Candidates, fragment: &str) {
    let (what, size) = fragment.split_once(':').expect("a colon before the size");
    let occupant = what.split_once('@').map(|(wait, distance)| Outlook {
        evictable_in: (wait != "!").then(|| wait.parse().expect("a wait in ns")),
        distance: match distance {
            "-" => Distance::Unhinted,
            hinted => Distance::At(hinted.parse().expect("a prefetch distance")),
        },
    });
    assert!(
        occupant.is_some() || what == "-",
        "neither a copy nor a gap: {fragment}"
    );
    candidates.push(size.parse().expect("a size in bytes"), occupant);
}

fn answer(candidates: &Candidates, size: u64) -> String {
    let Some(window) = Score.choose(candidates, size) else {
        return "none".into();
    };
    let inside = || (window.first..window.last).filter_map(|index| candidates.get(index));
    let gaps = inside().filter(|c| c.occupant.is_none()).count() as u64;
    let unhinted = inside()
        .filter(|c| {
            c.occupant
                .is_some_and(|copy| copy.distance == Distance::Unhinted)
        })
        .count() as u64;
    let hinted = window.s_score - gaps * GAP_DISTANCE - unhinted * UNHINTED_DISTANCE;

    let mut text = format!(
        "{}..{} p={} s={hinted}",
        window.first, window.last, window.p_score
    );
    for (count, letter) in [(unhinted, 'u'), (gaps, 'g')] {
        if count > 0 {
            write!(text, "+{count}{letter}").expect("strings take text");
        }
    }
    text
}

#[test]
fn algorithm_1() {
    let cases = include_str!("testdata/score.txt");
    let mut count = 0;
    for line in cases
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let [name, size, fragments, expected] = line
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
            .try_into()
            .expect("four columns");
        let mut candidates = Candidates::new();
        for fragment in fragments.split_whitespace() {
            push(&mut candidates, fragment);
        }
        assert_eq!(
            answer(&candidates, size.parse().expect("a size")),
            expected,
            "{name}"
        );
        count += 1;
    }
    assert!(count > 10, "the file of cases is read");
}
