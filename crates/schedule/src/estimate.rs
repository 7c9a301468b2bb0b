//! Plans for runs of one computation, one after the other, whose times are known from trials and earlier runs.

use crate::machine::Machine;
use crate::plan::Plan;
use std::time::Duration;

/// The share by which a rate of few states may be too high.
const TRIAL_DOUBT: f64 = 0.25;

/// The least share that is taken for a rate of many states.
const LEAST_DOUBT: f64 = 0.05;

/// The share by which runs on one machine differ: the later shots of one RTM on a GPU took 3.30 to 3.41 s. A gain within
/// it was not measured, and the plan on the device alone has fewer ways to be late.
const SPREAD: f64 = 0.03;

/// A machine as it was measured, and how far from the truth that may be.
///
/// States on their way slow the computation down, links have other rates in a run than in a trial, and states may be late for reasons
/// that no rate tells. [`plan`](Self::plan) uses the tiers below the device only where that pays although the links are slower by
/// the doubt, and each run [tells](Self::learn) more.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The machine while states are under way.
    pub machine: Machine,
    /// The machine while none is. Its tiers are not used.
    pub quiet: Machine,
    /// The share by which the rates of the links may be too high.
    pub doubt: f64,
    /// The time of the last run whose states used the tiers below the device, over the time that its own rates tell.
    pub lateness: f64,
    /// The same of the last run on the device alone.
    pub quiet_lateness: f64,
    /// The time of a discard, by the trial or the last run. No replay counts it: the end of the sweep adds those to come.
    pub discard: Duration,
    /// The time of a step that the reversal computes again over that of the sweep, in the last run: it finds colder caches.
    pub(crate) again: f64,
    /// The doubt by what is known of the links alone. It falls with runs that use them.
    link_doubt: f64,
    /// Times of a step forward and of one backward beside transfers, over those of steps without, at least 1.
    slowdown: [f64; 2],
}

impl Estimate {
    /// An estimate by a trial of few states, with steps beside transfers and steps without them.
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

    /// Returns the best plan, unless its gain is in doubt: a plan that would gain less than 3% on the best one on the device alone if
    /// the links' rates were lower by the doubt gives way to the best plan for lower rates, or to the one on the device. Takes up to
    /// 3 s for 3 000 steps.
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

    /// The machine that the run of a plan has: one on the device alone has no states under way.
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

    /// Learns from a run: the plan as it was in the end, the machine with the run's own rates and steps, and the time that it took.
    ///
    /// The run had one kind of steps. Those of the other kind are taken to have changed as much: memory that was not used before and
    /// load slow both down. What a step loses beside transfers stays as the trial had it.
    ///
    /// The doubt falls by half, but not below the share by which a step or a link was slower than before: a step that becomes as fast
    /// again hides less of a transfer. A run on the device alone leaves the doubt that the links themselves have.
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
    /// A machine whose steps take as long beside transfers as without them.
    fn from(machine: Machine) -> Self {
        Self::new(machine.clone(), machine)
    }
}

/// The most by which times have grown, at least `least`. Times from nothing do not count.
fn share(ratios: impl IntoIterator<Item = f64>, least: f64) -> f64 {
    let ratios = ratios.into_iter().filter(|ratio| ratio.is_finite());
    ratios.map(|by| by - 1.0).fold(least, f64::max)
}

/// Steps forward and backward over those of another machine. A time over nothing is 1.
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
