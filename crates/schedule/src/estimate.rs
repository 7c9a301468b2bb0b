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
    known: Known,
}

/// Steps forward and backward, in seconds, when the ones without transfers were measured last.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    quiet: [f64; 2],
    /// Steps beside transfers.
    beside: [f64; 2],
    last: Source,
}

/// A source of the newest times of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Trial,
    Device,
    Tiers,
}

impl Estimate {
    /// An estimate by a trial of few states, with steps beside transfers and steps without them.
    #[must_use]
    pub fn new(machine: Machine, quiet: Machine) -> Self {
        Self {
            known: Known {
                quiet: step_times(&quiet),
                beside: step_times(&machine),
                last: Source::Trial,
            },
            machine,
            quiet,
            doubt: TRIAL_DOUBT,
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
    ///
    /// The run had one kind of steps. Those of the other kind are taken to have changed as much: the first run may find memory that
    /// was not used before, and others load. Steps beside transfers are never faster than those without. When they become
    /// slower after the first run, transfers or load may be the cause: each is taken for half of it, so that a wrong guess costs
    /// the half at most.
    ///
    /// The doubt falls by half, but not below the share by which a link or a step was slower than expected: a step that becomes as
    /// fast again hides less of a transfer.
    pub fn learn(&mut self, plan: &Plan, machine: &Machine, took: Duration) {
        let own = plan.time_on(machine).filter(|time| !time.is_zero());
        let lateness = own.map_or(1.0, |own| took.as_secs_f64() / own.as_secs_f64());
        let Known {
            quiet,
            beside,
            last,
        } = self.known;
        let (newest, now) = (step_times(&self.machine), step_times(machine));
        let is_on_device = self.is_on_device(plan);
        let expected = match is_on_device {
            true => step_times(&self.quiet),
            false => newest,
        };
        let mut slower = ratios(now, expected).to_vec();
        if is_on_device {
            let change = ratios(now, quiet);
            self.known = Known {
                quiet: now,
                beside: [0, 1].map(|way| {
                    let rest = match last {
                        Source::Tiers => newest[way] / (beside[way] * change[way]),
                        _ => 1.0,
                    };
                    (beside[way] * change[way] * rest.max(1.0).sqrt()).max(now[way])
                }),
                last: Source::Device,
            };
            self.quiet_lateness = lateness;
            self.quiet = machine.clone();
            set_step_times(&mut self.machine, self.known.beside);
        } else {
            let change = ratios(now, beside);
            let same = [0, 1].map(|way| match last {
                Source::Trial => quiet[way] * change[way],
                _ => quiet[way] * change[way].min(change[way].sqrt()),
            });
            set_step_times(&mut self.quiet, [0, 1].map(|way| same[way].min(now[way])));
            let tiers = self.machine.tiers.iter().zip(&machine.tiers);
            let links = tiers.map(|(old, new)| [old.down / new.down, old.up / new.up]);
            slower.extend(links.flatten());
            self.known.last = Source::Tiers;
            self.lateness = lateness;
            self.machine = machine.clone();
        }
        slower.retain(|share| share.is_finite());
        let least = LEAST_DOUBT.max(self.doubt / 2.0);
        self.doubt = slower.into_iter().map(|by| by - 1.0).fold(least, f64::max);
    }
}

/// The change of each of two times. One from nothing is no change.
fn ratios(after: [f64; 2], before: [f64; 2]) -> [f64; 2] {
    [0, 1].map(|way| match before[way] > 0.0 {
        true => after[way] / before[way],
        false => 1.0,
    })
}

/// Seconds of a step forward and of one backward.
fn step_times(machine: &Machine) -> [f64; 2] {
    [machine.forward, machine.backward].map(|time| time.as_secs_f64())
}

fn set_step_times(machine: &mut Machine, times: [f64; 2]) {
    let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    [machine.forward, machine.backward] = times.map(time);
}
