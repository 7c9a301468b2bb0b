//! Explores the plan exhaustively: every order of calls and endings on small machines, with a failure anywhere.
//!
//! [`Plan::fingerprint`](tierflow_plan::Plan::fingerprint) and the machine's own fingerprint distinguish the states. A copy of the machine
//! makes each step. The plan's invariants and the machine's must hold in each state, and steps in which copies and transfers end well must
//! form no cycle.

use crate::explore::{Explored, Model};
use crate::machine::Setup;
use tierflow_plan::{AfterRestore, Differences, ExtentSize, Overhead, Scope, TierId};

/// Returns a setup with tiers of these sizes and extents of 1 to 2 bytes.
fn tiers(capacities: &[u64]) -> Setup {
    Setup {
        extents: ExtentSize { least: 1, most: 2 },
        ..Setup::new(capacities)
    }
}

/// Returns a model of two versions that compete for room for one, above a tier with room for all.
fn two() -> Model {
    Model {
        name: "two versions, two tiers",
        setup: tiers(&[1, 4]),
        adopts: &[],
        sizes: &[1, 1],
        restores: &[0, 1],
        hints: &[&[1, 0]],
        forget: false,
        drops: &[],
        wait: false,
        suspends: &[],
        abandons: 0,
        in_place: false,
        limits: &[],
        failures: 1,
        calls: 2,
    }
}

fn keep(setup: Setup) -> Setup {
    Setup {
        after: AfterRestore::Keep,
        ..setup
    }
}

/// Explores a model, and with `TIERFLOW_MODEL=full` also the larger ones. The plan must follow each of the `rules` at least once.
fn explore(model: &Model, larger: &[Model], rules: &[&str]) {
    let is_full = std::env::var_os("TIERFLOW_MODEL").is_some_and(|mode| mode == "full");
    let explored = Explored::of(model);
    assert!(explored.quiet > 0 && explored.steps >= explored.states() - 1);
    for rule in rules {
        assert!(explored.rules.contains(rule), "never {rule}");
    }
    for model in larger.iter().filter(|_| is_full) {
        assert!(Explored::of(model).quiet > 0);
    }
}

#[test]
fn discarded_after_their_restore() {
    let three = Model {
        name: "three versions, two tiers",
        sizes: &[1, 1, 1],
        restores: &[0, 1, 2],
        hints: &[&[2, 1, 0]],
        calls: 1,
        ..two()
    };
    let deep = Model {
        name: "two versions, three tiers, two failures",
        setup: tiers(&[1, 1, 4]),
        failures: 2,
        ..two()
    };
    explore(
        &two(),
        &[],
        &["evicted for a checkpoint", "prefetched", "failed"],
    );
    explore(
        &three,
        &[deep],
        &["cancelled", "dropped a prefetched replica"],
    );
}

#[test]
fn kept_hinted_twice_dropped_and_waited_for() {
    let kept = Model {
        name: "kept, dropped and waited for",
        setup: keep(tiers(&[1, 4])),
        hints: &[&[0, 1, 0]],
        drops: &[0],
        wait: true,
        ..two()
    };
    let deep = Model {
        name: "kept, dropped and waited for, three tiers",
        setup: keep(tiers(&[1, 1, 4])),
        ..kept.clone()
    };
    explore(&kept, &[], &["refused: stalled", "evicted for a prefetch"]);
    explore(&deep, &[], &["down past a tier", "evicted for a flush"]);
}

#[test]
fn mixed_sizes_cut_into_extents() {
    let mixed = Model {
        name: "sizes 1, 3 and 2 in a cache of 3",
        setup: tiers(&[3, 8]),
        sizes: &[1, 3, 2],
        restores: &[0, 1],
        hints: &[&[1, 0]],
        failures: 0,
        calls: 1,
        ..two()
    };
    let deep = Model {
        name: "sizes 2, 3 and 1 in caches of 3 and 2",
        setup: tiers(&[3, 2, 8]),
        sizes: &[2, 3, 1],
        ..mixed.clone()
    };
    let all = Model {
        name: "sizes 3, 2 and 1 in caches of 3 and 3, a failure",
        setup: tiers(&[3, 3, 8]),
        sizes: &[3, 2, 1],
        restores: &[0, 1, 2],
        failures: 1,
        ..mixed.clone()
    };
    explore(&mixed, &[], &["cancelled", "read past a tier"]);
    explore(&deep, &[all], &["down past a tier"]);
}

#[test]
fn too_little_room_for_all() {
    let full = Model {
        name: "three versions in room for two",
        setup: tiers(&[1, 1]),
        sizes: &[1, 1, 1],
        restores: &[1, 0],
        drops: &[0],
        wait: true,
        ..two()
    };
    let past = Model {
        name: "a version larger than the cache, three tiers",
        setup: tiers(&[1, 2, 3]),
        sizes: &[1, 2, 1],
        restores: &[1, 0, 2],
        ..full.clone()
    };
    explore(&full, &[past], &["refused: no room"]);
}

#[test]
fn hints_late_in_parts_and_wrong() {
    let wrong = Model {
        name: "hints that name what is never written, and are declared void",
        setup: tiers(&[2, 6]),
        sizes: &[1, 2],
        hints: &[&[7, 1], &[0]],
        forget: true,
        failures: 0,
        ..two()
    };
    let deep = Model {
        name: "hints in parts, wrong, three tiers",
        setup: tiers(&[2, 2, 6]),
        sizes: &[1, 2, 1],
        restores: &[0, 1, 2],
        hints: &[&[7, 2], &[0, 1]],
        calls: 1,
        ..wrong.clone()
    };
    explore(&wrong, &[deep], &["prefetched"]);
}

#[test]
fn abandoned_calls() {
    let abandoned = Model {
        name: "two calls given up",
        abandons: 2,
        wait: true,
        failures: 0,
        ..two()
    };
    let slots = Model {
        name: "a call given up, in place, three tiers",
        setup: tiers(&[2, 2, 6]),
        sizes: &[2, 1, 1],
        in_place: true,
        abandons: 1,
        wait: true,
        ..two()
    };
    explore(&abandoned, &[slots], &[]);
}

#[test]
fn tiers_shrink_and_grow() {
    let taken = Model {
        name: "the cache taken away and given back",
        limits: &[(0, 0), (0, 1)],
        failures: 0,
        ..two()
    };
    let half = Model {
        name: "half of the cache taken away, kept versions",
        setup: keep(tiers(&[2, 4])),
        hints: &[&[0, 1]],
        limits: &[(0, 1), (0, 2)],
        calls: 1,
        ..two()
    };
    let deep = Model {
        name: "two of three tiers shrink",
        setup: tiers(&[2, 2, 6]),
        sizes: &[1, 2, 1],
        restores: &[0, 2],
        hints: &[&[2, 0]],
        limits: &[(0, 1), (1, 0), (1, 2)],
        calls: 1,
        ..two()
    };
    explore(&taken, &[], &["evicted beyond a limit"]);
    explore(&half, &[deep], &["evicted beyond a limit"]);
}

#[test]
fn versions_written_and_read_in_place() {
    let slots = Model {
        name: "two versions in place",
        in_place: true,
        ..two()
    };
    let mixed = Model {
        name: "versions of two sizes in place, three tiers",
        setup: tiers(&[2, 2, 6]),
        sizes: &[1, 2, 1],
        restores: &[0, 1, 2],
        hints: &[&[1, 0, 2]],
        in_place: true,
        calls: 1,
        ..two()
    };
    let taken = Model {
        name: "in place, in a cache that is taken away",
        limits: &[(0, 0)],
        calls: 1,
        ..slots.clone()
    };
    explore(&slots, &[mixed], &["refused: no room"]);
    explore(&taken, &[], &[]);
}

#[test]
fn last_tiers_that_are_eager_whole_or_shared() {
    let last = |eager, whole, shared| {
        let mut setup = tiers(&[2, 6]);
        let tier = &mut setup.tiers[1];
        (tier.eager, tier.whole, tier.shared) = (eager, whole, shared);
        setup
    };
    let names = [
        "an eager last tier",
        "a whole last tier",
        "a shared last tier, eager and whole",
    ];
    let setups = [
        last(true, false, false),
        last(false, true, false),
        last(true, true, true),
    ];
    for (name, setup) in names.into_iter().zip(setups) {
        let model = Model {
            name,
            setup,
            sizes: &[1, 2],
            wait: true,
            calls: 1,
            ..two()
        };
        let mut three = model.clone();
        three.setup.tiers.insert(1, three.setup.tiers[0]);
        three.setup.tiers[1].eager = false;
        explore(&model, &[], &["written down"]);
        explore(&three, &[], &["up past a tier"]);
    }
}

#[test]
fn suspended() {
    let lasting = |capacities| {
        let mut setup = keep(tiers(capacities));
        for tier in &mut setup.tiers[1..] {
            (tier.eager, tier.whole) = (true, true);
        }
        setup
    };
    let newest = Model {
        name: "suspended for the newer of two versions, one failure",
        setup: lasting(&[2, 4, 4]),
        suspends: &[(1, Scope::Version)],
        wait: true,
        calls: 2,
        ..two()
    };
    let history = Model {
        name: "suspended for a history, then for one version",
        setup: lasting(&[1, 4]),
        sizes: &[1, 1, 1],
        restores: &[0],
        suspends: &[(2, Scope::History), (0, Scope::Version)],
        drops: &[1],
        abandons: 1,
        calls: 1,
        ..two()
    };
    let cut = Model {
        name: "suspended over tiers that are cut, one of which is taken away",
        setup: tiers(&[2, 2, 8]),
        sizes: &[2, 2],
        restores: &[0],
        hints: &[],
        suspends: &[(1, Scope::History)],
        limits: &[(0, 1)],
        failures: 0,
        calls: 1,
        ..two()
    };
    let fails = Model {
        sizes: &[2, 3],
        restores: &[0, 1],
        hints: &[&[1, 0]],
        wait: true,
        failures: 1,
        ..cut.clone()
    };
    let differences = Model {
        name: "suspended where versions lie as differences",
        setup: Setup {
            differences: Some(Differences {
                below: TierId::FASTEST,
                overhead: Overhead::fixed(1),
                longest: 2,
                ascending: true,
            }),
            ..lasting(&[2, 4, 4])
        },
        suspends: &[(1, Scope::History)],
        calls: 1,
        ..two()
    };
    explore(&newest, &[], &["down past a tier", "cancelled", "failed"]);
    explore(&history, &[], &["cancelled"]);
    explore(
        &cut,
        &[fails],
        &["down past a tier", "evicted beyond a limit"],
    );
    explore(&differences, &[], &["written down"]);
    explore(&lower(&differences), &[], &["written down"]);
}

/// Returns the model with differences below the second tier, so that transfers between the upper two tiers carry versions as they are.
fn lower(model: &Model) -> Model {
    let mut lower = model.clone();
    let differences = lower.setup.differences.as_mut();
    differences.unwrap().below = TierId(1);
    lower
}

#[test]
fn stored_as_differences() {
    let chain = Differences {
        below: TierId::FASTEST,
        overhead: Overhead::fixed(1),
        longest: 2,
        ascending: false,
    };
    let of = |setup: Setup| Setup {
        differences: Some(chain),
        ..setup
    };
    let pair = Model {
        name: "two versions, one a difference to the other",
        setup: of(tiers(&[1, 4])),
        ..two()
    };
    let kept = Model {
        name: "kept differences, one dropped",
        setup: of(keep(tiers(&[1, 5]))),
        drops: &[0],
        wait: true,
        calls: 1,
        ..two()
    };
    let three = Model {
        name: "three versions in chains of two, three tiers",
        setup: of(tiers(&[1, 2, 6])),
        sizes: &[1, 1, 1],
        restores: &[0, 2],
        hints: &[&[2, 0]],
        drops: &[1],
        calls: 1,
        ..two()
    };
    let mut both = Model {
        name: "two differences on their way, one to the other",
        setup: of(tiers(&[2, 5])),
        drops: &[0],
        ..two()
    };
    both.setup.tiers[1].depth = 2;
    both.setup.tiers[1].eager = true;
    let found = Model {
        name: "a chain of an earlier run, of which the first goes before the last",
        setup: of(tiers(&[1, 2, 6])),
        adopts: &[&[2], &[2, 1]],
        sizes: &[1, 1, 1],
        restores: &[1],
        hints: &[&[1]],
        drops: &[0],
        calls: 1,
        failures: 0,
        ..two()
    };
    // Chains of one version, as compression makes them: several are made at a time, and version 2 is stored as it is.
    let mut alone = three.clone();
    alone.name = "three versions, each by itself, one as it is";
    alone.setup.differences = Some(Differences {
        longest: 1,
        ..chain
    });
    explore(&pair, &[], &["written down"]);
    explore(&lower(&three), &[], &["up past a tier"]);
    explore(&lower(&alone), &[], &["up past a tier"]);
    explore(&both, &[], &["cancelled"]);
    explore(&three, &[], &["up past a tier"]);
    explore(&alone, &[], &["up past a tier"]);
    explore(&kept, &[], &[]);
    explore(&found, &[], &[]);
}

#[test]
fn versions_of_an_earlier_run() {
    let restart = Model {
        name: "one version of an earlier run, one new",
        adopts: &[&[1]],
        drops: &[0],
        wait: true,
        ..two()
    };
    let deep = Model {
        name: "versions of an earlier run on two of three tiers",
        setup: keep(tiers(&[1, 2, 4])),
        adopts: &[&[1], &[2, 1]],
        sizes: &[1, 1, 1],
        drops: &[1],
        calls: 1,
        ..restart.clone()
    };
    explore(&restart, &[deep], &["prefetched"]);
}

#[test]
fn other_policies() {
    let names = [
        "least recently used",
        "first in, first out",
        "windows by score",
    ];
    for (policy, name) in (1..).zip(names) {
        let mut setup = tiers(&[1, 4]);
        setup.policy = policy;
        let model = Model {
            name,
            setup,
            ..two()
        };
        let three = Model {
            sizes: &[1, 1, 1],
            restores: &[2, 0, 1],
            hints: &[&[2, 0, 1]],
            calls: 1,
            ..model.clone()
        };
        explore(&model, &[three], &["evicted for a checkpoint"]);
    }
}
