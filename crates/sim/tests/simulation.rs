//! Tests of the outcomes of simulations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tierflow_plan::{AfterRestore, Refusal};
use tierflow_sim::{
    Error, Hardware, Hints, Hop, Link, Op, Order, Schedule, Shot, Simulation, Tier, UNLIMITED,
    Workload, fluid_bound, made_up_sizes,
};

const MIB: u64 = 1 << 20;

fn uniform(count: usize, order: Order, hints: Hints) -> Workload {
    let sizes = vec![128 * MIB; count];
    Shot {
        order,
        hints,
        ..Shot::new(sizes, 10_000_000)
    }
    .workload()
}

fn h100() -> Hardware {
    Hardware::h100(4 << 30, 32 << 30)
}

#[test]
fn the_same_input_gives_the_same_outcome() {
    let sizes = |seed| made_up_sizes(64, 8 << 30, seed);
    let workloads: Vec<_> = (0..8)
        .map(|gpu| {
            Shot {
                order: Order::Irregular(gpu),
                ..Shot::new(sizes(gpu), 5_000_000)
            }
            .workload()
        })
        .collect();
    let run = || {
        Simulation::new(Hardware::hgx_h200(1 << 30, 4 << 30))
            .run(&workloads)
            .unwrap()
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first.events > 1_000);
}

#[test]
fn one_call_takes_latency_and_copy() {
    let workload = uniform(1, Order::Reverse, Hints::All);
    let outcome = Simulation::new(h100()).run(&[workload]).unwrap();
    let gpu = &outcome.clients[0];
    // Each way takes 10 µs and the time of 128 MiB at 1458 GB/s.
    assert_eq!(gpu.blocking_ns(), 2 * (10_000 + 92_057));
    assert_eq!(gpu.elapsed_ns, gpu.blocking_ns() + 20_000_000);
    assert_eq!((gpu.checkpointed, gpu.restored), (128 * MIB, 128 * MIB));
    assert_eq!(gpu.prefetch_distance, [0]);
}

#[test]
fn time_is_accounted_for_to_the_nanosecond() {
    for hints in [Hints::None, Hints::Single, Hints::All] {
        for order in [Order::Sequential, Order::Reverse, Order::Irregular(3)] {
            let workload = uniform(120, order, hints);
            let outcome = Simulation::new(h100())
                .run(std::slice::from_ref(&workload))
                .unwrap();
            let gpu = &outcome.clients[0];
            assert_eq!(gpu.elapsed_ns, gpu.lost_ns() + workload.compute_ns());
            let tiers = &gpu.statistics.tiers;
            assert_eq!(tiers.iter().map(|t| t.restores).sum::<u64>(), 120);
            assert_eq!(tiers.iter().map(|t| t.checkpoints).sum::<u64>(), 120);
            assert_eq!(gpu.restored, workload.bytes());
            assert!(gpu.stalls.restore_from_below_ns <= gpu.stalls.restore_copy_ns);
        }
    }
}

#[test]
fn hints_bring_versions_near_before_they_are_asked_for() {
    let run = |hints| {
        let workload = uniform(120, Order::Irregular(3), hints);
        let outcome = Simulation::new(h100()).run(&[workload]).unwrap();
        outcome.clients[0].clone()
    };
    let (none, all) = (run(Hints::None), run(Hints::All));
    assert!(all.mean_prefetch_distance() > 3.0 * none.mean_prefetch_distance());
    assert!(all.restore_blocking_ns() < none.restore_blocking_ns());
    assert!(all.statistics.tiers[0].restores > none.statistics.tiers[0].restores);
}

#[test]
fn neighbours_slow_each_other_down_and_nodes_do_not() {
    let hardware = Hardware::hgx_h200(1 << 30, 4 << 30);
    let shot = Shot::new(vec![128 * MIB; 60], 5_000_000).workload();
    let lost = |gpus: usize| {
        let outcome = Simulation::new(hardware.clone())
            .run(&vec![shot.clone(); gpus])
            .unwrap();
        outcome
            .clients
            .iter()
            .map(|gpu| gpu.lost_ns())
            .collect::<Vec<_>>()
    };
    let (one, eight, sixteen) = (lost(1), lost(8), lost(16));
    assert!(eight.iter().all(|&gpu| gpu > one[0]));
    assert_eq!(sixteen[..8], eight);
    assert_eq!(sixteen[8..], eight);
}

#[test]
fn coupled_gpus_wait_for_the_slowest() {
    let shot = |compute_ns| {
        Shot {
            coupled: true,
            ..Shot::new(vec![MIB; 10], compute_ns)
        }
        .workload()
    };
    let workloads = [shot(1_000_000), shot(3_000_000)];
    let outcome = Simulation::new(h100()).run(&workloads).unwrap();
    let waits: Vec<_> = outcome
        .clients
        .iter()
        .map(|gpu| gpu.stalls.barrier_ns)
        .collect();
    // The GPU waits before each of 10 checkpoints, and before 9 restores, as the first restore follows a checkpoint.
    assert!(waits[0] >= 19 * 2_000_000 && waits[1] == 0, "{waits:?}");
}

/// A schedule of ten steps with three slots, as an example of the file's form.
const SCHEDULE: &str = include_str!("data/revolve_10_3.json");

#[test]
fn a_schedule_writes_while_it_restores_and_reads_twice() {
    let schedule = Schedule::from_json(SCHEDULE).unwrap();
    assert_eq!(schedule, Schedule::revolve(10, 3));
    let small = |cache: u64| {
        let hop = |bandwidth| Hop::over(Link::own(bandwidth), 1_000);
        Hardware::new()
            .tier(Tier::new("device", cache), hop(100_000_000_000))
            .tier(Tier::new("host", UNLIMITED), hop(1_000_000_000))
    };
    for hints in [Hints::None, Hints::Single, Hints::All] {
        let workload = schedule.workload(MIB, 100_000, hints);
        assert!(workload.ops.iter().any(|op| matches!(op, Op::Drop(_))));
        for cache in [MIB, 2 * MIB, 8 * MIB] {
            let hardware = small(cache);
            let simulation = Simulation::new(hardware.clone()).check_every_event();
            let outcome = simulation.run(std::slice::from_ref(&workload)).unwrap();
            let bound = fluid_bound(&hardware, std::slice::from_ref(&workload)).unwrap();
            assert!(outcome.lost_ns() >= bound.lost_ns);
            if cache == 8 * MIB {
                assert!(
                    outcome.lost_ns()
                        <= bound.lost_ns + outcome.clients[0].prefetch_distance.len() as u64 * 4
                );
            }
        }
    }
}

#[test]
fn knowing_a_schedule_beforehand_pays() {
    let schedule = Schedule::revolve(200, 20);
    let hardware = Hardware::h100(4 << 30, 12 << 30);
    let run = |hints| {
        let workload = [schedule.workload(1 << 30, 5_000_000, hints)];
        let outcome = Simulation::new(hardware.clone()).run(&workload).unwrap();
        let bound = fluid_bound(&hardware, &workload).unwrap();
        outcome.lost_ns() as f64 / bound.lost_ns as f64
    };
    let (none, all) = (run(Hints::None), run(Hints::All));
    assert!(all < 1.5 && all < none, "{all}, without hints {none}");
}

#[test]
fn impossible_simulations_are_refused_with_a_reason() {
    let run = |hardware: Hardware, ops: Vec<Op>| {
        let after_restore = AfterRestore::Discard;
        Simulation::new(hardware)
            .run(&[Workload { ops, after_restore }])
            .unwrap_err()
    };
    let write = |version, bytes| Op::Checkpoint { version, bytes };
    for (ops, reason) in [
        (vec![write(1, 0)], "no bytes"),
        (vec![write(1, 1), write(1, 1)], "twice"),
        (vec![Op::Restore(1)], "too early"),
        (
            vec![write(1, 1), Op::Restore(1), Op::Restore(1)],
            "last to use",
        ),
    ] {
        let error = run(h100(), ops);
        assert!(
            matches!(error, Error::Workload { .. }) && error.to_string().contains(reason),
            "{error}"
        );
    }
    let mut full = h100();
    full.tiers.truncate(1);
    full.hops.truncate(1);
    let error = run(
        full.clone(),
        (0..40).map(|version| write(version, 128 * MIB)).collect(),
    );
    assert!(
        matches!(
            error,
            Error::Refused {
                version: 32,
                refusal: Refusal::NoRoom,
                ..
            }
        ),
        "{error}"
    );
    full.hops.clear();
    assert!(matches!(run(full, Vec::new()), Error::Hardware(_)));
    let mut none = h100();
    none.hops[1].links[0].down = 0;
    assert!(matches!(run(none, Vec::new()), Error::Hardware(_)));
}

#[test]
fn a_time_line_changes_nothing_and_nothing_on_it_overlaps() {
    let workload = [uniform(96, Order::Irregular(3), Hints::All)];
    let simulation = Simulation::new(Hardware::h100(1 << 30, 8 << 30));
    let mut timeline = tierflow_plan::timeline::Timeline::new(1 << 20);
    let outcome = simulation
        .run_with_timeline(&workload, &mut timeline)
        .unwrap();
    assert_eq!(outcome, simulation.run(&workload).unwrap());
    let mut text = Vec::new();
    timeline.write(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let mut rows = std::collections::BTreeMap::<u64, Vec<(u64, u64)>>::new();
    let ns = |value: &serde_json::Value| (value.as_f64().unwrap() * 1000.0).round() as u64;
    let (mut copied, mut waited) = (0, 0);
    for event in json["traceEvents"].as_array().unwrap() {
        if event["ph"] != "X" {
            continue;
        }
        let (begin, length) = (ns(&event["ts"]), ns(&event["dur"]));
        match event["name"].as_str().unwrap() {
            "checkpoint" | "restore" => copied += length,
            "wait for room" | "wait for arrival" => waited += length,
            _ => {}
        }
        let row = rows.entry(event["tid"].as_u64().unwrap()).or_default();
        row.push((begin, begin + length));
    }
    for spans in rows.values_mut() {
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
    let stalls = outcome.clients[0].stalls;
    assert_eq!(copied, stalls.checkpoint_copy_ns + stalls.restore_copy_ns);
    assert_eq!(waited, stalls.room_ns + stalls.arrival_ns);
}

#[test]
fn a_history_that_fits_is_not_flushed_unless_a_tier_is_eager() {
    let flushed = |eager: bool, workload: Workload| {
        let mut hardware = h100();
        hardware
            .tiers
            .iter_mut()
            .for_each(|tier| tier.eager = eager);
        let outcome = Simulation::new(hardware).run(&[workload]).unwrap();
        let hops = outcome.clients[0].statistics.hops.iter();
        hops.filter(|hop| hop.from < hop.to)
            .map(|hop| hop.bytes)
            .sum::<u64>()
    };
    // The device has room for one more version beside the history.
    let small = uniform(31, Order::Reverse, Hints::All);
    assert_eq!(flushed(false, small.clone()), 0);
    assert!(flushed(true, small) > 0);
    // The shot fits the host, but not quite the device.
    let medium = uniform(200, Order::Reverse, Hints::All);
    let down = flushed(false, medium.clone());
    assert!(down <= 200 * 128 * MIB, "none of it to the disk: {down}");
    assert!(flushed(true, medium) > down);
}

/// Checks the goal for sizes that vary, and the benefit of a wait for flushes.
#[test]
fn shots_of_different_sizes_come_near_the_bound() {
    let hardware = h100();
    let lost = |order: fn(u64) -> Order, wait: bool| {
        let shots = (4..8).map(|seed| Shot {
            order: order(seed),
            wait,
            ..Shot::new(made_up_sizes(384, 46_000_000_000, seed), 10_000_000)
        });
        let (mut lost, mut bound) = (0, 0);
        for workload in shots.map(|shot| [shot.workload()]) {
            let outcome = Simulation::new(hardware.clone()).run(&workload).unwrap();
            lost += outcome.lost_ns();
            bound += fluid_bound(&hardware, &workload).unwrap().lost_ns;
        }
        lost as f64 / bound as f64
    };
    let irregular = lost(Order::Irregular, false);
    assert!(irregular < 1.3, "{irregular}");
    let reverse = lost(|_| Order::Reverse, false);
    assert!(reverse < 1.05, "{reverse}");
    let waits = lost(|_| Order::Reverse, true);
    assert!(
        waits < 1.01,
        "all that is written last stays on the device: {waits}"
    );
    // No plan reaches the bound here: the version that is read next was written first, when little else could be flushed.
    let sequential = lost(|_| Order::Sequential, false);
    assert!(sequential < 6.0, "{sequential}");
}

#[test]
fn two_full_tiers_exchange_versions_that_are_read_again() {
    // Every fourth version is read twice. Device and host have room for these, and are full of versions that nobody reads.
    let shot = Shot {
        order: Order::Sequential,
        hints: Hints::All,
        passes: 2,
        after_restore: AfterRestore::Keep,
        unread: (0..60).filter(|version| version % 4 != 0).collect(),
        ..Shot::new(vec![8 * MIB; 60], 3_000_000)
    };
    let hardware = Hardware::new()
        .tier(
            Tier::new("device", 3 * 8 * MIB),
            Hop::over(Link::own(1_458_000_000_000), 10_000),
        )
        .tier(
            Tier::new("host", 20 * 8 * MIB),
            Hop::over(Link::own(8_000_000_000), 10_000),
        )
        .tier(
            Tier::new("file", UNLIMITED).depth(4),
            Hop::over(Link::own(1_000_000_000), 100_000),
        );
    let outcome = Simulation::new(hardware).run(&[shot.workload()]).unwrap();
    // The host serves only restores that come before the unread versions are written to the file. At first, two thirds of 30 came from the file.
    let below_ns = outcome.clients[0].stalls.restore_from_below_ns;
    let each_ns = 8 * MIB / 8 + 10_000;
    assert!(below_ns < 10 * each_ns, "{below_ns} ns");
}
