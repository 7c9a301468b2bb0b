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
    let Truth { machine, steps, .. } = rtm();
    let steps = steps / 10;
    let device = machine.device / 10;
    let alone = Machine {
        device,
        tiers: Vec::new(),
        ..machine.clone()
    };
    let least = Plan::on_device(&alone, steps);
    let least = least.expected().expect("it fits").as_secs_f64();
    let mut seen = 0;
    for rate in (0..60).map(|power| 1e8 * 1.1f64.powi(power)) {
        let tier = Tier {
            room: u64::MAX,
            down: rate,
            up: rate,
        };
        let machine = Machine {
            tiers: vec![tier],
            ..alone.clone()
        };
        let best = Plan::best(&machine, steps);
        let gain = 1.0 - best.expected().expect("it fits").as_secs_f64() / least;
        let mut estimate = Estimate::new(machine.clone(), machine);
        estimate.doubt = 0.0;
        let is_on_device = estimate.plan(steps).time_on(&alone).is_some();
        if gain > 0.0 && gain < 0.025 {
            seen += 1;
            assert!(is_on_device, "{rate}: {gain}");
        }
        assert!(gain < 0.035 || !is_on_device, "{rate}: {gain}");
    }
    assert!(seen > 0);
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
