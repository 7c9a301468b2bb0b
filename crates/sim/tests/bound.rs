//! No run goes below the fluid bound, and runs come close to it if only bandwidth matters.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use std::collections::HashSet;
use std::ops::Range;
use tierflow_plan::{AfterRestore, ExtentSize, Fifo, Lru, Residency, Score};
use tierflow_sim::{
    Bound, Error, Hardware, Hints, Hop, Link, Mistake, Mistakes, Op, Order, Outcome, Schedule,
    Shot, Simulation, Tier, UNLIMITED, Workload, fluid_bound,
};

/// Rates are in bytes/s, so with 1 GB/s a byte takes 1 ns.
const GB: u64 = 1_000_000_000;

fn link() -> impl Strategy<Value = Link> {
    let both = prop_oneof![Just(UNLIMITED), 1_u64..8];
    let gpus = prop_oneof![Just(1_usize), Just(2), Just(4)];
    (1_u64..6, 1_u64..6, both, gpus).prop_map(|(down, up, both, gpus)| Link {
        down: down * GB / 10,
        up: up * GB / 10,
        both: both.saturating_mul(GB / 10),
        gpus,
    })
}

/// Draws two or three tiers. The last one has no limit.
fn hardware() -> impl Strategy<Value = Hardware> {
    let hop =
        (link(), link(), any::<bool>(), 0_u64..200).prop_map(|(first, second, two, latency)| {
            let hop = Hop::over(first, latency);
            if two { hop.and(second) } else { hop }
        });
    let small = prop_oneof![Just(0_u64), 1_u64..200];
    let tier = (100_u64..600, any::<bool>(), 1_usize..4, small);
    prop::collection::vec((tier, hop), 2..4).prop_map(|tiers| {
        let last = tiers.len() - 1;
        let with = |hardware: Hardware,
                    (at, ((capacity, eager, depth, small), hop)): (usize, _)| {
            let capacity = if at == last { UNLIMITED } else { capacity };
            let mut tier = Tier::new("tier", capacity).depth(depth);
            tier.alignment = 1;
            tier.eager = eager;
            tier.small = small;
            hardware.tier(tier, hop)
        };
        tiers.into_iter().enumerate().fold(Hardware::new(), with)
    })
}

fn order() -> impl Strategy<Value = Order> {
    let seed = any::<u64>();
    prop_oneof![
        Just(Order::Sequential),
        Just(Order::Reverse),
        seed.prop_map(Order::Irregular),
        (1_u64..6).prop_map(Order::ReverseBlocks),
        (1_u64..6, seed).prop_map(|(length, seed)| Order::IrregularBlocks { length, seed }),
        (2_u64..6).prop_map(Order::Strides),
    ]
}

fn hints() -> impl Strategy<Value = Hints> {
    let kind = prop_oneof![Just(Mistake::Misplaced), Just(Mistake::Unwritten)];
    let wrong = (0_u8..60, kind, any::<u64>()).prop_map(|(percent, kind, seed)| {
        Hints::Wrong(Mistakes {
            percent,
            kind,
            seed,
        })
    });
    prop_oneof![
        2 => Just(Hints::None),
        2 => Just(Hints::Single),
        2 => Just(Hints::All),
        1 => (0_u8..100).prop_map(Hints::Late),
        1 => (1_u8..9).prop_map(Hints::Parts),
        1 => wrong,
    ]
}

fn shot() -> impl Strategy<Value = Shot> {
    let sizes = prop_oneof![
        prop::collection::vec(1_u64..300, 1..24),
        (1_u64..200, 1_usize..24).prop_map(|(size, count)| vec![size; count])
    ];
    let restores = prop_oneof![
        3 => Just((AfterRestore::Discard, 1)),
        2 => (1_usize..4).prop_map(|passes| (AfterRestore::Keep, passes)),
    ];
    (
        sizes,
        0_u64..800,
        order(),
        hints(),
        any::<bool>(),
        any::<bool>(),
        restores,
    )
        .prop_map(
            |(sizes, compute_ns, order, hints, wait, coupled, (after_restore, passes))| Shot {
                sizes,
                compute_ns,
                order,
                hints,
                wait,
                coupled,
                passes,
                unread: HashSet::new(),
                after_restore,
            },
        )
}

/// Draws one workload, or several that share links: the same workload on all, other sizes on each, schedules, or shots one after the
/// other.
fn workloads() -> impl Strategy<Value = Vec<Workload>> {
    let shifted = |shot: Shot, gpus: usize| {
        let mut shot = shot;
        let each = (0..gpus).map(|_| {
            shot.sizes.rotate_left(1);
            shot.workload()
        });
        each.collect()
    };
    let schedule = (1_usize..40, 1_usize..6, 1_u64..200, 0_u64..200, 1_usize..4).prop_map(
        |(steps, slots, bytes, ns, gpus)| {
            let schedule = Schedule::revolve(steps, slots);
            vec![schedule.workload(bytes, ns, Hints::All); gpus]
        },
    );
    let mixed = prop::collection::vec(shot(), 1..5).prop_map(|shots| {
        let uncoupled = shots.into_iter().map(|shot| Shot {
            coupled: false,
            ..shot
        });
        uncoupled.map(|shot| shot.workload()).collect()
    });
    let several = (prop::collection::vec(shot(), 2..4), 1_usize..4).prop_map(|(shots, gpus)| {
        let each = shots.iter().map(|shot| {
            let (coupled, after_restore) = (shots[0].coupled, shots[0].after_restore);
            let passes = [1, shot.passes][usize::from(after_restore == AfterRestore::Keep)];
            Shot {
                coupled,
                after_restore,
                passes,
                ..shot.clone()
            }
            .workload()
        });
        let workload = each.reduce(|earlier, later| earlier.then(&later)).unwrap();
        vec![workload; gpus]
    });
    prop_oneof![
        4 => (shot(), 1_usize..5).prop_map(move |(shot, gpus)| shifted(shot, gpus)),
        1 => schedule,
        2 => mixed,
        2 => several,
    ]
}

fn simulate(hardware: &Hardware, policy: usize, workloads: &[Workload]) -> Result<Outcome, Error> {
    let extents = ExtentSize {
        least: 20,
        most: 60,
    };
    let simulation = Simulation::new(hardware.clone()).extents(extents);
    let simulation = match policy {
        0 => simulation.policy(|| Residency),
        1 => simulation.policy(|| Fifo),
        2 => simulation.policy(|| Lru),
        _ => simulation.policy(|| Score),
    };
    simulation.check_every_event().run(workloads)
}

fn cases() -> u32 {
    tierflow_testing::variable("PROPTEST_CASES", 400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_run_by_residency_or_fifo_goes_below_the_bound(hardware in hardware(), workloads in workloads()) {
        stay_above(&hardware, &workloads, 0..2)?;
    }

    #[test]
    fn no_run_by_lru_or_score_goes_below_the_bound(hardware in hardware(), workloads in workloads()) {
        stay_above(&hardware, &workloads, 2..4)?;
    }
}

/// Asserts that runs with these policies lose no less time than the bound.
fn stay_above(
    hardware: &Hardware,
    workloads: &[Workload],
    policies: Range<usize>,
) -> Result<(), TestCaseError> {
    let bound = fluid_bound(hardware, workloads).unwrap();
    for policy in policies {
        let outcome = match simulate(hardware, policy, workloads) {
            // A wait in a shot after the first may fail in this way.
            Err(Error::Stalled { .. }) => continue,
            outcome => outcome.unwrap(),
        };
        let lost = outcome.lost_ns();
        prop_assert!(lost >= bound.lost_ns, "{lost} < {bound:?}");
        prop_assert!(bound.copies_ns <= bound.lost_ns + 1);
    }
    Ok(())
}

/// Returns a fast cache above a slow tier without a limit: 1 byte/ns and 0.1 bytes/ns. No transfer counts as small, although all have at
/// most 60 bytes.
fn two_tiers(cache: u64) -> Hardware {
    let cache = Tier {
        alignment: 1,
        ..Tier::new("cache", cache)
    };
    let below = Tier {
        alignment: 1,
        small: 0,
        ..Tier::new("below", UNLIMITED)
    };
    Hardware::new()
        .tier(cache, Hop::over(Link::own(GB), 0))
        .tier(below, Hop::over(Link::own(GB / 10), 0))
}

fn of(hardware: &Hardware, workloads: &[Workload]) -> (f64, Bound) {
    let bound = fluid_bound(hardware, workloads).unwrap();
    let outcome = simulate(hardware, 0, workloads).unwrap();
    (outcome.lost_ns() as f64 / bound.lost_ns as f64, bound)
}

#[test]
fn a_history_that_fits_costs_its_copies_and_not_a_nanosecond_more() {
    let shot = Shot::new(vec![100; 10], 500);
    let (ratio, bound) = of(&two_tiers(1_000), &[shot.workload()]);
    assert_eq!(
        bound,
        Bound {
            lost_ns: 2_000,
            copies_ns: 2_000
        }
    );
    assert_eq!(ratio, 1.0);
}

#[test]
fn a_forward_pass_is_held_up_by_what_does_not_fit() {
    // Of 100 versions of 100 bytes, 1000 bytes fit, and 9000 must cross at 0.1 bytes/ns. Computing hides 100 × 500 ns of that.
    let mut workload = Shot::new(vec![100; 100], 500).workload();
    workload.ops.truncate(201);
    let (ratio, bound) = of(&two_tiers(1_000), &[workload]);
    assert!((40_000..42_000).contains(&bound.lost_ns), "{bound:?}");
    assert!(ratio < 1.03, "{ratio}");
}

#[test]
fn a_checkpoint_takes_the_room_of_the_version_read_after_it() {
    let checkpoint = |version| Op::Checkpoint {
        version,
        bytes: 100,
    };
    let workload = Workload {
        ops: vec![
            checkpoint(0),
            Op::Compute(10_000),
            checkpoint(1),
            Op::Restore(0),
        ],
        after_restore: AfterRestore::Keep,
    };
    // 10 bytes go down while version 1 is copied, and 10 come up while version 0 is copied. 60 bytes fit beside the other 90 of version 1,
    // so 30 more must come up at 0.1 bytes/ns.
    let (ratio, bound) = of(&two_tiers(150), &[workload]);
    assert_eq!(
        bound,
        Bound {
            lost_ns: 600,
            copies_ns: 300
        }
    );
    assert!(ratio < 1.4, "{ratio}");
}

#[test]
fn restores_are_held_up_by_what_lies_below() {
    let shot = Shot {
        wait: true,
        order: Order::Sequential,
        ..Shot::new(vec![100; 100], 500)
    };
    let (ratio, bound) = of(&two_tiers(1_000), &[shot.workload()]);
    // All 10 000 bytes go down, and 9 000 come up again. The computing of both passes hides half of that time.
    assert!((90_000..96_000).contains(&bound.lost_ns), "{bound:?}");
    assert!(ratio < 1.1, "{ratio}");
}

#[test]
fn computing_hides_what_it_is_long_enough_for() {
    let shot = Shot {
        wait: true,
        ..Shot::new(vec![100; 100], 1_100)
    };
    let (ratio, bound) = of(&two_tiers(1_000), &[shot.workload()]);
    assert!(ratio < 1.2, "{ratio} of {bound:?}");
}

#[test]
fn a_shared_link_holds_up_everyone() {
    let mut hardware = two_tiers(1_000);
    hardware.hops[1].links[0].gpus = 4;
    for coupled in [false, true] {
        let shot = Shot {
            wait: true,
            coupled,
            ..Shot::new(vec![100; 100], 500)
        };
        let one = fluid_bound(&hardware, &[shot.workload()]).unwrap();
        let (ratio, four) = of(&hardware, &vec![shot.workload(); 4]);
        assert!(
            four.lost_ns > 8 * one.lost_ns,
            "four do not fit side by side"
        );
        // If the GPUs are not coupled, the best schedule serves one after the other: the first ends early, and reads while the others write.
        // With fair sharing, all end late.
        assert!(ratio < if coupled { 1.1 } else { 3.0 }, "{ratio}");
    }
}

#[test]
fn dropped_versions_need_no_room() {
    let mut ops = Vec::new();
    for version in 0..50 {
        ops.push(Op::Checkpoint {
            version,
            bytes: 100,
        });
        ops.push(Op::Drop(version));
    }
    let workload = Workload {
        ops,
        after_restore: AfterRestore::Keep,
    };
    let (ratio, bound) = of(&two_tiers(300), &[workload]);
    assert_eq!(
        bound,
        Bound {
            lost_ns: 5_000,
            copies_ns: 5_000
        }
    );
    assert_eq!(ratio, 1.0);
}
