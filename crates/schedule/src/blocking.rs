//! The best schedule that waits for each of its transfers: H-Revolve (Herrmann and Pallez, ACM TOMS 46(2), 2020), for a
//! sweep that goes to the end.

use crate::action::Action;
use crate::machine::{Machine, Model};
use crate::stream::Writer;
use std::time::Duration;

/// The most operations that the dynamic programme may take: about 0.1 s.
const WORK: usize = 60_000_000;

impl Machine {
    /// Returns the time of the best schedule that waits for each transfer (H-Revolve), with copies counted. `None` if the
    /// dynamic programme would take too long: it grows with `steps²` times the slots.
    #[must_use]
    pub fn blocking(&self, steps: usize) -> Option<Duration> {
        let model = Model::new(self, steps);
        let time = Tables::new(&model, usize::MAX)?.least().time;
        Duration::try_from_secs_f64(time + steps as f64 * model.backward).ok()
    }
}

/// The place of a span: its first state is stored on `source`, `free` slots are left on `level`, which is `source` or a
/// faster one, and all slots of levels that are faster still.
#[derive(Clone, Copy)]
struct Place {
    source: usize,
    level: usize,
    free: usize,
}

/// The next decision about a span.
enum Choice {
    Single,
    /// No slots are left.
    Repeat,
    Faster,
    /// The first state is stored on the faster level, too.
    Copy,
    Split(usize),
}

pub(crate) struct Least {
    level: usize,
    /// Seconds, without those of the reversed steps.
    pub(crate) time: f64,
}

pub(crate) struct Tables {
    forward: f64,
    steps: usize,
    write: Vec<f64>,
    read: Vec<f64>,
    slots: Vec<usize>,
    /// Costs of a span by source, level, free slots and steps; in the first sweep and after it.
    first: Vec<Vec<Vec<Vec<f64>>>>,
    later: Vec<Vec<Vec<Vec<f64>>>>,
}

impl Tables {
    /// Returns `None` if the tables take more than so many operations.
    pub(crate) fn new(model: &Model, work: usize) -> Option<Self> {
        let steps = model.steps;
        let rooms = (0..model.hops.len()).map(|hop| model.room(hop) as usize);
        let slots: Vec<usize> = std::iter::once(model.slots)
            .chain(rooms)
            .map(|slots| slots.min(steps))
            .collect();
        let pairs: usize = slots
            .iter()
            .rev()
            .enumerate()
            .map(|(sources, slots)| (sources + 1) * slots)
            .sum();
        if steps.saturating_mul(steps).saturating_mul(pairs) > work {
            return None;
        }
        let total = |time: fn(&crate::machine::Hop) -> f64| {
            let mut sum = 0.0;
            let below = model.hops.iter().map(move |hop| {
                sum += time(hop);
                sum
            });
            std::iter::once(model.copy)
                .chain(below)
                .collect::<Vec<f64>>()
        };
        let levels = slots.len();
        let mut tables = Self {
            forward: model.forward,
            steps,
            write: total(|hop| hop.down),
            read: total(|hop| hop.up),
            slots,
            first: vec![vec![Vec::new(); levels]; levels],
            later: vec![vec![Vec::new(); levels]; levels],
        };
        for level in 0..levels {
            for source in level..levels {
                for free in 0..=tables.slots[level] {
                    let place = Place {
                        source,
                        level,
                        free,
                    };
                    for is_first in [false, true] {
                        let empty = vec![f64::INFINITY; steps + 1];
                        tables.of_mut(is_first, place).push(empty);
                        for steps in 1..=steps {
                            let cost = tables.best(is_first, place, steps).0;
                            tables.of_mut(is_first, place)[free][steps] = cost;
                        }
                    }
                }
            }
        }
        Some(tables)
    }

    fn of_mut(&mut self, is_first: bool, place: Place) -> &mut Vec<Vec<f64>> {
        let tables = if is_first {
            &mut self.first
        } else {
            &mut self.later
        };
        &mut tables[place.source][place.level]
    }

    fn row(&self, is_first: bool, place: Place) -> &[f64] {
        let tables = if is_first { &self.first } else { &self.later };
        &tables[place.source][place.level][place.free]
    }

    /// The least cost of a span and what is done first for it.
    fn best(&self, is_first: bool, place: Place, steps: usize) -> (f64, Choice) {
        let Place {
            source,
            level,
            free,
        } = place;
        let read = self.read[source];
        if steps == 1 {
            let cost = if is_first { self.forward + read } else { 0.0 };
            return (cost, Choice::Single);
        }
        let mut best = if level > 0 {
            let faster = Place {
                source,
                level: level - 1,
                free: self.slots[level - 1],
            };
            (self.row(is_first, faster)[steps], Choice::Faster)
        } else {
            let once_more = if is_first {
                steps as f64 * self.forward + read
            } else {
                0.0
            };
            let again = steps as f64 * (steps - 1) as f64 / 2.0 * self.forward;
            (
                once_more + again + (steps - 1) as f64 * read,
                Choice::Repeat,
            )
        };
        if free == 0 {
            return best;
        }
        let saved = Place {
            source: level,
            level,
            free: free - 1,
        };
        if source > level {
            let cost = self.write[level] + self.row(is_first, saved)[steps];
            if cost < best.0 {
                best = (cost, Choice::Copy);
            }
        }
        let (right, left) = (self.row(is_first, saved), self.row(false, place));
        let mut least = (f64::INFINITY, 0);
        for middle in 1..steps {
            let cost = middle as f64 * self.forward + right[steps - middle] + left[middle];
            if cost < least.0 {
                least = (cost, middle);
            }
        }
        let cost = least.0 + self.write[level] + read;
        if cost < best.0 {
            best = (cost, Choice::Split(least.1));
        }
        // A state that is reversed at once is not stored.
        let cost = (steps - 1) as f64 * self.forward + read + left[steps - 1];
        if !is_first && cost < best.0 {
            best = (cost, Choice::Split(steps - 1));
        }
        best
    }

    pub(crate) fn least(&self) -> Least {
        let cost = |level: usize| {
            let place = Place {
                source: level,
                level,
                free: self.slots[level] - 1,
            };
            self.write[level] + self.row(true, place)[self.steps]
        };
        let level = (0..self.slots.len())
            .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
            .unwrap_or(0);
        Least {
            level,
            time: cost(level),
        }
    }

    /// The stream of the best schedule, for tiers that need not be waited for.
    pub(crate) fn stream(&self) -> Vec<Action> {
        let mut writer = Writer::default();
        let level = self.least().level;
        let place = Place {
            source: level,
            level,
            free: self.slots[level] - 1,
        };
        writer.save(0);
        let mut open = vec![Span {
            start: 0,
            end: self.steps,
            place,
            is_first: true,
            stands: true,
        }];
        while let Some(span) = open.pop() {
            let Span {
                start,
                end,
                place,
                is_first,
                stands,
            } = span;
            if !stands {
                writer.restart(start);
            }
            let faster = |level: usize| Place {
                level,
                free: self.slots[level],
                ..place
            };
            match self.best(is_first, place, end - start).1 {
                Choice::Faster => open.push(Span {
                    place: faster(place.level - 1),
                    stands: true,
                    ..span
                }),
                Choice::Copy => {
                    let place = Place {
                        source: place.level,
                        free: place.free - 1,
                        ..place
                    };
                    open.push(Span {
                        place,
                        stands: true,
                        ..span
                    });
                }
                Choice::Single | Choice::Repeat => {
                    if is_first {
                        writer.forward(start, end);
                        writer.actions.push(Action::EndForward);
                        writer.restart(start);
                    }
                    writer.without_slots(start, end);
                }
                Choice::Split(steps) => {
                    let middle = start + steps;
                    writer.forward(start, middle);
                    open.push(Span {
                        end: middle,
                        is_first: false,
                        stands: false,
                        ..span
                    });
                    if end - middle == 1 && !is_first {
                        writer.actions.push(Action::Reverse { step: middle });
                    } else {
                        writer.save(middle);
                        let place = Place {
                            source: place.level,
                            free: place.free - 1,
                            ..place
                        };
                        open.push(Span {
                            start: middle,
                            end,
                            place,
                            is_first,
                            stands: true,
                        });
                    }
                }
            }
        }
        writer.actions
    }
}

#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    place: Place,
    is_first: bool,
    /// The working buffer has the first state.
    stands: bool,
}

/// The stream of the best blocking schedule, if it is quickly found.
pub(crate) fn stream(model: &Model) -> Option<Vec<Action>> {
    Tables::new(model, WORK).map(|tables| tables.stream())
}
