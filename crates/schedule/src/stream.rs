//! Streams of actions: a sweep that stores some states, and the reversal of the gaps between them.

use crate::action::Action;
use crate::binomial;

/// Steps from `start`, whose state is stored, to `end`, and the slots for states between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) inner: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    pub(crate) actions: Vec<Action>,
}

impl Writer {
    pub(crate) fn forward(&mut self, from: usize, to: usize) {
        if to > from {
            self.actions.push(Action::Forward { from, to });
        }
    }

    pub(crate) fn save(&mut self, step: usize) {
        self.actions.push(Action::Save { step, coded: false });
    }

    pub(crate) fn restart(&mut self, step: usize) {
        self.actions.push(Action::Restart { step });
    }

    /// Reverses the step whose stored state was brought back for the last time.
    pub(crate) fn reverse_last(&mut self, step: usize) {
        self.actions.push(Action::Forget { step });
        self.actions.push(Action::Reverse { step });
    }

    /// Reverses a gap and forgets the state of its start.
    pub(crate) fn gap(&mut self, gap: Gap) {
        let mut open = vec![gap];
        let mut stands = false;
        while let Some(Gap { start, end, inner }) = open.pop() {
            if !std::mem::take(&mut stands) {
                self.restart(start);
            }
            let steps = end - start;
            if steps == 1 {
                self.reverse_last(start);
            } else if inner == 0 {
                self.without_slots(start, end);
            } else {
                let middle = start + binomial::split(steps, inner + 1);
                self.forward(start, middle);
                open.push(Gap {
                    start,
                    end: middle,
                    inner,
                });
                if end - middle == 1 {
                    self.actions.push(Action::Reverse { step: middle });
                } else {
                    self.save(middle);
                    open.push(Gap {
                        start: middle,
                        end,
                        inner: inner - 1,
                    });
                    stands = true;
                }
            }
        }
    }

    /// Reverses steps from their first state alone, which the working buffer has.
    pub(crate) fn without_slots(&mut self, start: usize, end: usize) {
        for step in (start + 1..end).rev() {
            self.forward(start, step);
            self.actions.push(Action::Reverse { step });
            self.restart(start);
        }
        self.reverse_last(start);
    }
}

/// The stream that stores `positions` in the sweep, which begin with 0 and ascend. `coded` tells of the position of an index
/// whether it goes down compressed, `inner` the slots for the states between it and the next one.
pub(crate) fn line(
    steps: usize,
    positions: &[usize],
    coded: &dyn Fn(usize) -> bool,
    inner: &dyn Fn(usize) -> usize,
) -> Vec<Action> {
    let mut writer = Writer {
        actions: Vec::with_capacity(4 * steps),
    };
    let mut at = 0;
    for (index, &position) in positions.iter().enumerate() {
        writer.forward(at, position);
        writer.actions.push(Action::Save {
            step: position,
            coded: coded(index),
        });
        at = position;
    }
    writer.forward(at, steps);
    writer.actions.push(Action::EndForward);
    let mut end = steps;
    for (index, &start) in positions.iter().enumerate().rev() {
        writer.gap(Gap {
            start,
            end,
            inner: inner(index),
        });
        end = start;
    }
    writer.actions
}
