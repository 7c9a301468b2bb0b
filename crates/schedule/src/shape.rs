//! Lines: which states the sweep stores, drawn from a few numbers.

use crate::binomial;
use crate::bound::Bound;
use crate::machine::Model;
use crate::stream::Stored;

/// The numbers that a line is drawn from. Steps before the last part have `below` states for the tiers below, the last
/// part has states for the device alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// States stored for the tiers below.
    pub(crate) below: usize,
    /// Steps of the last part.
    pub(crate) last: usize,
    /// States that the last part stores.
    slots: usize,
    /// Slots for the states of gaps, beyond those that are free on the device. Negative ones stay for fetches.
    pub(crate) spill: i32,
    /// Thousandths of the states below that go down compressed.
    coded: usize,
}

impl Shape {
    /// Revolve with so many slots, those of the device and others.
    pub(crate) fn revolve(model: &Model, slots: usize) -> Self {
        Self {
            below: 0,
            last: model.steps,
            slots,
            spill: 0,
            coded: 0,
        }
    }

    /// The line of the bound's linear programme, with a share of its states below.
    pub(crate) fn of_bound(model: &Model, bound: &Bound, share: f64) -> Self {
        let stored = bound.stored() - bound.device;
        let coded = 1000.0 * bound.coded.iter().sum::<f64>() / stored.max(1.0);
        let below = (stored * share) as usize;
        let left = 1.0 - below as f64 / model.steps as f64;
        Self {
            below,
            last: (model.slots as f64 / left.max(1e-3)) as usize,
            slots: model.slots,
            spill: -1,
            coded: coded.min(1000.0) as usize,
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
        let inner = free(model, 1, self.spill);
        let stored = |index: usize| Stored {
            at: head * index / below,
            inner,
            coded: (index + 1) * self.coded / 1000 > index * self.coded / 1000,
        };
        let mut line: Vec<Stored> = (0..below).map(stored).collect();
        let (mut at, coded) = (head, false);
        let others = self.slots.saturating_sub(model.slots) as i32;
        for taken in 1..=self.slots.clamp(1, last) {
            let inner = free(model, taken, others);
            line.push(Stored { at, inner, coded });
            if self.slots <= taken || steps - at < 2 {
                break;
            }
            at += binomial::split(steps - at, self.slots - taken + 1);
        }
        line
    }
}

/// Slots for a gap, if so many of the device are taken and so many more are lent by the tiers below.
pub(crate) fn free(model: &Model, taken: usize, spill: i32) -> usize {
    (model.slots as i64 - taken as i64 + i64::from(spill)).max(0) as usize
}
