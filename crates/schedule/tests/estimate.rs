//! Plans for machines whose rates are known by a quarter alone, and whose computation and states are slower than their rates tell,
//! beside plans on the device alone.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod dice;

use dice::{Dice, Draw, Summary};
use std::time::Duration;
use tierflow_schedule::{Estimate, Machine, Plan, Tier};

fn count() -> usize {
    dice::long().unwrap_or(24)
}

/// A machine as it is: beside transfers, its steps are slower, and states come late.
struct Truth {
    machine: Machine,
    steps: usize,
    /// Time of a step while states are under way, over that of one alone.
    slowdown: f64,
    /// Time of a run over tiers, over that of its replay.
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
    /// The machine of a run, with its own rates.
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

/// RTM 256³ on one H100, with a state at each step: states below the device save a tenth of the time at most.
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

/// Times over those on the device alone.
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
        // All links are slower than the trial says, by what a trial may be wrong.
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
    // Plans that trust such rates do lose: else the test shows nothing.
    assert!(bold.worst > 1.01, "{bold}");
    // To be careful costs little.
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
        // Runs over tiers are so late that they gain this much.
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
