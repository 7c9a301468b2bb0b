//! Candidates, judged by replay.

use crate::action::Action;
use crate::blocking;
use crate::bound::Bound;
use crate::machine::Model;
use crate::replay;
use crate::shape::Shape;
use crate::stream::{self, Stored};
use std::collections::HashSet;

/// Most actions that a search replays, without those for each step.
const WORK: usize = 1_600_000;
/// Actions that a search replays in addition for each step.
const WORK_OF_STEP: usize = 400;

/// Shares of the states that the bound stores below the device.
const SHARES: [f64; 7] = [1.0, 0.97, 0.9, 0.8, 0.65, 0.5, 0.3];

/// Slots for the states of gaps, beyond the free slots of the device. A negative number keeps slots for fetches. The last number
/// stands for the room of all tiers, as states of the sweep leave room once they are used.
const SPILLS: [i32; 4] = [-1, 0, 3, 1 << 16];

pub(crate) struct Search<'a> {
    model: &'a Model,
    bound: f64,
    /// The best stream so far.
    actions: Vec<Action>,
    /// Seconds that the best stream takes.
    least: f64,
    /// The best shape so far.
    shape: Shape,
    /// Seconds that the stream of the best shape takes.
    seconds: f64,
    tried: HashSet<Shape>,
    work: usize,
}

impl<'a> Search<'a> {
    /// Returns the best stream.
    pub(crate) fn run(model: &'a Model) -> Vec<Action> {
        let mut search = Self {
            model,
            bound: Bound::of(model).time.as_secs_f64(),
            actions: Vec::new(),
            least: f64::INFINITY,
            shape: Shape::new(model, 0, model.steps),
            seconds: f64::INFINITY,
            tried: HashSet::new(),
            work: 0,
        };
        if let Some(actions) = blocking::stream(model) {
            search.judge(actions);
        }
        for tiers in (0..=model.hops.len()).rev() {
            search.start(tiers);
        }
        search.climb();
        // `climb` changes one number at a time, and ends if no single change helps. Random changes may still help.
        let mut dice = Dice(1);
        for share in [0.8, 0.9, 1.0] {
            search.polish(share, &mut dice);
        }
        search.actions
    }

    fn judge(&mut self, actions: Vec<Action>) -> f64 {
        self.work += actions.len();
        let times = replay::replay(self.model, &actions, &[]);
        let total = times.map_or(f64::INFINITY, |times| times.total);
        if total < self.least {
            (self.actions, self.least) = (actions, total);
        }
        total
    }

    fn try_shape(&mut self, shape: Shape) {
        if self.tried.insert(shape) {
            let seconds = self.judge(stream::stream(&shape.line(self.model), self.model));
            if seconds < self.seconds {
                (self.shape, self.seconds) = (shape, seconds);
            }
        }
    }

    /// Returns true if the bound is met, or this share of the work is done.
    fn is_done(&self, share: f64) -> bool {
        let most = (WORK + WORK_OF_STEP * self.model.steps) as f64;
        self.work as f64 > most * share || self.least <= self.bound * 1.0005 + 1e-9
    }

    /// Tries lines for the nearest `tiers` tiers. Lower tiers may not be worth their transfers; then their rates should change no
    /// line.
    fn start(&mut self, tiers: usize) {
        let model = self.model;
        let (steps, slots) = (model.steps, model.slots);
        let mut near = model.clone();
        near.hops.truncate(tiers);
        let bound = Bound::of(&near);
        // Revolve with the room of these tiers. The one with the room of the device always fits.
        self.try_shape(Shape {
            slots: near.all_room(),
            ..Shape::new(model, 0, steps)
        });
        let coded = bound.coded.iter().sum::<f64>() / (bound.stored() - bound.device).max(1.0);
        let coded = (1000.0 * coded).min(1000.0) as usize;
        for share in SHARES {
            let Shape { below, last, .. } = Shape::of_bound(model, &bound, share);
            let lasts = [
                last,
                slots,
                slots / 2,
                steps.saturating_sub(below * slots),
                steps.saturating_sub(below * slots * 7 / 10),
                steps / (below + 1),
            ];
            for last in lasts.into_iter().filter(|_| below > 0) {
                for spill in SPILLS {
                    if self.is_done(0.4) {
                        return;
                    }
                    self.try_shape(Shape {
                        spill,
                        coded,
                        ..Shape::new(model, below, last.clamp(1, steps))
                    });
                }
            }
        }
    }

    /// Varies one number of the best shape at a time, by smaller and smaller steps.
    fn climb(&mut self) {
        let mut step = 0.3;
        while step > 0.01 && !self.is_done(0.7) {
            let before = self.seconds;
            for (field, sign) in (0..5).flat_map(|field| [(field, 1.0), (field, -1.0)]) {
                self.try_shape(vary(self.shape, field, step * sign, self.model));
            }
            if self.seconds == before {
                step /= 2.0;
            }
        }
    }

    /// Changes states or ranges of states of the best shape's line at random, until this share of the work is done.
    fn polish(&mut self, share: f64, dice: &mut Dice) {
        let mut line = self.shape.line(self.model);
        let mut time = f64::INFINITY;
        while !self.is_done(share) {
            let mut next = line.clone();
            dice.vary(&mut next, self.model.steps);
            let is_sound = next.is_sorted_by(|a, b| a.at < b.at)
                && next[0].at == 0
                && next[next.len() - 1].at < self.model.steps;
            if !is_sound {
                self.work += 10;
                continue;
            }
            let found = self.judge(stream::stream(&next, self.model));
            if found <= time {
                (time, line) = (found, next);
            }
        }
    }
}

/// Changes one number of a shape by a share of it, at least by 1.
fn vary(mut shape: Shape, field: usize, share: f64, model: &Model) -> Shape {
    let by = |unit: f64| ((unit * share.abs()).ceil().max(1.0) * share.signum()) as i64;
    let moved = |value: usize, least: i64, most: usize| {
        (value as i64 + by(value as f64)).clamp(least, most as i64) as usize
    };
    match field {
        0 => shape.below = moved(shape.below, 0, model.steps),
        1 => shape.last = moved(shape.last, 1, model.steps),
        2 => shape.slots = moved(shape.slots, 1, model.steps),
        3 => shape.spill += by(10.0) as i32,
        _ if model.size == 1.0 => {}
        _ => shape.coded = (shape.coded as i64 + by(1000.0)).clamp(0, 1000) as usize,
    }
    shape
}

/// A linear congruential generator, so that plans are the same each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 = (self.0.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }

    /// Removes a state, inserts one, or changes the slots or the steps of one or several states.
    fn vary(&mut self, line: &mut Vec<Stored>, steps: usize) {
        let at = self.next(line.len());
        let some = match self.next(2) {
            0 => line.len(),
            _ => (at + 1 + self.next(10)).min(line.len()),
        };
        match self.next(5) {
            0 if at > 0 => drop(line.remove(at)),
            1 => {
                let position = self.next(steps);
                if let Err(index) = line.binary_search_by_key(&position, |stored| stored.at) {
                    line.insert(index, line[index - 1]);
                    line[index].at = position;
                }
            }
            2 => {
                let inner = (line[at].inner + self.next(3)).saturating_sub(1);
                let some = &mut line[at..some];
                some.iter_mut().for_each(|stored| stored.inner = inner);
            }
            kind => {
                let end = if kind == 3 { some } else { at + 1 };
                let by = [1, -1][self.next(2)] * (1 + self.next(3) as isize);
                for stored in &mut line[at.max(1).min(end)..end] {
                    stored.at = stored.at.saturating_add_signed(by);
                }
            }
        }
    }
}
