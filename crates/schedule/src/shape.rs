//! Lines: the states that the sweep stores, computed from a few numbers.

use crate::binomial;
use crate::bound::Bound;
use crate::machine::Model;
use crate::stream::Stored;

/// The numbers that a line is computed from. The steps before the last part store `below` states for the tiers below; the last
/// part stores states for the device alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// States stored for the tiers below.
    pub(crate) below: usize,
    /// Steps of the last part.
    pub(crate) last: usize,
    /// States that the last part stores. Tiers below lend the slots that the device lacks.
    pub(crate) slots: usize,
    /// Slots for the states of gaps, beyond the free slots of the device. A negative number keeps slots for fetches.
    pub(crate) spill: i32,
    /// Thousandths of the states below that go down compressed.
    pub(crate) coded: usize,
}

impl Shape {
    /// Makes the shape of a line with `below` states below, whose last part has `last` steps.
    pub(crate) fn new(model: &Model, below: usize, last: usize) -> Self {
        Self {
            below,
            last,
            slots: model.slots,
            spill: -1,
            coded: 0,
        }
    }

    /// Makes the shape that the bound's linear programme suggests, with a share of the programme's states below.
    pub(crate) fn of_bound(model: &Model, bound: &Bound, share: f64) -> Self {
        let below = ((bound.stored() - bound.device) * share) as usize;
        let left = 1.0 - below as f64 / model.steps as f64;
        Self::new(model, below, (model.slots as f64 / left.max(1e-3)) as usize)
    }

    /// Returns the stored states in ascending order, with the state of the first step.
    pub(crate) fn line(&self, model: &Model) -> Vec<Stored> {
        let steps = model.steps;
        let last = match self.below {
            0 => steps,
            _ => self.last.clamp(1, steps),
        };
        let head = steps - last;
        let below = self.below.min(head);
        let mut line: Vec<Stored> = Vec::new();
        let inner = free(model, 1, self.spill);
        for index in 0..below {
            let at = head * index / below;
            let coded = (index + 1) * self.coded / 1000 > index * self.coded / 1000;
            line.push(Stored { at, inner, coded });
        }
        let (mut at, coded) = (head, false);
        let lent = self.slots.saturating_sub(model.slots) as i32;
        for taken in 1..=self.slots.clamp(1, last) {
            let inner = free(model, taken, lent);
            line.push(Stored { at, inner, coded });
            if self.slots <= taken || steps - at < 2 {
                break;
            }
            at += binomial::split(steps - at, self.slots - taken + 1);
        }
        line
    }
}

/// Returns the slots for a gap if `taken` slots of the device are taken and the tiers below lend `spill` more.
pub(crate) fn free(model: &Model, taken: usize, spill: i32) -> usize {
    (model.slots as i64 - taken as i64 + i64::from(spill)).max(0) as usize
}
