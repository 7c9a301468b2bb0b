//! Lines: which states the sweep stores, drawn from a few numbers.

use crate::action::Action;
use crate::binomial;
use crate::machine::Model;
use crate::stream;

/// The numbers that a line is drawn from. Steps before the last part have `below` states for the tiers below, the last
/// part has states for the device alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// States stored for the tiers below.
    pub(crate) below: usize,
    /// Steps of the last part.
    pub(crate) last: usize,
    /// States that the last part stores.
    pub(crate) slots: usize,
    /// Slots for the states of gaps, beyond those that are free on the device. Negative ones stay for fetches.
    pub(crate) spill: i32,
    /// The same in the last part.
    pub(crate) last_spill: i32,
    /// Thousandths: the exponent of the positions before the last part, 1000 for even ones, less for denser ones behind.
    pub(crate) tilt: usize,
    /// Thousandths of the states below that go down compressed.
    pub(crate) coded: usize,
}

/// Stored states in ascending order, each with the slots for the gap behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) positions: Vec<usize>,
    pub(crate) inner: Vec<usize>,
    /// The state goes down compressed.
    pub(crate) coded: Vec<bool>,
}

impl Shape {
    /// A line with so many states below, whose last part is `last` steps long.
    pub(crate) fn new(model: &Model, below: usize, last: usize) -> Self {
        Self {
            below,
            last,
            slots: model.slots,
            spill: -1,
            last_spill: 0,
            tilt: 1000,
            coded: 0,
        }
    }

    pub(crate) fn line(&self, model: &Model) -> Line {
        let steps = model.steps;
        let last = if self.below == 0 {
            steps
        } else {
            self.last.clamp(1, steps)
        };
        let head = steps - last;
        let below = self.below.min(head);
        let free = |taken: usize, spill: i32| model.slots as i64 - taken as i64 + i64::from(spill);
        let mut line = Line::default();
        for index in 0..below {
            let share = index as f64 / below as f64;
            let at = (head as f64 * share.powf(self.tilt as f64 / 1000.0)) as usize;
            if line.positions.last() != Some(&at) {
                line.positions.push(at);
                line.inner.push(free(1, self.spill).max(0) as usize);
                line.coded
                    .push((index + 1) * self.coded / 1000 > index * self.coded / 1000);
            }
        }
        let mut at = head;
        for taken in 1..=self.slots.clamp(1, last) {
            line.positions.push(at);
            line.inner
                .push(free(taken, self.last_spill).max(0) as usize);
            line.coded.push(false);
            let left = self.slots - taken;
            if left == 0 || steps - at < 2 {
                break;
            }
            at += binomial::split(steps - at, left + 1);
        }
        line
    }
}

impl Line {
    pub(crate) fn stream(&self, model: &Model) -> Vec<Action> {
        let room = model.all_room();
        stream::line(
            model.steps,
            &self.positions,
            &|index| self.coded[index],
            &|index| self.inner[index].min(room.saturating_sub(index + 1)),
        )
    }
}
