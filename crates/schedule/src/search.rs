//! Candidates, judged by replay.

use crate::action::Action;
use crate::blocking;
use crate::bound::Bound;
use crate::machine::Model;
use crate::replay::{self, Times};
use crate::shape::Shape;
use crate::stream::{self, Stored};

/// The most actions that a search replays, and those more for each step.
const WORK: usize = 800_000;
const WORK_OF_STEP: usize = 400;

pub(crate) struct Search<'a> {
    model: &'a Model,
    bound: Bound,
    /// The best stream so far, and its times.
    pub(crate) actions: Vec<Action>,
    pub(crate) times: Option<Times>,
    work: usize,
}

impl<'a> Search<'a> {
    pub(crate) fn run(model: &'a Model) -> Self {
        let mut search = Self {
            model,
            bound: Bound::of(model),
            actions: Vec::new(),
            times: None,
            work: 0,
        };
        search.search();
        search
    }

    fn judge(&mut self, actions: Vec<Action>) -> f64 {
        self.work += actions.len();
        let times = replay::replay(self.model, &actions, &[]);
        let total = times.map_or(f64::INFINITY, |times| times.total);
        if self.times.is_none_or(|best| total < best.total) && times.is_some() {
            (self.actions, self.times) = (actions, times);
        }
        total
    }

    fn judge_line(&mut self, line: &[Stored]) -> f64 {
        self.judge(stream::stream(line, self.model))
    }

    /// The search is over: the bound is met, or this share of the work is done.
    fn is_done(&self, share: f64) -> bool {
        let most = (WORK + WORK_OF_STEP * self.model.steps) as f64;
        let is_met = |times: Times| times.total <= self.bound.time.as_secs_f64() * 1.0005 + 1e-9;
        self.work as f64 > most * share || self.times.is_some_and(is_met)
    }

    fn search(&mut self) {
        let model = self.model;
        let (steps, slots) = (model.steps, model.slots);
        // Revolve on the device, which fits always, then with the room of more and more tiers, then with as many as the bound stores.
        let mut rooms = vec![slots];
        for hop in 0..model.hops.len() {
            rooms.push(rooms[hop] + model.room(hop) as usize);
        }
        rooms.push(self.bound.stored().max(1.0) as usize);
        for room in rooms {
            self.judge_line(&Shape::revolve(model, room.min(steps)).line(model));
        }
        if let Some(actions) = blocking::stream(model) {
            self.judge(actions);
        }
        let (mut time, mut best) = (f64::INFINITY, Vec::new());
        for share in [1.0, 0.97, 0.9, 0.8, 0.65, 0.5, 0.3] {
            let mut shape = Shape::of_bound(model, &self.bound, share);
            let (below, last) = (shape.below, shape.last);
            let mut lasts = vec![
                last,
                slots,
                slots / 2,
                steps.saturating_sub(below * slots),
                steps.saturating_sub(below * slots * 7 / 10),
                steps / (below + 1),
                slots * slots / 2,
                slots * slots / 4,
            ];
            let clamp = |last: &mut usize| *last = (*last).clamp(1, steps);
            lasts.iter_mut().for_each(clamp);
            lasts.sort_unstable();
            lasts.dedup();
            for last in lasts {
                for spill in [-1, 0, 3] {
                    if self.is_done(0.4) && !best.is_empty() {
                        break;
                    }
                    (shape.last, shape.spill) = (last, spill);
                    let line = shape.line(model);
                    let found = self.judge_line(&line);
                    if found < time || best.is_empty() {
                        (time, best) = (found, line);
                    }
                }
            }
        }
        self.polish(best, time);
    }

    /// Moves single states, and ranges of them, at random.
    fn polish(&mut self, mut line: Vec<Stored>, mut time: f64) {
        let mut dice = Dice(1);
        while !self.is_done(1.0) {
            let mut next = line.clone();
            dice.vary(&mut next, self.model.steps);
            let is_sound = next.is_sorted_by(|a, b| a.at < b.at)
                && next[0].at == 0
                && next[next.len() - 1].at < self.model.steps;
            if !is_sound {
                self.work += 10;
                continue;
            }
            let found = self.judge_line(&next);
            if found <= time {
                (time, line) = (found, next);
            }
        }
    }
}

/// A linear congruential generator, so that plans are the same each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 = (self.0.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }

    /// Takes a state out, puts one in, or changes the slots or the steps of one or of some.
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
                    let mut stored = line[index - 1];
                    stored.at = position;
                    line.insert(index, stored);
                }
            }
            2 => {
                let inner = (line[at].inner + self.next(3)).saturating_sub(1);
                let some = &mut line[at..some];
                some.iter_mut().for_each(|stored| stored.inner = inner);
            }
            kind => {
                let end = if kind == 3 { some } else { at + 1 };
                let (is_up, by) = (self.next(2) == 0, 1 + self.next(3));
                for stored in &mut line[at.max(1).min(end)..end] {
                    stored.at = match is_up {
                        true => stored.at + by,
                        false => stored.at.saturating_sub(by),
                    };
                }
            }
        }
    }
}
