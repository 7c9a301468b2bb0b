//! Compares plans for machines with plans on the device alone. The rates of the machines are known within a quarter, and their steps and
//! states are slower than these rates say.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod dice;

use dice::{Dice, Draw, Summary};
use std::time::Duration;
use tierflow_schedule::{Estimate, Machine, Plan, Tier};

fn count() -> usize {
    dice::long().unwrap_or(24)
}

/// The real behaviour of a machine: beside transfers, steps are slower, and states come late.
struct Truth {
    machine: Machine,
    steps: usize,
    /// Ratio of the time of a step while states are under way to that of a step alone.
    slowdown: f64,
    /// Ratio of the time of a run over tiers to that of its replay.
    lateness: f64,
}

fn times(machine: &Machine, by: f64) -> Machine {
    Machine {
        forward: machine.forward.mul_f64(by),
        backward: machine.backward.mul_f64(by),
        ..machine.clone()
    }
}

fn wrong(machine: &Machine, dice: &mut Dice) -> Machine {
    let mut machine = machine.clone();
    for tier in &mut machine.tiers {
        tier.down *= 0.75 + 0.5 * dice.share();
        tier.up *= 0.75 + 0.5 * dice.share();
    }
    machine
}

impl Truth {
    /// Returns the machine as a run with this plan measures it.
    fn of_run(&self, plan: &Plan) -> Machine {
        let alone = Machine {
            tiers: Vec::new(),
            ..self.machine.clone()
        };
        match plan.time_on(&alone) {
            Some(_) => self.machine.clone(),
            None => times(&self.machine, self.slowdown),
        }
    }

    fn run(&self, plan: &Plan) -> Duration {
        let machine = self.of_run(plan);
        let time = plan.time_on(&machine).expect("the rooms are the same");
        match machine == self.machine {
            true => time,
            false => time.mul_f64(self.lateness),
        }
    }

    fn device_alone(&self) -> f64 {
        let plan = Plan::on_device(&self.machine, self.steps);
        plan.expected().expect("it fits").as_secs_f64()
    }
}

/// Returns the machine of RTM 256³ on one H100, with a state at each step. States below the device save at most a tenth of the time.
fn rtm() -> Truth {
    let tier = |room: f64, rate: f64| Tier {
        room: (room * 1e9) as u64,
        down: rate * 1e9,
        up: rate * 1e9,
    };
    Truth {
        machine: Machine {
            forward: Duration::from_micros(270),
            backward: Duration::from_micros(450),
            state: 128 << 20,
            device: 10_000_000_000,
            tiers: vec![tier(16.0, 54.0), tier(40.0, 1.6)],
            copy: 1.4e12,
            codec: None,
        },
        steps: 3000,
        slowdown: 1.04,
        lateness: 1.02,
    }
}

/// Returns the ratio of the time of a run to that on the device alone.
fn over_device(truth: &Truth, estimate: &Estimate) -> f64 {
    let time = truth.run(&estimate.plan(truth.steps)).as_secs_f64();
    time / truth.device_alone()
}

#[test]
fn wrong_rates_lose_nothing_to_the_device_alone() {
    let mut dice = Dice::fresh();
    let (mut ratios, mut bold) = (Vec::new(), Vec::new());
    let mut worst = (0.0, String::new());
    for _ in 0..count() {
        let Draw { machine, steps } = Draw::new(&mut dice, 2.0);
        let truth = Truth {
            machine,
            steps,
            slowdown: 1.0,
            lateness: 1.0,
        };
        // All links are slower than the trial says, by the largest error of a trial.
        let mut seen = truth.machine.clone();
        for tier in &mut seen.tiers {
            tier.down *= 1.25;
            tier.up *= 1.25;
        }
        let estimate = Estimate::new(seen.clone(), seen.clone());
        let ratio = over_device(&truth, &estimate);
        if ratio > worst.0 {
            let machine = truth.machine.clone();
            worst = (ratio, Draw { machine, steps }.to_string());
        }
        ratios.push(ratio);
        let time = truth.run(&Plan::best(&seen, steps)).as_secs_f64();
        bold.push(time / truth.device_alone());
    }
    let (careful, bold) = (Summary::of(ratios), Summary::of(bold));
    println!(
        "over the device alone: {careful}; plans that trust the rates: {bold}; worst: {}",
        worst.1
    );
    assert!(careful.worst <= 1.01, "{careful}; {}", worst.1);
    // Plans that trust such rates must lose, or the test shows nothing.
    assert!(bold.worst > 1.01, "{bold}");
    // The careful plans cost little.
    assert!(careful.mean <= 1.01 * bold.mean, "{careful}; {bold}");
}

#[test]
fn steps_that_are_slower_beside_transfers_lose_nothing_to_the_device_alone() {
    let mut dice = Dice::fresh();
    for trial in 0..3 {
        let truth = rtm();
        let seen = wrong(&truth.machine, &mut dice);
        let estimate = Estimate::new(times(&seen, truth.slowdown), seen);
        let ratio = over_device(&truth, &estimate);
        println!("trial {trial}: {ratio:.4} of the device alone");
        assert!(ratio <= 1.01, "{ratio}");
    }
}

#[test]
fn a_gain_within_the_spread_of_runs_is_left_alone() {
    let Truth { machine, .. } = rtm();
    let steps = 300;
    let alone = Machine {
        device: machine.device / 10,
        tiers: Vec::new(),
        ..machine.clone()
    };
    let machine = Machine {
        device: alone.device,
        ..machine
    };
    let seconds = |plan: &Plan| plan.expected().expect("it fits").as_secs_f64();
    let device = seconds(&Plan::on_device(&alone, steps));
    let tiers = seconds(&Plan::best(&machine, steps));
    for (gain, is_on_device) in [(0.01, true), (0.02, true), (0.05, false)] {
        let mut estimate = Estimate::new(machine.clone(), machine.clone());
        estimate.doubt = 0.0;
        // Runs over tiers are so late that they gain only this share.
        estimate.lateness = device * (1.0 - gain) / tiers;
        let plan = estimate.plan(steps);
        assert_eq!(plan.time_on(&alone).is_some(), is_on_device, "{gain}");
    }
}

#[test]
fn a_run_tells_how_late_states_are() {
    let mut dice = Dice::fresh();
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for _ in 0..count() {
        let Draw { machine, steps } = Draw::new(&mut dice, 2.0);
        let truth = Truth {
            machine,
            steps,
            slowdown: 1.0 + 0.05 * dice.share(),
            lateness: 1.0 + 0.1 * dice.share(),
        };
        let seen = wrong(&truth.machine, &mut dice);
        let mut estimate = Estimate::new(seen.clone(), seen);
        for run in 0..3 {
            let plan = estimate.plan(steps);
            let took = truth.run(&plan);
            let ratio = took.as_secs_f64() / truth.device_alone();
            estimate.learn(&plan, &truth.of_run(&plan), took);
            if run == 0 {
                first.push(ratio);
            } else {
                later.push(ratio);
            }
        }
    }
    let (first, later) = (Summary::of(first), Summary::of(later));
    println!("over the device alone: first runs {first}; later ones {later}");
    assert!(later.worst <= 1.01, "{later}");
}

/// Returns the factor of all steps of a run: memory is touched for the first time, and later load of neighbours comes and goes.
fn drift(run: usize, first: f64, load: f64) -> f64 {
    match run {
        0 => first,
        3 | 4 => load,
        _ => 1.0,
    }
}

#[test]
fn steps_that_change_change_beside_transfers_too() {
    let mut dice = Dice::fresh();
    let (mut device, mut changed, mut steady) = (Vec::new(), Vec::new(), Vec::new());
    let (mut worst, mut of) = (0.0, String::new());
    for _ in 0..count().div_ceil(8) {
        let Draw { machine, steps } = Draw::new(&mut dice, 2.0);
        let (slowdown, lateness) = (1.0 + 0.04 * dice.share(), 1.0);
        let (first, load) = (1.2 + 0.5 * dice.share(), 1.0 + 0.5 * dice.share());
        let mut estimate = Estimate::new(times(&machine, slowdown), machine.clone());
        for run in 0..7 {
            let machine = times(&machine, drift(run, first, load));
            let truth = Truth {
                machine,
                steps,
                slowdown,
                lateness,
            };
            let plan = estimate.plan(steps);
            let took = truth.run(&plan);
            estimate.learn(&plan, &truth.of_run(&plan), took);
            // The plan of a run that begins or ends a drift cannot know of the drift.
            if !matches!(run, 1 | 2 | 4 | 6) {
                continue;
            }
            let alone = truth.device_alone();
            let beside = Plan::best(&times(&truth.machine, slowdown), steps);
            let best = truth.run(&beside).as_secs_f64().min(alone);
            let ratio = took.as_secs_f64() / alone;
            if ratio > worst {
                (worst, of) = (ratio, format!("run {run}, {first:.2}, {load:.2}"));
            }
            device.push(ratio);
            let runs = match run {
                2 | 6 => &mut steady,
                _ => &mut changed,
            };
            runs.push(took.as_secs_f64() / best);
        }
    }
    let device = Summary::of(device);
    let [changed, steady] = [changed, steady].map(Summary::of);
    println!(
        "over the device alone: {device}, worst {of}; over the informed choice: {changed} after a change, {steady} after two runs"
    );
    assert!(device.worst <= 1.01, "{device}, {of}");
    assert!(changed.mean <= 1.10, "{changed}");
    assert!(steady.mean <= 1.02, "{steady}");
}

#[test]
fn a_first_run_in_fresh_memory_does_not_make_tiers_pay() {
    let Truth { machine, .. } = rtm();
    let machine = Machine {
        device: machine.device / 10,
        ..machine
    };
    let (steps, slowdown) = (300, 1.02);
    // Runs over tiers are so late that they lose 2% to those on the device.
    let seconds = |plan: &Plan| plan.expected().expect("it fits").as_secs_f64();
    let alone = seconds(&Plan::on_device(&machine, steps));
    let beside = times(&machine, slowdown);
    let lateness = 1.02 * alone / seconds(&Plan::best(&beside, steps));
    for fresh in [1.2, 1.45, 1.7] {
        let mut estimate = Estimate::new(beside.clone(), machine.clone());
        estimate.lateness = lateness;
        let first = times(&machine, fresh);
        let plan = Plan::on_device(&machine, steps);
        let took = plan.time_on(&first).expect("it fits");
        estimate.learn(&plan, &first, took);
        let is_slower = estimate.machine.forward >= estimate.quiet.forward
            && estimate.machine.backward >= estimate.quiet.backward;
        assert!(is_slower, "{fresh}: {estimate:?}");
        let truth = Truth {
            machine: machine.clone(),
            steps,
            slowdown,
            lateness,
        };
        let ratio = over_device(&truth, &estimate);
        assert!(ratio <= 1.001, "{fresh}: {ratio} of the device alone");
    }
}

#[test]
fn steps_that_change_beside_transfers_change_without_them_too() {
    let mut dice = Dice::fresh();
    let machine = Draw::new(&mut dice, 2.0).machine;
    let plan = Plan::every(&machine, 200, 1);
    assert!(plan.time_on(&machine).is_some());
    let alone = Machine {
        tiers: Vec::new(),
        ..machine.clone()
    };
    assert!(plan.time_on(&alone).is_none());
    let step = |machine: &Machine| machine.forward.as_secs_f64();
    let learn = |estimate: &mut Estimate, by: f64| {
        let machine = times(&machine, by);
        let took = plan.time_on(&machine).expect("it fits");
        estimate.learn(&plan, &machine, took);
    };
    let mut estimate = Estimate::new(times(&machine, 1.02), machine.clone());
    // The first run touches its memory for the first time.
    learn(&mut estimate, 1.5 * 1.02);
    assert!((step(&estimate.quiet) / step(&machine) - 1.5).abs() < 1e-3);
    // The next run corrects the estimate.
    learn(&mut estimate, 1.02);
    assert!((step(&estimate.quiet) / step(&machine) - 1.0).abs() < 1e-3);
    // A later run meets load. A step beside transfers loses the same share to it.
    learn(&mut estimate, 1.1);
    let share = step(&estimate.quiet) / step(&machine);
    assert!((share - 1.1 / 1.02).abs() < 1e-3, "{share}");
    // Steps alone are never slower than steps beside transfers.
    learn(&mut estimate, 0.8);
    assert!(step(&estimate.quiet) <= step(&estimate.machine));
}

#[test]
fn a_run_on_the_device_leaves_the_links_in_doubt() {
    let mut dice = Dice::fresh();
    let Draw { machine, steps } = Draw::new(&mut dice, 2.0);
    let plan = Plan::on_device(&machine, steps);
    let mut estimate = Estimate::new(machine.clone(), machine.clone());
    let mut learn = |by: f64| {
        let machine = times(&machine, by);
        let took = plan.time_on(&machine).expect("it fits");
        estimate.learn(&plan, &machine, took);
        estimate.doubt
    };
    for _ in 0..3 {
        assert_eq!(learn(1.0), 0.25);
    }
    // Slower steps raise the doubt for a while.
    assert!(learn(2.0) > 0.9);
    assert!(learn(2.0) < 0.6);
    for _ in 0..3 {
        learn(2.0);
    }
    assert_eq!(learn(2.0), 0.25);
}

#[test]
fn doubt_rises_when_links_change() {
    let mut dice = Dice::fresh();
    let Draw { machine, .. } = Draw::new(&mut dice, 2.0);
    let plan = Plan::every(&machine, 200, 1);
    let mut estimate = Estimate::new(machine.clone(), machine.clone());
    let mut learn = |by: f64| {
        let mut machine = machine.clone();
        for tier in &mut machine.tiers {
            tier.down *= by;
        }
        let took = plan.time_on(&machine).expect("it fits");
        estimate.learn(&plan, &machine, took);
        estimate.doubt
    };
    for _ in 0..3 {
        learn(1.0);
    }
    assert!(learn(1.0) <= 0.06);
    assert!(learn(0.7) > 0.4);
    let after = learn(0.7);
    assert!(after < 0.4, "{after}");
    for _ in 0..3 {
        learn(0.7);
    }
    assert!(learn(0.7) <= 0.06);
}

#[test]
fn a_run_on_the_device_alone_has_no_states_under_way() {
    let Draw { machine, steps } = Draw::new(&mut Dice::fresh(), 2.0);
    let estimate = Estimate::new(times(&machine, 1.2), machine.clone());
    let alone = Plan::on_device(&machine, steps);
    assert_eq!(estimate.machine_for(&alone), &machine);
    let over_tiers = Plan::every(&machine, steps, 1);
    let no_tiers = Machine {
        tiers: Vec::new(),
        ..machine.clone()
    };
    let seen = match over_tiers.time_on(&no_tiers) {
        None => &estimate.machine,
        Some(_) => &estimate.quiet,
    };
    assert_eq!(estimate.machine_for(&over_tiers), seen);
}
