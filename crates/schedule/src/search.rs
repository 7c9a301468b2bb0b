//! Candidates, judged by replay.

use crate::action::Action;
use crate::blocking;
use crate::bound::{self, Optimum};
use crate::machine::Model;
use crate::replay::{self, Times};
use crate::shape::{Line, Shape};
use std::collections::HashSet;

/// The most actions that a search replays, and those more for each step.
const WORK: usize = 800_000;
const WORK_OF_STEP: usize = 400;

pub(crate) struct Search<'a> {
    model: &'a Model,
    optimum: Optimum,
    least: f64,
    pub(crate) best: Vec<Action>,
    pub(crate) times: Option<Times>,
    tried: HashSet<Shape>,
    work: usize,
}

/// A shape with the seconds that its stream takes.
#[derive(Clone, Copy)]
struct Start {
    time: f64,
    shape: Shape,
}

impl<'a> Search<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        let optimum = bound::programme(model);
        let least = optimum.least(model);
        Self {
            model,
            optimum,
            least,
            best: Vec::new(),
            times: None,
            tried: HashSet::new(),
            work: 0,
        }
    }

    fn judge(&mut self, actions: Vec<Action>) -> f64 {
        self.work += actions.len();
        let times = replay::replay(self.model, &actions);
        let total = times.map_or(f64::INFINITY, |times| times.total);
        if self.times.is_none_or(|best| total < best.total) && times.is_some() {
            (self.best, self.times) = (actions, times);
        }
        total
    }

    fn shape(&mut self, shape: Shape) -> f64 {
        if !self.tried.insert(shape) {
            return f64::INFINITY;
        }
        let line = shape.line(self.model);
        self.judge(line.stream(self.model))
    }

    /// The search is over: the bound is met, or the work is done.
    fn is_done(&self, share: f64) -> bool {
        let most = WORK + WORK_OF_STEP * self.model.steps;
        self.work as f64 > most as f64 * share
            || self
                .times
                .is_some_and(|times| times.total <= self.least * 1.0005)
    }

    pub(crate) fn run(&mut self) {
        let model = self.model;
        let (steps, slots) = (model.steps, model.slots);
        // Revolve on the device fits always.
        self.shape(Shape::new(model, 0, steps));
        let mut rooms = slots;
        for hop in 0..model.hops.len() {
            rooms += model.room(hop) as usize;
            let room = rooms.min(steps);
            self.shape(Shape {
                slots: room,
                last_spill: (room - slots) as i32,
                ..Shape::new(model, 0, steps)
            });
        }
        let stored = self.optimum.stored() as usize;
        self.shape(Shape {
            slots: stored.max(1),
            last_spill: stored.saturating_sub(slots) as i32,
            ..Shape::new(model, 0, steps)
        });
        if let Some(actions) = blocking::stream(model) {
            self.judge(actions);
        }
        let below = self.optimum.stored() - self.optimum.device;
        let mut starts = Vec::new();
        let coded =
            (1000.0 * self.optimum.coded.iter().sum::<f64>() / below.max(1.0)).min(1000.0) as usize;
        for factor in [1.0, 0.97, 0.9, 0.8, 0.65, 0.5, 0.3] {
            let below = (below * factor) as usize;
            let dense = slots as f64 / (1.0 - below as f64 / steps as f64).max(1e-3);
            let lasts = [
                dense as usize,
                slots,
                slots / 2,
                steps.saturating_sub(below * slots),
                steps.saturating_sub(below * slots * 7 / 10),
                steps / (below + 1),
                slots * slots / 2,
                slots * slots / 4,
            ];
            for last in lasts {
                if self.is_done(0.4) && !starts.is_empty() {
                    break;
                }
                for spill in [-1, 0, 3] {
                    let shape = Shape {
                        spill,
                        coded,
                        ..Shape::new(model, below, last.clamp(1, steps))
                    };
                    starts.push(Start {
                        time: self.shape(shape),
                        shape,
                    });
                }
            }
        }
        starts.sort_by(|a, b| a.time.total_cmp(&b.time));
        starts.dedup_by_key(|start| start.shape);
        let mut best = starts[0];
        for start in starts.into_iter().take(4) {
            let found = self.climb(start);
            if found.time < best.time {
                best = found;
            }
        }
        self.polish(best.shape.line(model));
    }

    fn climb(&mut self, mut best: Start) -> Start {
        let mut step = 0.3;
        while step > 0.01 && !self.is_done(0.7) {
            let mut better = false;
            for field in 0..7 {
                for sign in [1, -1] {
                    if field == 5 && self.model.codec.is_none() {
                        continue;
                    }
                    let next = vary(best.shape, field, step, sign, self.model.steps);
                    let time = self.shape(next);
                    if time < best.time {
                        (best, better) = (Start { time, shape: next }, true);
                    }
                }
            }
            if !better {
                step /= 2.0;
            }
        }
        best
    }

    /// Moves single positions, and ranges of them, at random.
    fn polish(&mut self, mut line: Line) {
        let mut time = f64::INFINITY;
        let mut dice = Dice(1);
        while !self.is_done(1.0) {
            let mut next = line.clone();
            dice.vary(&mut next, self.model.steps);
            let is_sound = next.positions.is_sorted_by(|a, b| a < b)
                && next.positions[0] == 0
                && next.positions.iter().all(|&at| at < self.model.steps);
            if !is_sound {
                self.work += 10;
                continue;
            }
            let found = self.judge(next.stream(self.model));
            if found <= time {
                (time, line) = (found, next);
            }
        }
    }
}

fn vary(mut shape: Shape, field: usize, step: f64, sign: i32, steps: usize) -> Shape {
    let moved = |value: usize| {
        let by = (value as f64 * step).ceil().max(1.0) as usize;
        if sign > 0 {
            value + by
        } else {
            value.saturating_sub(by)
        }
    };
    match field {
        0 => shape.below = moved(shape.below).min(steps),
        1 => shape.last = moved(shape.last).clamp(1, steps),
        2 => shape.slots = moved(shape.slots).clamp(1, steps),
        3 => shape.spill += sign * ((10.0 * step) as i32).max(1),
        4 => shape.last_spill += sign * ((10.0 * step) as i32).max(1),
        5 => {
            shape.coded =
                (shape.coded as i32 + sign * (1000.0 * step) as i32).clamp(0, 1000) as usize
        }
        _ => shape.tilt = moved(shape.tilt).clamp(200, 3000),
    }
    shape
}

struct Dice(u64);

impl Dice {
    fn next(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }

    fn vary(&mut self, line: &mut Line, steps: usize) {
        let count = line.positions.len();
        let at = self.next(count);
        let far = if self.next(2) == 0 {
            count
        } else {
            (at + 1 + self.next(10)).min(count)
        };
        match self.next(5) {
            0 if at > 0 => {
                line.positions.remove(at);
                line.inner.remove(at);
                line.coded.remove(at);
            }
            1 => {
                let position = self.next(steps);
                if let Err(index) = line.positions.binary_search(&position) {
                    line.positions.insert(index, position);
                    line.inner.insert(index, line.inner[index - 1]);
                    line.coded.insert(index, line.coded[index - 1]);
                }
            }
            2 => {
                let value = (line.inner[at] + self.next(3)).saturating_sub(1);
                line.inner[at..far].fill(value);
            }
            3 => {
                let up = self.next(2) == 0;
                let by = 1 + self.next(3);
                for position in &mut line.positions[at.max(1).min(count)..far] {
                    *position = if up {
                        *position + by
                    } else {
                        position.saturating_sub(by)
                    };
                }
            }
            _ if at > 0 => {
                let up = self.next(2) == 0;
                let by = 1 + self.next(3);
                let position = &mut line.positions[at];
                *position = if up {
                    *position + by
                } else {
                    position.saturating_sub(by)
                };
            }
            _ => {}
        }
    }
}
