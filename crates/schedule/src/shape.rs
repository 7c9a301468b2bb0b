//! Lines: which states the sweep stores, drawn from a few numbers.

use crate::action::Action;
use crate::binomial;
use crate::machine::Model;
use crate::stream::{Gap, Writer};

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

/// A state that the sweep stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) at: usize,
    /// Slots for the gap behind it.
    pub(crate) inner: usize,
    /// The state goes down compressed.
    pub(crate) coded: bool,
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

    /// The stored states in ascending order, the first step's among them.
    pub(crate) fn line(&self, model: &Model) -> Vec<Stored> {
        let steps = model.steps;
        let last = match self.below {
            0 => steps,
            _ => self.last.clamp(1, steps),
        };
        let head = steps - last;
        let below = self.below.min(head);
        let free = |taken: usize, spill: i32| {
            (model.slots as i64 - taken as i64 + i64::from(spill)).max(0) as usize
        };
        let mut line: Vec<Stored> = Vec::new();
        for index in 0..below {
            let share = index as f64 / below as f64;
            let at = (head as f64 * share.powf(self.tilt as f64 / 1000.0)) as usize;
            if line.last().is_none_or(|before| before.at != at) {
                let inner = free(1, self.spill);
                let coded = (index + 1) * self.coded / 1000 > index * self.coded / 1000;
                line.push(Stored { at, inner, coded });
            }
        }
        let (mut at, coded) = (head, false);
        for taken in 1..=self.slots.clamp(1, last) {
            let inner = free(taken, self.last_spill);
            line.push(Stored { at, inner, coded });
            if self.slots <= taken || steps - at < 2 {
                break;
            }
            at += binomial::split(steps - at, self.slots - taken + 1);
        }
        line
    }
}

/// The stream that stores the states of a line, and reverses it.
pub(crate) fn stream(line: &[Stored], model: &Model) -> Vec<Action> {
    let room = model.all_room();
    let mut writer = Writer {
        actions: Vec::with_capacity(4 * model.steps),
    };
    let mut before = 0;
    for stored in line {
        writer.forward(before, stored.at);
        writer.save(stored.at, stored.coded);
        before = stored.at;
    }
    writer.forward(before, model.steps);
    writer.actions.push(Action::EndForward);
    let mut end = model.steps;
    for (index, stored) in line.iter().enumerate().rev() {
        let inner = stored.inner.min(room.saturating_sub(index + 1));
        let start = stored.at;
        writer.gap(Gap { start, end, inner });
        end = start;
    }
    writer.actions
}
