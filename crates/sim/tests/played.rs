//! Plays schedules of reversed computations on the engine's plan.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;
use tierflow_plan::{AfterRestore, Version};
use tierflow_schedule::{Action, Machine, Plan, Tier};
use tierflow_sim::{Hardware, Hop, Link, Op, Simulation, Workload};

/// Returns the machine of RTM with states of 128 MiB, 10 GB of device memory for them, and links of `host` and `disk` GB/s.
fn rtm(forward: f64, backward: f64, [host, disk]: [f64; 2], rate: f64) -> Machine {
    let tier = |gigabytes: f64, rate: f64| Tier {
        room: (gigabytes * 1e9) as u64,
        down: rate * 1e9,
        up: rate * 1e9,
    };
    Machine {
        forward: Duration::from_secs_f64(forward * 1e-3),
        backward: Duration::from_secs_f64(backward * 1e-3),
        state: 128 << 20,
        device: 10_000_000_000,
        tiers: vec![tier(host, 54.0), tier(disk, rate)],
        copy: 1.4e12,
        codec: None,
    }
}

fn hardware(machine: &Machine) -> Hardware {
    let hop = |down: f64, up: f64| {
        let link = Link {
            down: down as u64,
            up: up as u64,
            ..Link::own(1)
        };
        Hop::over(link, 0)
    };
    let device = tierflow_sim::Tier::new("device", machine.device);
    let device = Hardware::new().tier(device, hop(machine.copy, machine.copy));
    let tiers = machine.tiers.iter();
    tiers.fold(device, |hardware, tier| {
        let below = tierflow_sim::Tier::new("below", tier.room);
        hardware.tier(below, hop(tier.down, tier.up))
    })
}

/// Returns the calls of `tierflow_schedule::adjoint::run` for a plan.
fn workload(machine: &Machine, plan: &Plan) -> Workload {
    let actions: Vec<Action> = plan.actions().collect();
    let (mut written, mut stored) = (0, HashMap::new());
    let versions = actions.iter().map(|action| match action {
        Action::Save { step, .. } => {
            written += 1;
            stored.insert(step, written);
            written
        }
        Action::Restart { step } | Action::Forget { step } => stored[step],
        _ => 0,
    });
    let versions: Vec<Version> = versions.collect();
    let end = actions
        .iter()
        .position(|action| *action == Action::EndForward);
    let end = end.unwrap();
    let swept = versions[..end].iter().copied().max().unwrap();
    let restores = |of: Range<usize>| {
        let restarts = of.filter(|&at| matches!(actions[at], Action::Restart { .. }));
        restarts.map(|at| versions[at])
    };
    let seconds = |action: &Action| match *action {
        Action::Forward { from, to } => machine.forward.as_secs_f64() * (to - from) as f64,
        Action::Reverse { .. } => machine.backward.as_secs_f64(),
        _ => 0.0,
    };
    let of_sweep = restores(0..actions.len()).filter(|&version| version <= swept);
    let mut ops = vec![Op::Hint(of_sweep.collect())];
    let mut gap_ends = end;
    for (at, (action, &version)) in actions.iter().zip(&versions).enumerate() {
        if at == gap_ends {
            let is_last =
                |&at: &usize| matches!(actions[at], Action::Forget { .. }) && versions[at] <= swept;
            gap_ends = (at..actions.len())
                .find(is_last)
                .map_or(actions.len(), |last| last + 1);
            let next: Vec<Version> = restores(at..gap_ends).collect();
            ops.push(Op::HintNext(next));
        }
        match *action {
            Action::Forward { .. } | Action::Reverse { .. } => {
                ops.push(Op::Compute((seconds(action) * 1e9).round() as u64));
            }
            Action::Save { .. } => {
                let bytes = machine.state;
                ops.push(Op::Checkpoint { version, bytes });
            }
            Action::Restart { .. } => ops.push(Op::Restore(version)),
            Action::Forget { .. } => ops.push(Op::Drop(version)),
            Action::EndForward => ops.push(Op::PrefetchStart),
        }
    }
    Workload {
        ops,
        after_restore: AfterRestore::Keep,
    }
}

/// Returns the seconds that a plan takes over the tiers of its machine.
fn played(machine: &Machine, plan: &Plan) -> f64 {
    let workload = workload(machine, plan);
    let outcome = Simulation::new(hardware(machine)).run(&[workload]).unwrap();
    outcome.clients[0].elapsed_ns as f64 * 1e-9
}

/// Returns the name, the steps and the machine of each row.
fn rows() -> [(&'static str, usize, Machine); 5] {
    [
        (
            "RTM 256, 64 GB, 2 GB/s",
            3000,
            rtm(2.0, 2.5, [64.0, 4e3], 2.0),
        ),
        (
            "RTM 256, 256 GB, 12 GB/s",
            3000,
            rtm(2.0, 2.5, [256.0, 4e3], 12.0),
        ),
        (
            "RTM 256 on an H100, each step",
            3000,
            rtm(0.27, 0.45, [16.0, 4e3], 2.0),
        ),
        (
            "RTM 256 on an H100, every 10th",
            300,
            rtm(2.7, 1.8, [16.0, 4e3], 2.0),
        ),
        ("RTM 512, 64 GB, 2 GB/s", 3000, {
            let machine = rtm(16.0, 20.0, [64.0, 4e3], 2.0);
            Machine {
                state: 1 << 30,
                ..machine
            }
        }),
    ]
}

#[test]
fn a_schedule_takes_on_the_engines_plan_as_long_as_expected() {
    for (name, steps, machine) in rows() {
        let plan = Plan::best(&machine, steps);
        let expected = plan.expected().unwrap().as_secs_f64();
        let bound = plan.bound().time.as_secs_f64();
        let took = played(&machine, &plan);
        println!(
            "{name}: {:.4} of the bound, expected {:.4} of it; {:.4} of the expected time",
            took / bound,
            expected / bound,
            took / expected
        );
        assert!(
            took >= bound,
            "{name}: {took} s is below the bound {bound} s"
        );
        assert!(took <= 1.02 * bound, "{name}: {took} s of {bound} s");
    }
}

/// Returns the machine with one of its rates or rooms raised.
fn raised(machine: &Machine, quantity: usize, by: f64) -> Machine {
    let mut machine = machine.clone();
    let room = |bytes: &mut u64| *bytes = (*bytes as f64 * by) as u64;
    match quantity {
        0 => room(&mut machine.device),
        1 => machine.copy *= by,
        2 | 3 => room(&mut machine.tiers[quantity - 2].room),
        4 | 5 => machine.tiers[quantity - 4].down *= by,
        _ => machine.tiers[quantity - 6].up *= by,
    }
    machine
}

/// A machine with a higher rate or more room is not slower. With `TIERFLOW_SCHEDULE_LONG` the test runs all rows, and otherwise a short one.
#[test]
fn a_better_machine_is_not_slower_on_the_engines_plan() {
    let is_long = std::env::var_os("TIERFLOW_SCHEDULE_LONG").is_some();
    let mut worst: f64 = 0.0;
    for (name, steps, machine) in rows() {
        if steps > 300 && !is_long {
            continue;
        }
        let times = |machine: &Machine| {
            let plan = Plan::best(machine, steps);
            let expected = plan.expected().unwrap().as_secs_f64();
            [played(machine, &plan), expected]
        };
        let before = times(&machine);
        for (quantity, by) in (0..8).flat_map(|quantity| [(quantity, 1.3), (quantity, 6.0)]) {
            let after = times(&raised(&machine, quantity, by));
            let ratio = after[0] / before[0];
            let expected = after[1] / before[1];
            println!(
                "{name}, quantity {quantity} {by} times: {ratio:.4} of the time before, expected {expected:.4}"
            );
            worst = worst.max(ratio);
        }
    }
    assert!(worst <= 1.005, "{worst}");
}
