//! Compares plans for random machines with the bound and with the best blocking schedule.
//!
//! The short form draws a few machines from a fixed seed. `TIERFLOW_SCHEDULE_LONG=400` draws 400 from the clock.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod dice;

use dice::{Dice, Draw, Summary};
use std::time::Instant;
use tierflow_schedule::{Action, Machine, Plan, Schedule, Tier};

fn count() -> usize {
    dice::long().unwrap_or(24)
}

fn seconds(plan: &Plan) -> f64 {
    plan.expected()
        .expect("the plan fits its machine")
        .as_secs_f64()
}

/// Returns the ratio of a plan's time to the bound. Asserts that it is at least 1.
fn over_bound(draw: &Draw, plan: &Plan) -> f64 {
    let ratio = seconds(plan) / plan.bound().time.as_secs_f64();
    assert!(ratio >= 1.0 - 1e-6, "{ratio} of the bound: {draw}");
    ratio
}

/// Plans for machines with at least `least` slots. Asserts that no plan takes longer than the best blocking schedule.
fn plans(least: f64, copies: bool) -> Summary {
    let mut dice = Dice::fresh();
    let mut ratios = Vec::new();
    let mut blocking = Vec::new();
    let mut worst = (0.0, String::new());
    for _ in 0..count() {
        let mut draw = Draw::new(&mut dice, least);
        if copies {
            draw.machine.copy = draw.machine.state as f64 / 1e-3 / dice.log(0.02, 0.2);
        }
        let plan = Plan::best(&draw.machine, draw.steps);
        let ratio = over_bound(&draw, &plan);
        let waits = draw
            .machine
            .blocking(draw.steps)
            .expect("few steps")
            .as_secs_f64();
        assert!(
            seconds(&plan) <= 1.001 * waits,
            "{} of the best blocking schedule: {draw}",
            seconds(&plan) / waits
        );
        let over = waits / plan.bound().time.as_secs_f64();
        assert!(over >= 1.0 - 1e-6, "{over}, blocking, of the bound: {draw}");
        blocking.push(over);
        if ratio > worst.0 {
            worst = (ratio, draw.to_string());
        }
        ratios.push(ratio);
    }
    let summary = Summary::of(ratios);
    println!(
        "at least {least} slots, copies {copies}: {summary}; blocking {}; worst: {}",
        Summary::of(blocking),
        worst.1
    );
    summary
}

#[test]
fn plans_for_eight_slots_and_more_are_near_the_bound() {
    let summary = plans(8.0, false);
    assert!(
        summary.mean <= 1.015 && summary.nine_tenths <= 1.03 && summary.worst <= 1.20,
        "{summary}"
    );
}

#[test]
fn plans_for_two_slots_and_more_are_never_behind_blocking_ones() {
    let summary = plans(2.0, false);
    // The goal is a mean of 1.04, which is not reached.
    assert!(summary.mean <= 1.08 && summary.worst <= 1.9, "{summary}");
}

#[test]
fn copies_are_counted() {
    let summary = plans(2.0, true);
    assert!(summary.worst <= 2.0, "{summary}");
}

#[test]
fn copies_on_the_way_below_are_counted() {
    let mut dice = Dice::fresh();
    let Draw { mut machine, .. } = Draw::new(&mut dice, 2.0);
    machine.copy = machine.state as f64 / 2e-4;
    let steps = 40;
    let near = Machine {
        device: 2 * steps as u64 * machine.state,
        tiers: Vec::new(),
        ..machine.clone()
    };
    // All states fit on a tier whose links take no time.
    machine.device = machine.state;
    for tier in &mut machine.tiers {
        *tier = Tier {
            room: near.device,
            down: f64::INFINITY,
            up: f64::INFINITY,
        };
    }
    let time = |machine: &Machine| machine.blocking(steps).expect("few steps");
    assert!(time(&machine) >= time(&near));
}

#[test]
fn a_blocking_schedule_that_is_long_in_finding_is_none() {
    let Draw { machine, .. } = Draw::new(&mut Dice::fresh(), 8.0);
    assert!(machine.blocking(300).is_some());
    assert_eq!(machine.blocking(1_000_000), None);
}

/// Makes the plan of a schedule of unknown length, which learns when each link is idle.
fn unknown(draw: &Draw) -> Plan {
    let Draw { machine, steps } = draw;
    let mut schedule = Schedule::new(machine, None);
    let used = machine
        .tiers
        .iter()
        .filter(|tier| tier.room >= machine.state);
    let times: Vec<f64> = used.map(|tier| machine.state as f64 / tier.down).collect();
    let copy = machine.state as f64 / machine.copy;
    let mut until = vec![0.0; times.len()];
    let mut now = 0.0;
    for _ in 0..*steps {
        let free: Vec<bool> = until.iter().map(|&until| until <= now + 1e-12).collect();
        let before = schedule.moved();
        loop {
            match schedule.next_action(&free) {
                Some(Action::Save { .. }) => now += copy,
                Some(Action::Forward { .. }) => break,
                _ => {}
            }
        }
        for (hop, (before, after)) in before.iter().zip(schedule.moved()).enumerate() {
            if after > *before {
                until[hop] = now + times[hop];
            }
        }
        now += machine.forward.as_secs_f64();
    }
    schedule.end(machine);
    schedule.plan().expect("its length is known").clone()
}

/// Makes schedules of unknown length for machines whose copies take these shares of a step.
fn unknowns(copies: Option<[f64; 2]>) -> Summary {
    let mut dice = Dice::fresh();
    let mut ratios = Vec::new();
    let mut worst = (0.0, String::new());
    for _ in 0..count() {
        let mut draw = Draw::new(&mut dice, 8.0);
        if let Some([low, high]) = copies {
            draw.machine.copy = draw.machine.state as f64 / 1e-3 / dice.log(low, high);
        }
        let ratio = over_bound(&draw, &unknown(&draw));
        if ratio > worst.0 {
            worst = (ratio, draw.to_string());
        }
        ratios.push(ratio);
    }
    let summary = Summary::of(ratios);
    println!(
        "length and rates unknown, copies of {copies:?} steps: {summary}; worst: {}",
        worst.1
    );
    summary
}

#[test]
fn unknown_lengths_and_rates_cost_little() {
    let summary = unknowns(None);
    assert!(summary.mean <= 1.03 && summary.worst <= 1.3, "{summary}");
}

#[test]
fn unknown_lengths_with_slow_copies_cost_little() {
    for copies in [[0.02, 0.2], [0.2, 2.0]] {
        let summary = unknowns(Some(copies));
        assert!(summary.mean <= 1.12 && summary.worst <= 1.4, "{summary}");
    }
}

#[test]
fn wrong_rates_cost_little() {
    let mut dice = Dice::fresh();
    let mut ratios = Vec::new();
    for _ in 0..count() {
        let draw = Draw::new(&mut dice, 8.0);
        let mut wrong = draw.machine.clone();
        for tier in &mut wrong.tiers {
            tier.down *= 0.75 + 0.5 * dice.share();
            tier.up *= 0.75 + 0.5 * dice.share();
        }
        let plan = Plan::best(&wrong, draw.steps);
        let time = plan
            .time_on(&draw.machine)
            .expect("the rooms are the same")
            .as_secs_f64();
        let bound = draw.machine.bound(draw.steps).time.as_secs_f64();
        assert!(time >= bound * (1.0 - 1e-6));
        ratios.push(time / bound);
    }
    let summary = Summary::of(ratios);
    println!("rates wrong by a quarter: {summary}");
    assert!(summary.mean <= 1.03, "{summary}");
}

#[test]
fn a_better_machine_is_not_slower() {
    let mut dice = Dice::fresh();
    let mut ratios = Vec::new();
    let mut worst = (0.0, String::new());
    for _ in 0..count() {
        let draw = Draw::new(&mut dice, 2.0);
        let mut better = draw.machine.clone();
        let by = dice.log(1.01, 4.0);
        let what = (dice.share() * 7.0) as usize;
        let tier = what % 2;
        let raised = |value: u64| (value as f64 * by) as u64;
        match what {
            0 | 1 => better.tiers[tier].down *= by,
            2 | 3 => better.tiers[tier].up *= by,
            4 | 5 => better.tiers[tier].room = raised(better.tiers[tier].room),
            _ => better.device = raised(better.device),
        }
        let before = seconds(&Plan::best(&draw.machine, draw.steps));
        let after = seconds(&Plan::best(&better, draw.steps));
        if after / before > worst.0 {
            worst = (
                after / before,
                format!("change {what} by {by:.2} of {draw}"),
            );
        }
        ratios.push(after / before);
    }
    let summary = Summary::of(ratios);
    println!("a better machine takes: {summary}; worst: {}", worst.1);
    assert!(summary.worst <= 1.005, "{summary}; {}", worst.1);
}

/// Returns the machine of RTM 256³: a state has 128 MiB, and the device 10 GB of free memory.
fn rtm(host: f64, disk: f64) -> Machine {
    use std::time::Duration;
    Machine {
        forward: Duration::from_micros(2000),
        backward: Duration::from_micros(2500),
        state: 128 << 20,
        device: 10_000_000_000,
        tiers: vec![
            Tier {
                room: (host * 1e9) as u64,
                down: 50e9,
                up: 50e9,
            },
            Tier {
                room: u64::MAX,
                down: disk * 1e9,
                up: disk * 1e9,
            },
        ],
        copy: 1.5e12,
        codec: None,
    }
}

#[test]
fn long_plans_are_made_soon() {
    for (host, disk) in [(64.0, 2.0), (256.0, 12.0)] {
        let machine = rtm(host, disk);
        let begun = Instant::now();
        let quick = Plan::quick(&machine, 3000);
        let soon = begun.elapsed();
        let begun = Instant::now();
        let best = Plan::best(&machine, 3000);
        let took = begun.elapsed();
        let computed = 3000.0 * 4.5e-3;
        println!(
            "host {host} GB, disk {disk} GB/s: {:.4} of the computation, bound {:.4}; quick {:.4}; planned in {took:?}, quick in {soon:?}",
            seconds(&best) / computed,
            best.bound().time.as_secs_f64() / computed,
            quick
                .time_on(&machine)
                .map_or(f64::NAN, |time| time.as_secs_f64() / computed),
        );
        let ratio = seconds(&best) / best.bound().time.as_secs_f64();
        assert!((1.0..=1.03).contains(&ratio), "{ratio}");
    }
}
