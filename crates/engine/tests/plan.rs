//! The plan against a world that does everything in any order, fails, and takes its time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod world;

use proptest::prelude::*;
use tierflow_engine::plan::{AfterRestore, Differences, TierId};
use world::{Ending, POLICIES, World};

#[derive(Debug, Clone, Copy)]
enum Step {
    Checkpoint { size: u8 },
    Produce { size: u8 },
    Consume { version: u8 },
    Reuse { version: u8 },
    Restore { version: u8 },
    RestoreNewest { back: u8 },
    Hint { from: u8, count: u8, down: bool },
    PrefetchStart,
    Drop { version: u8 },
    Wait,
    Limit { tier: u8, share: u8 },
    End { which: u8, ok: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..12).prop_map(|size| Step::Checkpoint { size }),
        2 => (0_u8..12).prop_map(|size| Step::Produce { size }),
        2 => any::<u8>().prop_map(|version| Step::Consume { version }),
        1 => any::<u8>().prop_map(|version| Step::Reuse { version }),
        3 => any::<u8>().prop_map(|version| Step::Restore { version }),
        3 => (0_u8..4).prop_map(|back| Step::RestoreNewest { back }),
        2 => (any::<u8>(), 1_u8..10, any::<bool>()).prop_map(|(from, count, down)| Step::Hint { from, count, down }),
        1 => Just(Step::PrefetchStart),
        1 => any::<u8>().prop_map(|version| Step::Drop { version }),
        1 => Just(Step::Wait),
        1 => (any::<u8>(), 0_u8..=4).prop_map(|(tier, share)| Step::Limit { tier, share }),
        12 => (any::<u8>(), prop::bool::weighted(0.9)).prop_map(|(which, ok)| Step::End { which, ok }),
    ]
}

#[test]
fn the_number_of_an_earlier_run_is_free_once_it_is_gone() {
    let mut world = World::new(&[10, 1_000], 1, 0, 0, AfterRestore::Keep);
    world.adopt(4, &[1]);
    world.adopt(4, &[1]);
    world.checkpoint_as(0, 4);
    assert_eq!(world.refused, 1);
    world.drop_version(0);
    world.checkpoint_as(0, 7);
    world.settle();
    assert_eq!((world.refused, world.held[&0]), (1, 7));
    world.drop_version(0);
    world.checkpoint_as(0, 7);
    assert_eq!(world.refused, 2, "it was this run's");
    world.read_back();
}

fn run(world: &mut World, steps: &[Step]) {
    for &step in steps {
        let known = world.next_version.max(1);
        match step {
            Step::Checkpoint { size } => world.checkpoint(u64::from(size)),
            Step::Reuse { version } => {
                let version = u64::from(version) % known;
                // A refused or failed number is free again; a held or gone one is not.
                if world.held.contains_key(&version) || world.gone.contains(&version) {
                    let before = world.refused;
                    world.checkpoint_as(version, 1);
                    assert_eq!(world.refused, before + 1);
                }
            }
            Step::Produce { size } => world.produce(u64::from(size)),
            Step::Consume { version } => world.consume(u64::from(version) % (known + 2)),
            Step::Restore { version } => world.restore(u64::from(version) % (known + 2)),
            Step::RestoreNewest { back } => {
                world.restore(known.saturating_sub(1 + u64::from(back)))
            }
            Step::Hint { from, count, down } => {
                let from = u64::from(from) % (known + 4);
                let hints = (0..u64::from(count)).map(|i| {
                    if down {
                        from.saturating_sub(i)
                    } else {
                        from + i
                    }
                });
                world.hint(hints.collect());
            }
            Step::PrefetchStart => world.prefetch_start(),
            Step::Drop { version } => world.drop_version(u64::from(version) % (known + 1)),
            Step::Wait => world.wait(),
            Step::Limit { tier, share } => world.limit_to(usize::from(tier), u64::from(share)),
            Step::End { which, ok } => drop(world.end_one(usize::from(which), ok)),
        }
    }
}

/// Found by the histories below: a version that is gone was flushed for one that builds upon it and is gone as well.
#[test]
fn what_only_builds_upon_what_is_gone_causes_no_io() {
    let differences = Differences {
        overhead: 0,
        longest: 2,
        ascending: false,
    };
    let end = |which, ok| Step::End { which, ok };
    let steps = [
        Step::Checkpoint { size: 1 },
        Step::Checkpoint { size: 3 },
        end(20, true),
        Step::RestoreNewest { back: 1 },
        end(79, true),
        end(0, true),
        Step::Checkpoint { size: 3 },
        end(0, true),
        end(0, false),
        end(0, true),
        end(1, true),
        end(1, false),
        Step::Checkpoint { size: 2 },
        Step::Restore { version: 85 },
        Step::Checkpoint { size: 5 },
        end(11, true),
        Step::Restore { version: 107 },
        end(30, true),
        Step::Limit { tier: 34, share: 0 },
        end(21, true),
    ];
    let mut world = World::of(
        &[13, 6, 3, 5_000],
        1,
        0,
        0,
        AfterRestore::Discard,
        Some(differences),
    );
    run(&mut world, &steps);
    world.read_back();
}

fn after() -> impl Strategy<Value = AfterRestore> {
    prop_oneof![Just(AfterRestore::Keep), Just(AfterRestore::Discard)]
}

fn differences() -> impl Strategy<Value = Option<Differences>> {
    let chains = (0_u64..4, 1_u32..6, any::<bool>()).prop_map(|(overhead, longest, ascending)| {
        Differences {
            overhead,
            longest,
            ascending,
        }
    });
    prop::option::of(chains)
}

/// Random histories to try: set PROPTEST_CASES for a long run.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(1_500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nobody_waits_for_ever(
        capacities in prop::collection::vec(1_u64..40, 1..4),
        big_last in any::<bool>(),
        depth in 1_usize..4,
        policies in 0_usize..POLICIES,
        percent in prop_oneof![Just(0_u8), 0_u8..=100],
        after in after(),
        differences in differences(),
        chain in prop::collection::vec(1_u64..6, 0..4),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut capacities = capacities;
        if big_last {
            capacities.push(5_000);
        }
        let mut world = World::of(&capacities, depth, policies, percent, after, differences);
        let lowest = capacities.len() - 1;
        if differences.is_some() && capacities[lowest] > 20 && lowest > 0 {
            world.adopt_chain(7, &chain, &[lowest]);
        }
        run(&mut world, &steps);
        world.read_back();
    }
}

/// One uniform forward pass, then a restore pass in `order`; everything under way ends before each next call.
fn shot(capacities: &[u64], order: impl Fn(u64) -> u64, hints: bool) -> World {
    let mut world = World::new(capacities, 1, 0, 0, AfterRestore::Discard);
    let versions = 40;
    if hints {
        world.hint((0..versions).map(&order).collect());
    }
    for _ in 0..versions {
        world.checkpoint(10);
        world.settle();
    }
    world.prefetch_start();
    world.settle();
    for step in 0..versions {
        world.restore(order(step));
        world.settle();
    }
    assert!(world.held.is_empty());
    world
}

#[test]
fn with_hints_every_restore_is_served_from_the_fastest_tier() {
    let reverse = shot(&[50, 100, 1_000], |step| 39 - step, true);
    let sequential = shot(&[50, 100, 1_000], |step| step, true);
    let irregular = shot(&[50, 100, 1_000], |step| step * 7 % 40, true);
    for world in [reverse, sequential, irregular] {
        assert_eq!(
            world.restores_from(TierId(0)),
            40,
            "transfers had all the time they wanted"
        );
    }
}

#[test]
fn without_hints_the_newest_are_near_and_the_oldest_far() {
    let world = shot(&[50, 100, 1_000], |step| 39 - step, false);
    let served: Vec<u64> = (0..3)
        .map(|tier| world.restores_from(TierId(tier)))
        .collect();
    assert_eq!(
        served,
        [5, 5, 30],
        "5 on the device, 10 on the host of which 5 are the same"
    );
}

#[test]
fn a_checkpoint_larger_than_a_cache_passes_it_by() {
    let mut world = World::new(&[10, 30, 1_000], 1, 0, 0, AfterRestore::Keep);
    world.checkpoint(20);
    world.checkpoint(500);
    world.settle();
    world.restore(0);
    world.restore(1);
    world.settle();
    assert_eq!(
        (
            world.restores_from(TierId(1)),
            world.restores_from(TierId(2))
        ),
        (1, 1)
    );
    world.checkpoint(1_001);
    assert_eq!(world.refused, 1);
}

#[test]
fn a_flush_is_no_use_of_what_is_flushed() {
    for policy in 0..POLICIES {
        let mut world = World::new(&[20, 1_000], 1, policy, 0, AfterRestore::Keep);
        let tier = TierId(0);
        for version in 0..2 {
            world.checkpoint(10);
            world.end(Ending::Write(version, tier, true));
        }
        world.end(Ending::Transfer(0, tier, TierId(1), Ok(())));
        world.checkpoint(10);
        assert!(
            world.endings().contains(&Ending::Write(2, tier, true)),
            "version 0 is flushed and used least recently; nobody has to wait for the flush of version 1"
        );
        world.read_back();
    }
}

#[test]
fn prefetches_leave_room_for_versions_to_come() {
    let mut world = World::new(&[20, 1_000], 1, 0, 0, AfterRestore::Keep);
    for _ in 0..3 {
        world.checkpoint(10);
        world.settle();
    }
    // Version 3 will be read first, and has yet to be written.
    world.hint(vec![3, 0, 1]);
    world.prefetch_start();
    world.settle();
    world.checkpoint(10);
    world.settle();
    assert_eq!(world.dropped_prefetches(), 0);
    for version in [3, 0, 1] {
        world.restore(version);
        world.settle();
    }
    assert_eq!(world.restores_from(TierId(0)), 3);
    // What is hinted and never comes holds nobody up.
    world.hint(vec![70, 80, 90, 2]);
    world.settle();
    world.restore(2);
    world.read_back();
}

#[test]
fn a_checkpoint_waits_for_a_flush_rather_than_go_past_a_pinned_copy() {
    let mut world = World::new(&[10, 1_000], 1, 0, 0, AfterRestore::Keep);
    let (fast, slow) = (TierId(0), TierId(1));
    world.checkpoint(10);
    world.end(Ending::Write(0, fast, true));
    world.hint(vec![0]);
    world.prefetch_start();
    // Version 0 is pinned, and on its way down: then it can be given up.
    world.checkpoint(10);
    assert!(!world.endings().contains(&Ending::Write(1, slow, true)));
    world.end(Ending::Transfer(0, fast, slow, Ok(())));
    assert!(world.endings().contains(&Ending::Write(1, fast, true)));
    world.read_back();
}

#[test]
fn full_tiers_refuse_and_lose_nothing() {
    let mut world = World::new(&[20, 30], 1, 0, 0, AfterRestore::Discard);
    for _ in 0..8 {
        world.checkpoint(10);
        world.settle();
    }
    assert_eq!(
        world.held.len(),
        5,
        "20 + 30 bytes hold five versions once flushed copies are given up"
    );
    assert_eq!(world.refused, 3);
    world.read_back();
}

#[test]
fn a_second_forward_pass_is_not_mistaken_for_the_way_back() {
    let mut world = World::new(&[50, 100, 5_000], 1, 0, 50, AfterRestore::Discard);
    for shot in 0..3_u64 {
        let versions = shot * 40..shot * 40 + 40;
        world.hint(versions.clone().rev().collect());
        for _ in versions.clone() {
            world.checkpoint(10);
            world.settle();
        }
        // The newest are near, though prefetching never stopped: what is hinted first is written last.
        let served = world.restores_from(TierId(0));
        for version in versions.rev().take(5) {
            world.restore(version);
            world.end_one(0, true);
        }
        assert_eq!(world.restores_from(TierId(0)) - served, 5, "shot {shot}");
        world.settle();
        for version in (shot * 40..shot * 40 + 35).rev() {
            world.restore(version);
            world.settle();
        }
    }
}

#[test]
fn a_tier_that_shrinks_is_emptied_and_one_that_grows_is_used_at_once() {
    let mut world = World::new(&[40, 1_000], 1, 0, 100, AfterRestore::Keep);
    let (fast, slow) = (TierId(0), TierId(1));
    for _ in 0..4 {
        world.checkpoint(10);
        world.settle();
    }
    assert_eq!(world.transfers_started(), 0, "all of it fits");
    world.restore(3);
    world.limit(fast, 20);
    assert!(!world.is_released());
    world.checkpoint(10);
    world.end(Ending::Transfer(2, fast, slow, Ok(())));
    world.end(Ending::Transfer(3, fast, slow, Ok(())));
    assert!(!world.is_released(), "version 3 is being read");
    world.end(Ending::Read(3, fast, true));
    assert!(world.is_released());
    world.settle();
    // Too large for what is left, but not for the tier below; and the whole of it once it is back.
    world.checkpoint(30);
    assert!(world.endings().contains(&Ending::Write(5, slow, true)));
    world.settle();
    world.limit(fast, 40);
    assert!(world.is_released(), "there is nothing to wait for");
    world.checkpoint(30);
    world.settle();
    world.restore(6);
    assert!(world.endings().contains(&Ending::Read(6, fast, true)));
    world.read_back();
}

#[test]
fn what_only_a_larger_limit_could_hold_is_refused_for_now() {
    let mut world = World::new(&[40], 1, 0, 0, AfterRestore::Keep);
    world.limit(TierId(0), 20);
    world.checkpoint(30);
    assert_eq!(world.refused, 1);
    world.limit(TierId(0), 40);
    world.checkpoint(30);
    world.settle();
    assert_eq!((world.refused, world.held.len()), (1, 1));
}
