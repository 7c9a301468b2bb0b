//! Tests of random histories: every byte can be read back after any calls, whatever the order in which copies and transfers end.

use crate::machine::Ending;
use crate::machine::{Machine, Setup};
use proptest::prelude::*;
use tierflow_plan::{
    AfterRestore, Difference, Differences, ExtentSize, Overhead, Scope, TierConfig, TierId,
};

#[derive(Debug, Clone)]
enum Step {
    Checkpoint(u64, bool),
    WriteAtOnce(u64),
    ReadAtOnce(prop::sample::Index),
    Again(prop::sample::Index),
    Restore(prop::sample::Index, bool),
    Unknown(u64),
    Drop(prop::sample::Index),
    Prune(prop::sample::Index),
    Hint(Vec<u64>),
    HintNext(Vec<u64>),
    ForgetHints,
    PrefetchStart,
    Wait,
    WaitFor(prop::sample::Index),
    Suspend(prop::sample::Index, bool),
    Limit(usize, u64),
    Abandon(prop::sample::Index),
    End(prop::sample::Index),
    Fail(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        30 => (1_u64..12, prop::bool::weighted(0.2)).prop_map(|(size, slot)| Step::Checkpoint(size, slot)),
        8 => (1_u64..12).prop_map(Step::WriteAtOnce),
        5 => index().prop_map(Step::ReadAtOnce),
        1 => index().prop_map(Step::Again),
        20 => (index(), prop::bool::weighted(0.2)).prop_map(|(at, slot)| Step::Restore(at, slot)),
        1 => (0_u64..30).prop_map(Step::Unknown),
        3 => index().prop_map(Step::Drop),
        1 => index().prop_map(Step::Prune),
        4 => prop::collection::vec(0_u64..30, 1..20).prop_map(Step::Hint),
        2 => prop::collection::vec(0_u64..30, 1..6).prop_map(Step::HintNext),
        1 => Just(Step::ForgetHints),
        2 => Just(Step::PrefetchStart),
        2 => Just(Step::Wait),
        3 => index().prop_map(Step::WaitFor),
        2 => (index(), any::<bool>()).prop_map(|(at, all)| Step::Suspend(at, all)),
        2 => (0_usize..4, 0_u64..50).prop_map(|(tier, bytes)| Step::Limit(tier, bytes)),
        2 => index().prop_map(Step::Abandon),
        70 => index().prop_map(Step::End),
        4 => index().prop_map(Step::Fail),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let capacities = prop_oneof![
        Just(vec![40]),
        Just(vec![10, 400]),
        Just(vec![12, 24, 600]),
        Just(vec![20, 24, 30]),
        Just(vec![7, 5, 20, 600]),
    ];
    let kind = (any::<bool>(), 0_usize..5, 1_usize..4, 0_u32..16);
    let cut = (1_u64..4, 1_u64..3);
    (capacities, kind, cut).prop_map(
        |(capacities, (keep, policy, depth, flags), (least, factor))| {
            let mut setup = Setup::new(&capacities);
            let last = setup.tiers.len() - 1;
            for tier in &mut setup.tiers {
                tier.depth = depth;
                tier.small = if flags & 8 == 0 { 0 } else { 3 };
            }
            setup.tiers[last] = TierConfig {
                eager: flags & 1 != 0,
                whole: flags & 2 != 0 && last > 0,
                shared: flags & 4 != 0,
                ..setup.tiers[last]
            };
            if keep {
                setup.after = AfterRestore::Keep;
            }
            setup.policy = policy;
            setup.extents = ExtentSize {
                least,
                most: 2 * least * factor,
            };
            setup
        },
    )
}

fn run(setup: &Setup, adopted: &[u64], steps: Vec<Step>) {
    let mut machine = Machine::new(setup);
    let mut next = 0;
    let mut base = None;
    let last = setup.tiers.len() - 1;
    for &size in adopted {
        let is_difference = setup.differences.is_some_and(|how| last > how.below.0);
        let difference = is_difference.then_some(Difference { bytes: 1, base });
        machine.adopt(
            next,
            if setup.differences.is_some() { 5 } else { size },
            &[last],
            difference,
        );
        base = Some(next).filter(|_| machine.held().contains(&next));
        next += 1;
    }
    for step in steps {
        match step {
            Step::Checkpoint(size, slot) => {
                machine.checkpoint(next, size, slot);
                next += 1;
            }
            Step::WriteAtOnce(size) => {
                machine.write_at_once(next, size);
                next += 1;
            }
            Step::ReadAtOnce(at) => {
                let held = machine.held();
                if !held.is_empty() {
                    machine.read_at_once(held[at.index(held.len())]);
                }
            }
            Step::Again(at) if next > 0 => {
                let version = at.index(next as usize) as u64;
                machine.checkpoint(version, 3, false);
            }
            Step::Restore(at, slot) => {
                let held = machine.held();
                if !held.is_empty() {
                    machine.restore(held[at.index(held.len())], slot);
                }
            }
            Step::Unknown(version) => {
                if !machine.is_used(version) {
                    machine.restore(version, false);
                }
            }
            Step::Drop(at) => {
                let held = machine.held();
                if !held.is_empty() {
                    machine.drop_version(held[at.index(held.len())]);
                }
            }
            Step::Prune(at) => {
                let mut held = machine.held();
                if !held.is_empty() {
                    held.truncate(at.index(held.len()) + 1);
                    machine.prune(held);
                }
            }
            Step::Hint(versions) => machine.hint(versions),
            Step::HintNext(versions) => machine.hint_next(versions),
            Step::ForgetHints => machine.forget_hints(),
            Step::PrefetchStart => machine.prefetch_start(),
            Step::Wait => drop(machine.wait()),
            Step::WaitFor(at) => {
                let held = machine.held();
                if !held.is_empty() {
                    let version = held[at.index(held.len())];
                    let wait = machine.wait_for(version);
                    assert_eq!(machine.is_done(wait), machine.plan().is_settled(version));
                }
            }
            Step::Suspend(at, all) => {
                let held = machine.held();
                if !held.is_empty() {
                    let scope = if all { Scope::History } else { Scope::Version };
                    machine.suspend(held[at.index(held.len())], scope);
                }
            }
            Step::Limit(tier, bytes) => machine.limit(tier % setup.tiers.len(), bytes),
            Step::Abandon(at) => {
                let open = machine.open();
                if !open.is_empty() {
                    machine.abandon(open[at.index(open.len())].0);
                }
            }
            Step::End(at) => drop(machine.end_one(at.index(1000))),
            Step::Fail(at) => {
                let fails = |ending: &Ending| {
                    matches!(
                        ending,
                        Ending::Write(_, false)
                            | Ending::Read(_, false)
                            | Ending::Transfer(_, Some(_))
                    )
                };
                let endings: Vec<_> = machine.endings().into_iter().filter(fails).collect();
                if !endings.is_empty() {
                    machine.end(endings[at.index(endings.len())]);
                }
            }
            Step::Again(_) => {}
        }
    }
    for tier in 0..setup.tiers.len() {
        machine.limit(tier, u64::MAX);
    }
    machine.settle();
    machine.wait();
    machine.settle();
    // Nothing fails from now on. After the next wait, all versions without known damage are on the lowest tier.
    let mut held = machine.held();
    held.retain(|version| !machine.damaged.contains(version));
    let builds_upon_damage = setup.differences.is_some() && !machine.damaged.is_empty();
    if setup.tiers[last].capacity >= 400 && !builds_upon_damage {
        for version in held {
            assert!(machine.plan().is_settled(version), "{version}");
        }
    }
    machine.read_back();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        tierflow_testing::variable("TIERFLOW_HISTORIES", 2_000)
    ))]

    #[test]
    fn every_byte_comes_back(
        setup in setup(),
        adopted in prop::collection::vec(1_u64..9, 0..4),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(&setup, &adopted, steps);
    }

    #[test]
    fn every_byte_comes_back_through_differences(
        mut setup in setup(),
        below in any::<prop::sample::Index>(),
        longest in 1_u32..4,
        ascending in any::<bool>(),
        adopted in prop::collection::vec(1_u64..9, 0..4),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let below = TierId(below.index(setup.tiers.len()));
        let overhead = Overhead::fixed(2);
        setup.differences = Some(Differences { below, overhead, longest, ascending });
        run(&setup, &adopted, steps);
    }
}
