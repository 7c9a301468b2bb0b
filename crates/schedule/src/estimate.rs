//! Plans for runs of one computation, one after the other, whose times are known from trials and earlier runs.

use crate::machine::Machine;
use crate::plan::Plan;
use std::time::Duration;

/// The share by which a rate of few states may be too high.
const TRIAL_DOUBT: f64 = 0.25;

/// The least share that is taken for a rate of many states.
const LEAST_DOUBT: f64 = 0.05;

/// The share by which runs on one machine differ: the later shots of one RTM on a GPU took 3.30 to 3.41 s. A smaller gain cannot
/// be measured, and a plan on the device alone has fewer causes of delay.
const SPREAD: f64 = 0.03;

/// A machine as it was measured, and the doubt about its rates.
///
/// Transfers slow the computation down, links have other rates in a run than in a trial, and states may be late for reasons that
/// no rate shows. [`plan`](Self::plan) uses the tiers below the device only if that gains time even with links that are slower by
/// the doubt. Each run [reduces](Self::learn) the doubt.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The machine while states are under way.
    pub machine: Machine,
    /// The machine while no state is under way, whose tiers are not used.
    pub quiet: Machine,
    /// The share by which the rates of the links may be too high.
    pub doubt: f64,
    /// Time of the last run that used the tiers below the device, divided by the time of its replay with the run's own rates.
    pub lateness: f64,
    /// The same quotient of the last run on the device alone.
    pub quiet_lateness: f64,
    /// Time of a discard, in the trial or the last run. Replays do not count discards; the end of the sweep adds those to come.
    pub discard: Duration,
    /// Time of a step that the reversal computes again, divided by the time of a step of the sweep, in the last run. Such a step
    /// finds colder caches.
    pub(crate) again: f64,
    /// The doubt about the links alone, which falls with runs that use them.
    link_doubt: f64,
    /// Times of a forward and of a backward step beside transfers, divided by the times of steps without transfers; at least 1.
    slowdown: [f64; 2],
}

impl Estimate {
    /// Makes an estimate from a trial of few states: the machine beside transfers, and the quiet one without transfers.
    #[must_use]
    pub fn new(machine: Machine, quiet: Machine) -> Self {
        Self {
            slowdown: ratios(&machine, &quiet).map(|by| by.max(1.0)),
            machine,
            quiet,
            doubt: TRIAL_DOUBT,
            lateness: 1.0,
            quiet_lateness: 1.0,
            discard: Duration::ZERO,
            again: 1.0,
            link_doubt: TRIAL_DOUBT,
        }
    }

    /// Returns the best plan, unless its gain is in doubt. The gain is in doubt if the plan would gain less than 3% over the best plan
    /// on the device alone with links that are slower by the doubt. Then the best plan for such slower links is tried, then the plan
    /// on the device. Takes up to 3 s for 3 000 steps.
    #[must_use]
    pub fn plan(&self, steps: usize) -> Plan {
        let mut slower = self.machine.clone();
        for tier in &mut slower.tiers {
            tier.down /= 1.0 + self.doubt;
            tier.up /= 1.0 + self.doubt;
        }
        let device = Plan::on_device(&self.quiet, steps);
        let seconds = |time: Option<Duration>| time.map_or(f64::INFINITY, |t| t.as_secs_f64());
        let most = seconds(device.expected()) * self.quiet_lateness;
        let late = self.lateness * (1.0 + SPREAD);
        let is_safe = |plan: &Plan| seconds(plan.time_on(&slower)) * late <= most;
        let machines = [&self.machine, &slower].into_iter();
        let mut plans = machines.map(|machine| Plan::best(machine, steps));
        match plans.find(is_safe) {
            Some(plan) if !self.is_on_device(&plan) => plan.seen_on(&self.machine),
            _ => device,
        }
    }

    /// Returns the machine for a run of the plan: the quiet one if the plan uses the device alone.
    #[must_use]
    pub fn machine_for(&self, plan: &Plan) -> &Machine {
        match self.is_on_device(plan) {
            true => &self.quiet,
            false => &self.machine,
        }
    }

    fn is_on_device(&self, plan: &Plan) -> bool {
        plan.time_on(&self.machine.without_tiers()).is_some()
    }

    /// Learns from a run: the final plan, the machine with the run's own rates and steps, and the time that the run took.
    ///
    /// The run had steps of one kind, beside transfers or without. Steps of the other kind are assumed to have changed by the same
    /// factor, as new memory and load slow both down. The factor between the two kinds stays that of the trial.
    ///
    /// The doubt falls by half, but not below the share by which a step or a link was slower than before: once the step is fast
    /// again, it hides less of a transfer. A run on the device alone does not change the doubt about the links.
    pub fn learn(&mut self, plan: &Plan, machine: &Machine, took: Duration) {
        let own = plan.time_on(machine).filter(|time| !time.is_zero());
        let lateness = own.map_or(1.0, |own| took.as_secs_f64() / own.as_secs_f64());
        let slower = ratios(machine, self.machine_for(plan));
        if self.is_on_device(plan) {
            (self.quiet, self.quiet_lateness) = (machine.clone(), lateness);
            set_steps(&mut self.machine, machine, self.slowdown);
        } else {
            let tiers = self.machine.tiers.iter().zip(&machine.tiers);
            let links = tiers.flat_map(|(old, new)| [old.down / new.down, old.up / new.up]);
            self.link_doubt = share(links, LEAST_DOUBT.max(self.link_doubt / 2.0));
            (self.machine, self.lateness) = (machine.clone(), lateness);
            set_steps(&mut self.quiet, machine, self.slowdown.map(f64::recip));
        }
        self.doubt = share(slower, self.link_doubt.max(self.doubt / 2.0));
    }
}

impl From<Machine> for Estimate {
    /// Makes an estimate whose steps take as long beside transfers as without.
    fn from(machine: Machine) -> Self {
        Self::new(machine.clone(), machine)
    }
}

/// Returns the largest share by which times have grown, at least `least`. Ratios that are not finite do not count.
fn share(ratios: impl IntoIterator<Item = f64>, least: f64) -> f64 {
    let ratios = ratios.into_iter().filter(|ratio| ratio.is_finite());
    ratios.map(|by| by - 1.0).fold(least, f64::max)
}

/// Returns the times of a forward and of a backward step, divided by those of another machine. Division by 0 gives 1.
fn ratios(machine: &Machine, over: &Machine) -> [f64; 2] {
    let ratio = |time: fn(&Machine) -> Duration| match time(over).is_zero() {
        true => 1.0,
        false => time(machine).as_secs_f64() / time(over).as_secs_f64(),
    };
    [ratio(|of| of.forward), ratio(|of| of.backward)]
}

/// Gives a machine the steps of another one, times their factors.
fn set_steps(machine: &mut Machine, of: &Machine, by: [f64; 2]) {
    let times = |time: Duration, by| {
        Duration::try_from_secs_f64(time.as_secs_f64() * by).unwrap_or(Duration::MAX)
    };
    machine.forward = times(of.forward, by[0]);
    machine.backward = times(of.backward, by[1]);
}
