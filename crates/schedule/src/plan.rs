use crate::action::Action;
use crate::blocking;
use crate::bound::Bound;
use crate::machine::{Machine, Model};
use crate::replay::{self, Times};
use crate::reversal;
use crate::search::Search;
use crate::shape::Shape;
use crate::stream::{self, Stored};
use std::time::Duration;

/// Seconds of the replay of an action, as an order of magnitude.
const REPLAY: f64 = 1e-6;

/// A schedule: the stream of actions, the time it is expected to take, and the bound.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) actions: Vec<Action>,
    times: Option<Times>,
    bound: Bound,
    steps: usize,
    /// Steps, in ascending order, whose states went down before they were forgotten in the sweep.
    sent: Vec<usize>,
    /// True if the caller gave the actions; they are then never replaced.
    is_given: bool,
}

impl Plan {
    fn new(machine: &Machine, steps: usize, actions: Vec<Action>) -> Self {
        Self {
            actions,
            times: None,
            bound: machine.bound(steps),
            steps: steps.max(1),
            sent: Vec::new(),
            is_given: false,
        }
    }

    /// Returns the best of some candidates, by replay in virtual time. Takes up to 1 s for 3 000 steps.
    #[must_use]
    pub fn best(machine: &Machine, steps: usize) -> Self {
        let actions = Search::run(&Model::new(machine, steps));
        Self::new(machine, steps, actions).judged(machine)
    }

    /// Returns the plan that the bound's linear programme suggests, without replays. Takes milliseconds.
    #[must_use]
    pub fn quick(machine: &Machine, steps: usize) -> Self {
        let model = Model::new(machine, steps);
        let line = Shape::of_bound(&model, &Bound::of(&model), 1.0).line(&model);
        Self::new(machine, steps, stream::stream(&line, &model))
    }

    /// Returns the plan of H-Revolve, the best of the plans that wait for their transfers. `None` if finding it takes too long: see
    /// [`Machine::blocking`].
    #[must_use]
    pub fn blocking(machine: &Machine, steps: usize) -> Option<Self> {
        let actions = blocking::stream(&Model::new(machine, steps))?;
        Some(Self::of(machine, steps, actions))
    }

    /// Returns the plan whose sweep stores each state whose step is a multiple of `every` (all states with 1). The reversal stores the
    /// states between two of them when it needs them.
    #[must_use]
    pub fn every(machine: &Machine, steps: usize, every: usize) -> Self {
        let model = Model::new(machine, steps);
        let (inner, coded) = (every, false);
        let starts = (0..model.steps).step_by(every.max(1));
        let line: Vec<Stored> = starts.map(|at| Stored { at, inner, coded }).collect();
        Self::of(machine, steps, stream::stream(&line, &model))
    }

    /// Makes a plan of these actions. The plan's expected time is that of its replay.
    #[must_use]
    pub fn of(machine: &Machine, steps: usize, actions: Vec<Action>) -> Self {
        let is_given = true;
        let plan = Self::new(machine, steps, actions);
        Self { is_given, ..plan }.judged(machine)
    }

    /// Returns the best plan that uses the device alone: that of Revolve, with copies counted.
    #[must_use]
    pub fn on_device(machine: &Machine, steps: usize) -> Self {
        let actions = Self::best(&machine.without_tiers(), steps).actions;
        Self::of(machine, steps, actions)
    }

    /// Makes the plan of a sweep that has ended, with the best of the tried reversals. `sent` are the states that the sweep sent
    /// down before it forgot them.
    pub(crate) fn of_sweep(
        machine: &Machine,
        steps: usize,
        sweep: Vec<Action>,
        mut sent: Vec<usize>,
    ) -> Self {
        sent.sort_unstable();
        let plan = Self::new(machine, steps, sweep);
        Self { sent, ..plan }.reversed(machine)
    }

    /// Returns the plan on the machine that its ended sweep measured. Chosen actions are replaced by better ones; given actions stay.
    pub(crate) fn again(&self, machine: &Machine) -> Self {
        let plan = self.clone().seen_on(machine);
        match self.is_given {
            true => plan,
            false => plan.reversed(machine),
        }
    }

    /// Returns the same actions with the bound and the time of a machine.
    pub(crate) fn seen_on(mut self, machine: &Machine) -> Self {
        self.bound = machine.bound(self.steps);
        self.judged(machine)
    }

    /// Returns the plan with the best reversal of its sweep; the plan itself, if no reversal is better. The replays of the search take
    /// at most half of the time by which the plan exceeds its bound. If the plan has no time, all reversals are tried.
    fn reversed(self, machine: &Machine) -> Self {
        let model = Model::new(machine, self.steps);
        let time = |plan: &Self| plan.expected().unwrap_or(Duration::MAX);
        let gain = time(&self).saturating_sub(self.bound.time).as_secs_f64();
        let replays = gain / 2.0 / (REPLAY * self.actions.len() as f64);
        let ways = reversal::ways(&model, &self.actions).take(replays as usize);
        let plans = ways.map(|actions| {
            let plan = self.clone();
            Self { actions, ..plan }.judged(machine)
        });
        let own = self.times.map(|_| self.clone());
        let best = own.into_iter().chain(plans).min_by_key(time);
        best.unwrap_or(self)
    }

    fn judged(mut self, machine: &Machine) -> Self {
        let model = Model::new(machine, self.steps);
        self.times = replay::replay(&model, &self.actions, &self.sent);
        self
    }

    /// Returns the actions, in their order.
    pub fn actions(&self) -> impl ExactSizeIterator<Item = Action> + '_ {
        self.actions.iter().copied()
    }

    /// Returns the time of the plan's replay. `None` if the plan was not replayed, or its states do not fit the tiers.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.times?.total).ok()
    }

    /// Returns the part of the [expected](Self::expected) time that follows the end of the sweep.
    #[must_use]
    pub fn reversal(&self) -> Option<Duration> {
        let times = self.times?;
        Duration::try_from_secs_f64(times.total - times.sweep).ok()
    }

    /// Returns the bound: a time that no schedule beats.
    #[must_use]
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Returns the time that this plan takes on a machine. `None` if its states do not fit there.
    #[must_use]
    pub fn time_on(&self, machine: &Machine) -> Option<Duration> {
        self.clone().judged(machine).expected()
    }
}
