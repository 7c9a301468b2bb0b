//! The best schedule that waits for each of its transfers: H-Revolve (Herrmann and Pallez, ACM TOMS 46(2), 2020), for a
//! sweep that goes to the end.

use crate::action::Action;
use crate::machine::{Hop, Machine, Model};
use crate::stream::{Choice, Writer};
use std::time::Duration;

/// Most operations of the dynamic programme within a search: about 0.1 s.
const WORK: usize = 60_000_000;
/// Most operations of the dynamic programme outside a search: about 3 s.
const WORK_ALONE: usize = 2_000_000_000;

impl Machine {
    /// Returns the time of the best schedule that waits for each transfer (H-Revolve), with copies counted. `None` if the
    /// dynamic programme would take more than a few seconds: it grows with `steps²` times the slots.
    #[must_use]
    pub fn blocking(&self, steps: usize) -> Option<Duration> {
        let model = Model::new(self, steps);
        let (time, _) = Tables::new(&model, WORK_ALONE)?.first()?;
        Duration::try_from_secs_f64(time + steps as f64 * model.backward).ok()
    }
}

/// Returns the stream of the best blocking schedule; `None` if the search for it would take too long.
pub(crate) fn stream(model: &Model) -> Option<Vec<Action>> {
    let tables = Tables::new(model, WORK)?;
    let (_, place) = tables.first()?;
    let choose = |&place: &Place, steps: usize| tables.best(place, steps).1;
    Some(Writer::new(Vec::new(), 0, model.steps).all(place, choose))
}

/// The place of a gap. The gap's first state is stored on `source`. `free` slots are left on `level`, which is `source` or
/// faster, and all slots of faster levels.
#[derive(Clone, Copy)]
struct Place {
    source: usize,
    level: usize,
    free: usize,
    /// The gap is at the end of the first sweep.
    is_first: bool,
}

struct Tables {
    forward: f64,
    /// Seconds of a state between the working buffer and each level.
    write: Vec<f64>,
    read: Vec<f64>,
    slots: Vec<usize>,
    /// Seconds of gaps without the reversed steps: by level, source, number of the place, and steps.
    costs: Vec<Vec<Vec<Vec<f64>>>>,
}

impl Tables {
    /// Computes the tables. Returns `None` if they take more than `work` operations.
    fn new(model: &Model, work: usize) -> Option<Self> {
        let steps = model.steps;
        let rooms = (0..model.hops.len()).map(|hop| model.room(hop) as usize);
        let slots: Vec<usize> = std::iter::once(model.slots).chain(rooms).collect();
        let levels = slots.len();
        let places = slots.iter().enumerate();
        let places: usize = places.map(|(level, slots)| (levels - level) * slots).sum();
        if steps.saturating_mul(steps).saturating_mul(places) > work {
            return None;
        }
        // Each state is copied to or from a slot on the device on its way.
        let total = |time: fn(&Hop) -> f64| {
            let hops = |level: usize| model.hops[..level].iter().map(time);
            let total = |level| hops(level).fold(model.copy, |sum, time| sum + time);
            (0..levels).map(total).collect()
        };
        let mut tables = Self {
            forward: model.forward,
            write: total(|hop| hop.down),
            read: total(|hop| hop.up),
            costs: vec![vec![Vec::new(); levels]; levels],
            slots,
        };
        for level in 0..levels {
            for source in level..levels {
                for of in 0..2 * (tables.slots[level] + 1) {
                    let place = Place {
                        source,
                        level,
                        free: of / 2,
                        is_first: of % 2 == 1,
                    };
                    tables.costs[level][source].push(vec![f64::INFINITY; steps + 1]);
                    for steps in 1..=steps {
                        tables.costs[level][source][of][steps] = tables.best(place, steps).0;
                    }
                }
            }
        }
        Some(tables)
    }

    fn row(&self, place: Place) -> &[f64] {
        let rows = &self.costs[place.level][place.source];
        &rows[2 * place.free + usize::from(place.is_first)]
    }

    /// Returns the least cost of a gap, and the first decision that leads to it.
    fn best(&self, place: Place, steps: usize) -> (f64, Choice<Place>) {
        let (level, read) = (place.level, self.read[place.source]);
        let (count, forward) = (steps as f64, self.forward);
        let mut best = if level == 0 {
            let once_more = f64::from(u8::from(place.is_first)) * (count * forward + read);
            let again = count * (count - 1.0) / 2.0 * forward + (count - 1.0) * read;
            (once_more + again, Choice::Repeat)
        } else {
            let faster = Place {
                level: level - 1,
                free: self.slots[level - 1],
                ..place
            };
            (self.row(faster)[steps], Choice::Move(faster))
        };
        if place.free == 0 || steps == 1 {
            return best;
        }
        let mut less = |cost: f64, choice: Choice<Place>| {
            if cost < best.0 {
                best = (cost, choice);
            }
        };
        let before = Place {
            is_first: false,
            ..place
        };
        let behind = Place {
            source: level,
            free: place.free - 1,
            ..place
        };
        let split = |steps: usize| Choice::Split(steps, before, behind);
        let (write, left, right) = (self.write[level], self.row(before), self.row(behind));
        if place.source > level {
            less(write + right[steps], Choice::Move(behind));
        }
        let costs = (1..steps).map(|at| (at as f64 * forward + right[steps - at] + left[at], at));
        let least = costs.reduce(|least, next| if next.0 < least.0 { next } else { least });
        if let Some((cost, middle)) = least {
            less(cost + write + read, split(middle));
        }
        // A state that is reversed at once is not stored.
        if !place.is_first {
            let cost = (count - 1.0) * forward + read + left[steps - 1];
            less(cost, split(steps - 1));
        }
        best
    }

    /// Returns the least seconds from the beginning to the end, and the place of the whole sweep as one gap. The first state is then
    /// the only one on its level.
    fn first(&self) -> Option<(f64, Place)> {
        let levels = self.slots.iter().enumerate();
        let places = levels.filter_map(|(level, &slots)| {
            let place = Place {
                source: level,
                level,
                free: slots - 1,
                is_first: true,
            };
            Some((self.write[level] + self.row(place).last()?, place))
        });
        places.min_by(|a, b| a.0.total_cmp(&b.0))
    }
}
