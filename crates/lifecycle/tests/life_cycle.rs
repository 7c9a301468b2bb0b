//! Explores the whole life cycle: 7 states by 11 events.

use std::collections::BTreeSet;

use tierflow_lifecycle::{Event, IllegalMove, State};

/// All legal moves. Every other move is illegal.
#[rustfmt::skip]
const LEGAL: [(State, Event, State); 20] = [
    (State::Init,            Event::WriteBegan, State::WriteInProgress),
    (State::Init,            Event::ReadBegan,  State::ReadInProgress),
    (State::WriteInProgress, Event::WriteEnded, State::WriteComplete),
    (State::WriteInProgress, Event::Failed,     State::Init),
    (State::WriteComplete,   Event::Flushed,    State::Flushed),
    (State::WriteComplete,   Event::Pinned,     State::ReadComplete),
    (State::WriteComplete,   Event::Consumed,   State::Consumed),
    (State::Flushed,         Event::Unflushed,  State::WriteComplete),
    (State::Flushed,         Event::Pinned,     State::ReadComplete),
    (State::Flushed,         Event::Consumed,   State::Consumed),
    (State::Flushed,         Event::Evicted,    State::Init),
    (State::ReadInProgress,  Event::ReadEnded,  State::ReadComplete),
    (State::ReadInProgress,  Event::Failed,     State::Init),
    (State::ReadComplete,    Event::Flushed,    State::ReadComplete),
    (State::ReadComplete,    Event::Unpinned,   State::Flushed),
    (State::ReadComplete,    Event::Consumed,   State::Consumed),
    (State::Consumed,        Event::Flushed,    State::Consumed),
    (State::Consumed,        Event::Pinned,     State::ReadComplete),
    (State::Consumed,        Event::Consumed,   State::Consumed),
    (State::Consumed,        Event::Evicted,    State::Init),
];

/// Returns `start` and the states that can be reached from it by the events that `allow` permits.
fn reachable(start: State, allow: impl Fn(Event) -> bool) -> BTreeSet<State> {
    let mut seen = BTreeSet::from([start]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        for event in Event::ALL.into_iter().filter(|&event| allow(event)) {
            if let Ok(next) = state.on(event)
                && seen.insert(next)
            {
                open.push(next);
            }
        }
    }
    seen
}

#[test]
fn the_function_is_the_table() {
    for from in State::ALL {
        for event in Event::ALL {
            let listed = LEGAL
                .iter()
                .find(|&&(f, e, _)| (f, e) == (from, event))
                .map(|&(_, _, to)| to);
            assert_eq!(
                from.on(event),
                listed.ok_or(IllegalMove { from, event }),
                "{from} {event}"
            );
        }
    }
}

#[test]
fn the_lists_of_all_states_and_events_have_no_doubles() {
    assert_eq!(BTreeSet::from(State::ALL).len(), State::ALL.len());
    assert_eq!(BTreeSet::from(Event::ALL).len(), Event::ALL.len());
}

#[test]
fn every_state_is_reached_from_init() {
    assert_eq!(reachable(State::Init, |_| true), BTreeSet::from(State::ALL));
}

#[test]
fn every_event_is_legal_somewhere() {
    for event in Event::ALL {
        assert!(
            State::ALL.into_iter().any(|state| state.on(event).is_ok()),
            "{event}"
        );
    }
}

#[test]
fn a_pinned_copy_becomes_evictable_only_by_consumption_or_un_pinning() {
    let kept = |event| !matches!(event, Event::Consumed | Event::Unpinned);
    assert_eq!(
        reachable(State::ReadComplete, kept),
        BTreeSet::from([State::ReadComplete])
    );
}

#[test]
fn an_unflushed_copy_is_not_lost_while_it_is_wanted() {
    // From WRITE_COMPLETE no evictable state is reached unless the copy is flushed, consumed, or un-pinned by a sender that guarantees a
    // slower copy.
    let kept = |event| !matches!(event, Event::Flushed | Event::Consumed | Event::Unpinned);
    assert!(
        reachable(State::WriteComplete, kept)
            .iter()
            .all(|state| !state.is_evictable())
    );
}

#[test]
fn no_state_is_a_trap() {
    for state in State::ALL {
        let ahead = reachable(state, |_| true);
        assert!(
            ahead.iter().any(|s| s.is_evictable()),
            "{state} never becomes evictable"
        );
        assert!(
            ahead.contains(&State::Init),
            "{state} never gives its space back"
        );
    }
}

#[test]
fn space_is_taken_back_only_from_evictable_or_failed_copies() {
    for state in State::ALL {
        assert_eq!(
            state.on(Event::Evicted).is_ok(),
            state.is_evictable(),
            "{state}"
        );
        assert_eq!(
            state.on(Event::Failed).is_ok(),
            state.in_transit(),
            "{state}"
        );
    }
}

#[test]
fn states_answer_what_may_be_done() {
    for state in State::ALL {
        let kinds = [
            state == State::Init,
            state.in_transit(),
            state.is_readable(),
        ];
        assert_eq!(
            kinds.iter().filter(|&&kind| kind).count(),
            1,
            "{state} is one of three kinds"
        );
        assert!(!state.is_evictable() || state.is_readable(), "{state}");
        assert_eq!(
            state.on(Event::Consumed).is_ok(),
            state.is_readable(),
            "{state}"
        );
    }
}

#[test]
fn an_illegal_move_says_which_and_what_was_legal() {
    let error = State::ReadComplete.on(Event::Evicted).unwrap_err();
    assert_eq!(
        error.to_string(),
        "illegal move: \"evicted\" in state READ_COMPLETE; legal there: flushed, unpinned, consumed"
    );
}
