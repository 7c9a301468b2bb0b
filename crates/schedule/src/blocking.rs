//! The best schedule that waits for each of its transfers: H-Revolve (Herrmann and Pallez, ACM TOMS 46(2), 2020), for a
//! sweep that goes to the end.

use crate::action::Action;
use crate::machine::{Hop, Machine, Model};
use crate::stream::Writer;
use std::time::Duration;

/// The most operations that the dynamic programme may take in a search: about 0.1 s.
const WORK: usize = 60_000_000;

impl Machine {
    /// Returns the time of the best schedule that waits for each transfer (H-Revolve), with copies counted. `None` if the
    /// dynamic programme would take too long: it grows with `steps²` times the slots.
    #[must_use]
    pub fn blocking(&self, steps: usize) -> Option<Duration> {
        let model = Model::new(self, steps);
        let tables = Tables::new(&model, usize::MAX)?;
        let time = tables.time(tables.first_place()) + steps as f64 * model.backward;
        Duration::try_from_secs_f64(time).ok()
    }
}

/// The stream of the best blocking schedule, for tiers that need not be waited for, if it is quickly found.
pub(crate) fn stream(model: &Model) -> Option<Vec<Action>> {
    Tables::new(model, WORK).map(|tables| tables.stream())
}

/// The place of a span: its first state is stored on `source`, `free` slots are left on `level`, which is `source` or a
/// faster one, and all slots of levels that are faster still.
#[derive(Clone, Copy)]
struct Place {
    source: usize,
    level: usize,
    free: usize,
    /// The span is at the end of the first sweep.
    is_first: bool,
}

impl Place {
    /// The place of a span whose first state takes a slot of this level.
    fn saved(self) -> Self {
        let (source, free) = (self.level, self.free - 1);
        Self {
            source,
            free,
            ..self
        }
    }
}

/// The next decision about a span.
enum Choice {
    /// No slots are left.
    Repeat,
    Faster,
    /// The first state is stored on the faster level, too.
    Copy,
    Split(usize),
}

/// Steps to be reversed.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    place: Place,
    /// The working buffer has the first state.
    stands: bool,
}

struct Tables {
    forward: f64,
    steps: usize,
    /// Seconds of a state between the working buffer and each level.
    write: Vec<f64>,
    read: Vec<f64>,
    slots: Vec<usize>,
    /// Seconds of spans by [`index`](Self::index) of their places and by steps, without those of the reversed steps.
    costs: Vec<Vec<f64>>,
}

impl Tables {
    /// Returns `None` if the tables take more than so many operations.
    fn new(model: &Model, work: usize) -> Option<Self> {
        let steps = model.steps;
        let rooms = (0..model.hops.len()).map(|hop| model.room(hop) as usize);
        let slots: Vec<usize> = std::iter::once(model.slots)
            .chain(rooms)
            .map(|slots| slots.min(steps))
            .collect();
        let levels = slots.len();
        let places: usize = slots
            .iter()
            .enumerate()
            .map(|(level, slots)| (levels - level) * slots)
            .sum();
        if steps.saturating_mul(steps).saturating_mul(places) > work {
            return None;
        }
        // All ways lead over a slot on the device, to and from which a state is copied.
        let total = |time: fn(&Hop) -> f64| {
            let below = model.hops.iter().scan(model.copy, |sum, hop| {
                *sum += time(hop);
                Some(*sum)
            });
            std::iter::once(model.copy).chain(below).collect()
        };
        let most = slots.iter().max().copied().unwrap_or(0);
        let mut tables = Self {
            forward: model.forward,
            steps,
            write: total(|hop| hop.down),
            read: total(|hop| hop.up),
            costs: vec![Vec::new(); 2 * levels * levels * (most + 1)],
            slots,
        };
        for level in 0..levels {
            for source in level..levels {
                for free in 0..=tables.slots[level] {
                    for is_first in [false, true] {
                        let place = Place {
                            source,
                            level,
                            free,
                            is_first,
                        };
                        let at = tables.index(place);
                        tables.costs[at] = vec![f64::INFINITY; steps + 1];
                        for steps in 1..=steps {
                            tables.costs[at][steps] = tables.best(place, steps).0;
                        }
                    }
                }
            }
        }
        Some(tables)
    }

    fn index(&self, place: Place) -> usize {
        let levels = self.slots.len();
        ((place.free * levels + place.source) * levels + place.level) * 2
            + usize::from(place.is_first)
    }

    fn row(&self, place: Place) -> &[f64] {
        &self.costs[self.index(place)]
    }

    /// The least cost of a span and what is done first for it.
    fn best(&self, place: Place, steps: usize) -> (f64, Choice) {
        let Place {
            source,
            level,
            free,
            is_first,
        } = place;
        let read = self.read[source];
        let (count, forward) = (steps as f64, self.forward);
        let mut best = match level {
            0 => {
                let once_more = if is_first {
                    count * forward + read
                } else {
                    0.0
                };
                let again = count * (count - 1.0) / 2.0 * forward + (count - 1.0) * read;
                (once_more + again, Choice::Repeat)
            }
            _ => (self.row(self.faster(place))[steps], Choice::Faster),
        };
        if free == 0 || steps == 1 {
            return best;
        }
        let mut less = |cost: f64, choice: Choice| {
            if cost < best.0 {
                best = (cost, choice);
            }
        };
        let write = self.write[level];
        let right = self.row(place.saved());
        let left = self.row(Place {
            is_first: false,
            ..place
        });
        if source > level {
            less(write + right[steps], Choice::Copy);
        }
        let split = |middle: usize| middle as f64 * forward + right[steps - middle] + left[middle];
        let (mut least, mut middle) = (f64::INFINITY, 0);
        for at in 1..steps {
            let cost = split(at);
            if cost < least {
                (least, middle) = (cost, at);
            }
        }
        less(least + write + read, Choice::Split(middle));
        // A state that is reversed at once is not stored.
        if !is_first {
            let cost = (count - 1.0) * forward + read + left[steps - 1];
            less(cost, Choice::Split(steps - 1));
        }
        best
    }

    /// The place of the same span with all slots of the next faster level.
    fn faster(&self, place: Place) -> Place {
        let level = place.level - 1;
        let free = self.slots[level];
        Place {
            level,
            free,
            ..place
        }
    }

    /// Seconds from the beginning to the end.
    fn time(&self, place: Place) -> f64 {
        self.write[place.level] + self.row(place)[self.steps]
    }

    /// The best place of the first state.
    fn first_place(&self) -> Place {
        let places = (0..self.slots.len()).map(|level| Place {
            source: level,
            level,
            free: self.slots[level] - 1,
            is_first: true,
        });
        let best = places.min_by(|&a, &b| self.time(a).total_cmp(&self.time(b)));
        best.unwrap_or(Place {
            source: 0,
            level: 0,
            free: 0,
            is_first: true,
        })
    }

    fn stream(&self) -> Vec<Action> {
        let mut writer = Writer::default();
        writer.save(0, false);
        let mut open = vec![Span {
            start: 0,
            end: self.steps,
            place: self.first_place(),
            stands: true,
        }];
        while let Some(span) = open.pop() {
            let Span {
                start,
                end,
                place,
                stands,
            } = span;
            if !stands {
                writer.restart(start);
            }
            let here = |place: Place| Span {
                place,
                stands: true,
                ..span
            };
            match self.best(place, end - start).1 {
                Choice::Faster => open.push(here(self.faster(place))),
                Choice::Copy => open.push(here(place.saved())),
                Choice::Repeat => {
                    if place.is_first {
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
                        place: Place {
                            is_first: false,
                            ..place
                        },
                        stands: false,
                        ..span
                    });
                    if end - middle == 1 && !place.is_first {
                        writer.actions.push(Action::Reverse { step: middle });
                    } else {
                        writer.save(middle, false);
                        open.push(Span {
                            start: middle,
                            ..here(place.saved())
                        });
                    }
                }
            }
        }
        writer.actions
    }
}
