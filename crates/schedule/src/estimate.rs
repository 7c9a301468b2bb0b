//! Plans for runs of one computation, one after the other, whose times are known from trials and earlier runs.

use crate::machine::Machine;
use crate::plan::Plan;
use std::time::Duration;

/// The share by which a rate of few states may be too high, and the least that is taken for one of many.
const DOUBT: [f64; 2] = [0.25, 0.05];

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
}

impl Estimate {
    /// An estimate by a trial of few states, with steps beside transfers and steps without them.
    #[must_use]
    pub fn new(machine: Machine, quiet: Machine) -> Self {
        Self {
            machine,
            quiet,
            doubt: DOUBT[0],
            lateness: 1.0,
            quiet_lateness: 1.0,
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

    fn is_on_device(&self, plan: &Plan) -> bool {
        plan.time_on(&self.machine.without_tiers()).is_some()
    }

    /// Learns from a run: the plan as it was in the end, the machine with the run's own rates and steps, and the time that it took.
    pub fn learn(&mut self, plan: &Plan, machine: &Machine, took: Duration) {
        let own = plan.time_on(machine).filter(|time| !time.is_zero());
        let lateness = own.map_or(1.0, |own| took.as_secs_f64() / own.as_secs_f64());
        if self.is_on_device(plan) {
            self.quiet_lateness = lateness;
            self.quiet = machine.clone();
            return;
        }
        let ways = |machine: &Machine| -> Vec<f64> {
            let ways = machine.tiers.iter().map(|tier| [tier.down, tier.up]);
            ways.flatten().collect()
        };
        let slower = ways(&self.machine).into_iter().zip(ways(machine));
        let slower = slower.map(|(before, after)| before / after - 1.0);
        let most = slower
            .filter(|share| share.is_finite())
            .fold(DOUBT[1], f64::max);
        self.doubt = self.doubt.min(most);
        self.lateness = lateness;
        self.machine = machine.clone();
    }
}
