use crate::action::Action;
use crate::bound::{self, Bound, Optimum};
use crate::machine::{Machine, Model};
use crate::replay::{self, Times};
use crate::{binomial, blocking, stream};
use std::collections::HashSet;
use std::time::Duration;

/// A schedule: the stream of actions, the time it is expected to take, and the bound.
#[derive(Clone, Debug)]
pub struct Plan {
    actions: Vec<Action>,
    times: Option<Times>,
    bound: Bound,
    steps: usize,
}

impl Plan {
    /// Returns the best of some candidates, by replay in virtual time. Takes up to 1 s for 3 000 steps.
    #[must_use]
    pub fn best(machine: &Machine, steps: usize) -> Self {
        let model = Model::new(machine, steps);
        let mut search = Search::new(&model);
        search.run();
        let (actions, times) = search.best;
        Self { actions, times, bound: machine.bound(steps), steps: model.steps }
    }

    /// Returns the plan that the bound's linear programme suggests, without replays. Takes milliseconds.
    #[must_use]
    pub fn quick(machine: &Machine, steps: usize) -> Self {
        let model = Model::new(machine, steps);
        let optimum = bound::programme(&model);
        let shape = Shape::of(&model, optimum.stored());
        Self { actions: shape.stream(&model), times: None, bound: machine.bound(steps), steps: model.steps }
    }

    /// The actions, in their order.
    pub fn actions(&self) -> impl ExactSizeIterator<Item = Action> + '_ {
        self.actions.iter().copied()
    }

    /// The time that the plan takes in the replay by which it was chosen. `None` for a plan that was not replayed.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        self.times.and_then(|times| Duration::try_from_secs_f64(times.total).ok())
    }

    /// A time that no schedule beats.
    #[must_use]
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Returns the time that this plan takes on a machine. `None` if its states do not fit there.
    #[must_use]
    pub fn time_on(&self, machine: &Machine) -> Option<Duration> {
        let model = Model::new(machine, self.steps);
        let times = replay::replay(&model, &self.actions)?;
        Duration::try_from_secs_f64(times.total).ok()
    }
}

/// What a line is drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    /// States stored in the sweep.
    stored: usize,
    /// States at the end that are stored one after the other.
    dense: usize,
    /// Slots for the states between stored ones.
    inner: usize,
}

impl Shape {
    /// The line of the rule: dense at the end, evenly before.
    fn of(model: &Model, stored: f64) -> Self {
        let stored = (stored.floor() as usize).clamp(1, model.steps);
        Self { stored, dense: dense(model, stored), inner: model.slots.saturating_sub(2) }
    }

    fn positions(&self, steps: usize) -> Vec<usize> {
        let dense = self.dense.min(self.stored.saturating_sub(1)).min(steps - 1);
        let (head, sparse) = (steps - dense, self.stored - dense);
        let mut positions: Vec<usize> = (0..sparse.min(head)).map(|index| index * head / sparse).collect();
        positions.extend(head..steps);
        positions
    }

    fn stream(&self, model: &Model) -> Vec<Action> {
        let positions = self.positions(model.steps);
        stream::line(model.steps, &positions, &|_| self.inner)
    }
}

fn dense(model: &Model, stored: usize) -> usize {
    let share = stored.saturating_sub(model.slots) as f64 / model.steps as f64;
    let dense = model.slots as f64 / (1.0 - share).max(1e-9);
    (dense as usize).min(stored.saturating_sub(1))
}

struct Search<'a> {
    model: &'a Model,
    optimum: Optimum,
    least: f64,
    best: (Vec<Action>, Option<Times>),
    tried: HashSet<(usize, usize, usize)>,
}

impl<'a> Search<'a> {
    fn new(model: &'a Model) -> Self {
        let optimum = bound::programme(model);
        let least = optimum.least(model);
        Self { model, optimum, least, best: (Vec::new(), None), tried: HashSet::new() }
    }

    fn judge(&mut self, actions: Vec<Action>) -> f64 {
        let times = replay::replay(self.model, &actions);
        let total = times.map_or(f64::INFINITY, |times| times.total);
        if self.best.1.is_none_or(|best| total < best.total) && times.is_some() {
            self.best = (actions, times);
        }
        total
    }

    fn shape(&mut self, shape: Shape) -> f64 {
        if !self.tried.insert((shape.stored, shape.dense, shape.inner)) {
            return f64::INFINITY;
        }
        self.judge(shape.stream(self.model))
    }

    fn binomial(&mut self, slots: usize) {
        let steps = self.model.steps;
        let positions = binomial_positions(steps, slots);
        self.judge(stream::line(steps, &positions, &|index| slots - 1 - index.min(slots - 1)));
    }

    fn run(&mut self) {
        let model = self.model;
        let stored = self.optimum.stored();
        let slots = model.slots;
        // Revolve on the device fits always.
        self.binomial(slots);
        let mut rooms = slots;
        for hop in 0..model.hops.len() {
            rooms += model.room(hop) as usize;
            self.binomial(rooms.min(model.steps));
        }
        self.binomial((stored as usize).max(1));
        for factor in [1.0, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3] {
            let line = Shape::of(model, stored * factor);
            for inner in [slots.saturating_sub(2), slots - 1, slots, slots + 1] {
                for dense in [line.dense, line.dense / 2, slots.saturating_sub(1), 0] {
                    self.shape(Shape { inner, dense, ..line });
                }
            }
        }
        if let Some(actions) = blocking::stream(model) {
            self.judge(actions);
        }
        let _ = self.least;
    }
}

/// The positions that Revolve stores in its sweep.
fn binomial_positions(steps: usize, slots: usize) -> Vec<usize> {
    let mut positions = vec![0];
    let mut at = 0;
    let mut left = slots.max(1);
    while left > 1 && steps - at > 1 {
        at += binomial::split(steps - at, left);
        positions.push(at);
        left -= 1;
    }
    positions
}
