//! The plan explored exhaustively: every order of calls and endings of small configurations, with a failure anywhere.
//!
//! States are told apart by [`Plan::fingerprint`](tierflow_engine::plan::Plan::fingerprint) and the world's own. A
//! state is reached by replaying the events that lead to it, so neither the plan nor a policy has to be cloned. In each
//! state hold the plan's own invariants and the world's; and steps in which things end well form no circle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod explore;
mod world;

use explore::{Explored, Model};
use tierflow_engine::plan::{AfterRestore, Differences, TierId};
use world::World;

/// Two versions that fight for room for one, above a tier with room for all.
const TWO: Model = Model {
    name: "two versions, two tiers",
    capacities: &[1, 4],
    depth: 1,
    policy: 0,
    percent: 1,
    after: AfterRestore::Discard,
    adopts: &[],
    sizes: &[1, 1],
    restores: &[0, 1],
    hints: &[1, 0],
    drops: &[],
    wait: false,
    in_place: false,
    limits: &[],
    differences: None,
    failures: 1,
    calls: 2,
};

/// Explores a model, and more than that where `TIERFLOW_MODEL=full` asks for it.
fn explore(model: &Model, larger: &[Model]) {
    let is_full = std::env::var_os("TIERFLOW_MODEL").is_some_and(|mode| mode == "full");
    let larger = if is_full { larger } else { &[] };
    for model in std::iter::once(model).chain(larger) {
        let explored = Explored::of(model);
        assert!(explored.quiet > 0 && explored.steps >= explored.states() - 1);
    }
}

#[test]
fn discarded_after_their_restore() {
    let three = Model {
        name: "three versions, two tiers",
        sizes: &[1, 1, 1],
        restores: &[0, 1, 2],
        hints: &[2, 1, 0],
        calls: 1,
        ..TWO
    };
    let tiers = Model {
        name: "two versions, three tiers, two failures",
        capacities: &[1, 1, 4],
        failures: 2,
        ..TWO
    };
    let both = Model {
        name: "three versions, three tiers",
        capacities: &[1, 1, 4],
        calls: 3,
        ..three.clone()
    };
    explore(&TWO, &[]);
    explore(&three, &[tiers, both]);
}

#[test]
fn kept_hinted_twice_and_dropped() {
    let keep = Model {
        name: "kept, dropped and waited for",
        after: AfterRestore::Keep,
        hints: &[0, 1, 0],
        drops: &[0],
        wait: true,
        ..TWO
    };
    let tiers = Model {
        name: "kept, dropped and waited for, three tiers",
        capacities: &[1, 1, 4],
        ..keep.clone()
    };
    explore(&keep, &[tiers]);
}

#[test]
fn windows_of_several_copies() {
    let sizes = Model {
        name: "sizes 1, 2 and 1 in a cache of 2",
        capacities: &[2, 6],
        sizes: &[1, 2, 1],
        restores: &[0, 1],
        hints: &[1, 0],
        calls: 1,
        ..TWO
    };
    let deep = Model {
        name: "sizes 1, 2 and 1 in caches of 2 and 3, two transfers at a time",
        capacities: &[2, 3, 8],
        depth: 2,
        restores: &[0, 1, 2],
        hints: &[1, 0, 2],
        ..sizes.clone()
    };
    explore(&sizes, &[deep]);
}

#[test]
fn too_little_room_for_all() {
    let full = Model {
        name: "three versions in room for two",
        capacities: &[1, 1],
        sizes: &[1, 1, 1],
        restores: &[1, 0],
        drops: &[0],
        wait: true,
        calls: 2,
        ..TWO
    };
    let past = Model {
        name: "a version larger than the cache, three tiers",
        capacities: &[1, 2, 3],
        sizes: &[1, 2, 1],
        restores: &[1, 0, 2],
        ..full.clone()
    };
    explore(&full, &[past]);
}

#[test]
fn flushed_only_when_somebody_needs_it() {
    let lazy = Model {
        name: "flushed above half",
        capacities: &[2, 4],
        percent: 50,
        sizes: &[1, 1, 1],
        restores: &[0, 2],
        hints: &[2, 0],
        wait: true,
        calls: 1,
        ..TWO
    };
    let tiers = Model {
        name: "flushed when full, three tiers",
        capacities: &[1, 2, 4],
        percent: 100,
        calls: 2,
        ..lazy.clone()
    };
    let foreseen = Model {
        name: "flushed where it is not foreseen to fit",
        percent: 0,
        ..TWO
    };
    explore(&lazy, &[tiers]);
    explore(&foreseen, &[]);
}

#[test]
fn tiers_shrink_and_grow() {
    let taken = Model {
        name: "the cache taken away and given back",
        sizes: &[1, 1],
        limits: &[(0, 0), (0, 1)],
        ..TWO
    };
    let half = Model {
        name: "half of the cache taken away, kept versions",
        capacities: &[2, 4],
        after: AfterRestore::Keep,
        sizes: &[1, 1],
        hints: &[0, 1],
        limits: &[(0, 1), (0, 2)],
        calls: 1,
        ..TWO
    };
    let tiers = Model {
        name: "two of three tiers shrink",
        capacities: &[2, 2, 4],
        sizes: &[1, 1, 1],
        restores: &[0, 2],
        hints: &[2, 0],
        limits: &[(0, 1), (1, 0), (1, 2)],
        calls: 1,
        ..TWO
    };
    let lazy = Model {
        name: "two tiers shrink, flushed when full",
        capacities: &[2, 2, 4],
        percent: 100,
        after: AfterRestore::Keep,
        hints: &[1, 0, 1],
        limits: &[(0, 1), (1, 1), (0, 2)],
        drops: &[0],
        ..TWO
    };
    explore(&taken, &[tiers]);
    explore(&half, &[lazy]);
}

#[test]
fn versions_written_and_read_in_place() {
    let two = Model {
        name: "two versions in place",
        in_place: true,
        ..TWO
    };
    let keep = Model {
        name: "kept versions in place, in a cache that is taken away",
        after: AfterRestore::Keep,
        hints: &[0, 1, 0],
        limits: &[(0, 0)],
        drops: &[0],
        wait: true,
        ..two.clone()
    };
    let three = Model {
        name: "three versions in place, three tiers",
        capacities: &[2, 2, 4],
        sizes: &[1, 2, 1],
        restores: &[0, 1, 2],
        hints: &[1, 0, 2],
        calls: 1,
        ..two.clone()
    };
    let taken = Model {
        name: "in place, in a cache that is taken away",
        limits: &[(0, 0)],
        calls: 1,
        ..two.clone()
    };
    explore(&two, &[three]);
    explore(&taken, &[keep]);
}

#[test]
fn stored_as_differences() {
    let chain = Differences {
        overhead: 1,
        longest: 2,
        ascending: false,
    };
    let two = Model {
        name: "two versions, one a difference to the other",
        capacities: &[1, 4],
        differences: Some(chain),
        ..TWO
    };
    let keep = Model {
        name: "kept differences, one dropped",
        capacities: &[1, 5],
        after: AfterRestore::Keep,
        hints: &[1, 0],
        drops: &[0],
        wait: true,
        calls: 1,
        ..two.clone()
    };
    let three = Model {
        name: "three versions in chains of two, three tiers",
        capacities: &[1, 2, 6],
        sizes: &[1, 1, 1],
        restores: &[0, 2],
        hints: &[2, 0],
        drops: &[1],
        calls: 1,
        ..two.clone()
    };
    let shrink = Model {
        name: "differences on tiers that shrink",
        capacities: &[2, 4, 6],
        sizes: &[2, 2],
        limits: &[(0, 0), (1, 2)],
        calls: 1,
        ..keep.clone()
    };
    let in_place = Model {
        name: "differences of versions written and read in place",
        in_place: true,
        ..two.clone()
    };
    let found = Model {
        name: "a chain of an earlier run, of which the first goes before the last",
        capacities: &[1, 2, 6],
        adopts: &[&[2], &[2, 1]],
        sizes: &[1, 1, 1],
        restores: &[1],
        hints: &[1],
        drops: &[0],
        wait: true,
        calls: 1,
        ..two.clone()
    };
    explore(&two, &[three]);
    explore(&keep, &[shrink]);
    explore(&in_place, &[]);
    explore(&found, &[]);
}

#[test]
fn other_policies() {
    for (policy, name) in [(1, "fifo"), (2, "lru"), (3, "cost")] {
        let three = Model {
            name,
            policy,
            sizes: &[1, 1, 1],
            restores: &[2, 0, 1],
            hints: &[2, 0, 1],
            calls: 2,
            ..TWO
        };
        explore(
            &Model {
                policy,
                name,
                ..TWO
            },
            &[three],
        );
    }
}

#[test]
fn versions_of_an_earlier_run() {
    let restart = Model {
        name: "one version of an earlier run, one new",
        adopts: &[&[1]],
        restores: &[0, 1],
        drops: &[0],
        wait: true,
        ..TWO
    };
    let tiers = Model {
        name: "versions of an earlier run on two of three tiers",
        capacities: &[1, 2, 4],
        adopts: &[&[1], &[2, 1]],
        sizes: &[1, 1, 1],
        after: AfterRestore::Keep,
        restores: &[0, 1],
        drops: &[1],
        calls: 1,
        ..restart.clone()
    };
    let kept = Model {
        name: "versions of an earlier run on two of three tiers, discarded",
        after: AfterRestore::Discard,
        calls: 2,
        ..tiers.clone()
    };
    explore(&restart, &[tiers, kept]);
}

/// How long a random walk is: a million steps and more in a nightly run, with `TIERFLOW_STEPS`.
fn steps() -> usize {
    let asked = std::env::var("TIERFLOW_STEPS").ok();
    asked.and_then(|steps| steps.parse().ok()).unwrap_or(30_000)
}

/// One long history: what small models cannot show, such as counters that drift and numbers that run full.
#[test]
fn a_long_walk() {
    let chains = Some(Differences {
        overhead: 2,
        longest: 5,
        ascending: true,
    });
    for (after, policy, differences) in [
        (AfterRestore::Discard, 0, None),
        (AfterRestore::Keep, 1, None),
        (AfterRestore::Keep, 2, None),
        (AfterRestore::Discard, 3, None),
        (AfterRestore::Keep, 3, None),
        (AfterRestore::Discard, 1, chains),
        (AfterRestore::Keep, 0, chains),
    ] {
        let capacities = &[40, 70, 300];
        let mut world = World::of(capacities, 2, policy, 30, after, differences);
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            // xorshift64 (Marsaglia, 2003).
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        // Versions of one size make chains, others end them.
        let is_chained = differences.is_some();
        let size = |some: u64| if is_chained { 5 + some / 11 } else { 1 + some };
        for _ in 0..steps() / 7 {
            let held: Vec<_> = world.held.keys().copied().collect();
            let some = held.get(random(held.len().max(1) as u64) as usize).copied();
            match (random(16), some) {
                (0, _) if held.len() < 40 => world.produce(size(random(12))),
                (3, Some(version)) => world.consume(version),
                (1..=2, _) if held.len() < 40 => world.checkpoint(size(random(12))),
                (4, Some(version)) => world.restore(version),
                (5, Some(version)) => world.hint(
                    (version.saturating_sub(random(6))..=version)
                        .rev()
                        .collect(),
                ),
                (6, Some(version)) if after == AfterRestore::Keep => world.drop_version(version),
                (7, _) if random(20) == 0 => world.wait(),
                (8, _) => world.prefetch_start(),
                (9, _) if random(10) == 0 => {
                    let tier = random(2) as usize;
                    world.limit(TierId(tier), random([41, 71][tier]));
                }
                _ => {
                    let is_well = random(30) > 0;
                    world.end_one(random(1 << 20) as usize, is_well);
                }
            }
        }
        world.read_back();
        assert!(world.next_version > 100 && world.transfers_started() > 100);
    }
}
