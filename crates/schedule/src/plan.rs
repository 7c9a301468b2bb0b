use crate::action::Action;
use crate::blocking;
use crate::bound::{self, Bound};
use crate::machine::{Machine, Model};
use crate::replay::{self, Times};
use crate::reversal::Sweep;
use crate::search::Search;
use crate::shape::Shape;
use std::time::Duration;

/// A schedule: the stream of actions, the time it is expected to take, and the bound.
#[derive(Clone, Debug)]
pub struct Plan {
    actions: Vec<Action>,
    times: Option<Times>,
    bound: Bound,
    steps: usize,
    /// Steps whose states went down before they were forgotten in the sweep.
    sent: Vec<usize>,
    /// The actions were given, not chosen.
    is_given: bool,
}

impl Plan {
    /// Returns the best of some candidates, by replay in virtual time. Takes up to 1 s for 3 000 steps.
    #[must_use]
    pub fn best(machine: &Machine, steps: usize) -> Self {
        let model = Model::new(machine, steps);
        let mut search = Search::new(&model);
        search.run();
        Self {
            actions: search.best,
            times: search.times,
            bound: machine.bound(steps),
            steps: model.steps,
            sent: Vec::new(),
            is_given: false,
        }
    }

    /// Returns the plan that the bound's linear programme suggests, without replays. Takes milliseconds.
    #[must_use]
    pub fn quick(machine: &Machine, steps: usize) -> Self {
        let model = Model::new(machine, steps);
        let optimum = bound::programme(&model);
        let below = (optimum.stored() - optimum.device) as usize;
        let share = below as f64 / model.steps as f64;
        let dense = model.slots as f64 / (1.0 - share).max(1e-3);
        let shape = Shape::new(&model, below, dense as usize);
        Self {
            actions: shape.line(&model).stream(&model),
            times: None,
            bound: machine.bound(steps),
            steps: model.steps,
            sent: Vec::new(),
            is_given: false,
        }
    }

    /// Returns the plan of H-Revolve, the best of those that wait for their transfers. `None` if it is not quickly found: see
    /// [`Machine::blocking`].
    #[must_use]
    pub fn blocking(machine: &Machine, steps: usize) -> Option<Self> {
        let actions = blocking::stream(&Model::new(machine, steps))?;
        Some(Self::of(machine, steps, actions))
    }

    /// A plan of these actions, whose expected time is that of its replay.
    #[must_use]
    pub fn of(machine: &Machine, steps: usize, actions: Vec<Action>) -> Self {
        let bound = machine.bound(steps);
        Self {
            is_given: true,
            ..Self::judged(machine, &bound, steps, actions, Vec::new())
        }
    }

    /// The plan on a machine as its sweep, which is over, measured it. Chosen actions are replaced by better ones; given ones stay.
    pub(crate) fn again(&self, machine: &Machine) -> Self {
        let bound = machine.bound(self.steps);
        let (actions, sent) = (self.actions.clone(), self.sent.clone());
        let same = Self {
            is_given: self.is_given,
            ..Self::judged(machine, &bound, self.steps, actions, sent)
        };
        if self.is_given {
            return same;
        }
        let sweep = Sweep::of(&Model::new(machine, self.steps), &self.actions);
        sweep.best(machine, Some(same.clone())).unwrap_or(same)
    }

    /// A plan whose sweep was done already.
    pub(crate) fn judged(
        machine: &Machine,
        bound: &Bound,
        steps: usize,
        actions: Vec<Action>,
        mut sent: Vec<usize>,
    ) -> Self {
        sent.sort_unstable();
        let mut plan = Self {
            actions,
            times: None,
            bound: bound.clone(),
            steps,
            sent,
            is_given: false,
        };
        plan.times = plan.replay(machine);
        plan
    }

    fn replay(&self, machine: &Machine) -> Option<Times> {
        let model = Model::new(machine, self.steps);
        replay::replay_sent(&model, &self.actions, &|step| {
            self.sent.binary_search(&step).is_ok()
        })
    }

    /// The actions, in their order.
    pub fn actions(&self) -> impl ExactSizeIterator<Item = Action> + '_ {
        self.actions.iter().copied()
    }

    /// The time that the plan takes in the replay by which it was chosen. `None` for a plan that was not replayed.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        self.times
            .and_then(|times| Duration::try_from_secs_f64(times.total).ok())
    }

    /// The part of the [expected](Self::expected) time that follows the end of the sweep.
    #[must_use]
    pub fn reversal(&self) -> Option<Duration> {
        let times = self.times?;
        Duration::try_from_secs_f64(times.total - times.sweep).ok()
    }

    /// A time that no schedule beats.
    #[must_use]
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Returns the time that this plan takes on a machine. `None` if its states do not fit there.
    #[must_use]
    pub fn time_on(&self, machine: &Machine) -> Option<Duration> {
        let times = self.replay(machine)?;
        Duration::try_from_secs_f64(times.total).ok()
    }
}
