//! Streams of actions can be run: each step is reversed once from its own state, and only stored states are used.

use proptest::prelude::*;
use std::collections::HashSet;
use std::time::Duration;
use tierflow_schedule::{Action, Codec, Machine, Plan, Schedule, Tier};

/// Runs a stream, and checks that the state that each action needs is there.
fn run(actions: impl Iterator<Item = Action>, steps: usize) {
    let mut work = Some(0);
    let mut stored = HashSet::new();
    let mut left = steps;
    let mut is_swept = false;
    for action in actions {
        match action {
            Action::Forward { from, to } => {
                assert_eq!(work, Some(from));
                assert!(from < to && to <= steps);
                work = Some(to);
            }
            Action::Save { step, .. } => {
                assert_eq!(work, Some(step));
                assert!(
                    step < steps && stored.insert(step),
                    "{step} is stored already"
                );
            }
            Action::EndForward => {
                assert!(!is_swept && work == Some(steps));
                (is_swept, work) = (true, None);
            }
            Action::Restart { step } => {
                assert!(is_swept && stored.contains(&step));
                work = Some(step);
            }
            Action::Reverse { step } => {
                assert!(is_swept && step + 1 == left && work == Some(step));
                (left, work) = (step, None);
            }
            Action::Forget { step } => assert!(stored.remove(&step)),
        }
    }
    assert_eq!(left, 0);
    assert!(stored.is_empty(), "{stored:?} are never forgotten");
}

fn tier() -> impl Strategy<Value = Tier> {
    let rate = prop_oneof![1 => Just(0.0), 1 => Just(f64::INFINITY), 8 => 1e7..1e10];
    let room = prop_oneof![1 => Just(u64::MAX), 8 => 0..40_000_000u64];
    (room, rate.clone(), rate).prop_map(|(room, down, up)| Tier { room, down, up })
}

prop_compose! {
    fn machine()(
        forward in 0..2000u64,
        backward in 0..4000u64,
        state in prop_oneof![1 => Just(0u64), 9 => Just(1_000_000u64)],
        device in 0..20_000_000u64,
        tiers in prop::collection::vec(tier(), 0..4),
        copy in prop_oneof![Just(f64::INFINITY), Just(f64::NAN), 1e9..1e11],
        ratio in prop::option::of(0.5..20.0),
    ) -> Machine {
        let codec = ratio.map(|ratio| Codec {
            ratio,
            encode: Duration::from_micros(50),
            decode: Duration::from_micros(30),
        });
        let (forward, backward) = (Duration::from_micros(forward), Duration::from_micros(backward));
        Machine { forward, backward, state, device, tiers, copy, codec }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_step_is_reversed_once_from_its_state(machine in machine(), steps in 1usize..80) {
        let best = Plan::best(&machine, steps);
        run(best.actions(), steps);
        let expected = best.expected().expect("revolve on the device fits").as_secs_f64();
        prop_assert!(expected >= best.bound().time.as_secs_f64() * (1.0 - 1e-6) - 1e-9);
        run(Plan::quick(&machine, steps).actions(), steps);
    }

    #[test]
    fn the_online_rule_stores_what_its_reversal_uses(machine in machine(), idle in prop::collection::vec(any::<[bool; 3]>(), 1..80)) {
        let mut schedule = Schedule::new(&machine, None);
        let mut done = Vec::new();
        for links in &idle {
            while let Some(action) = schedule.next_action(links) {
                done.push(action);
                if matches!(action, Action::Forward { .. }) {
                    break;
                }
            }
        }
        schedule.end(&machine);
        done.extend(schedule.ahead());
        run(done.iter().copied(), idle.len());
        prop_assert!(schedule.plan().unwrap().actions().eq(done));
    }
}

#[test]
fn no_steps_are_one_step() {
    let machine = Machine {
        forward: Duration::ZERO,
        backward: Duration::ZERO,
        state: 0,
        device: 0,
        tiers: Vec::new(),
        copy: 0.0,
        codec: None,
    };
    run(Plan::best(&machine, 0).actions(), 1);
    let mut unknown = Schedule::new(&machine, None);
    unknown.end(&machine);
    run(unknown.ahead(), 1);
}

#[test]
fn a_codec_is_used_where_it_pays() {
    let machine = |ratio: f64| Machine {
        forward: Duration::from_millis(1),
        backward: Duration::from_millis(2),
        state: 1_000_000,
        device: 10_000_000,
        tiers: vec![Tier {
            room: 30_000_000,
            down: 2e8,
            up: 2e8,
        }],
        copy: f64::INFINITY,
        codec: Some(Codec {
            ratio,
            encode: Duration::from_micros(50),
            decode: Duration::from_micros(50),
        }),
    };
    let coded = Plan::best(&machine(4.0), 200);
    let plain = Plan::best(&machine(1.0), 200);
    assert!(
        coded
            .actions()
            .any(|action| matches!(action, Action::Save { coded: true, .. }))
    );
    assert!(
        !plain
            .actions()
            .any(|action| matches!(action, Action::Save { coded: true, .. }))
    );
    let ratio = coded.expected().unwrap().as_secs_f64() / coded.bound().time.as_secs_f64();
    assert!(
        coded.expected() < plain.expected() && ratio < 1.05,
        "{ratio}"
    );
}
