//! Streams of actions: saves and restarts of a sweep, and the reversal of the gaps between its stored states.

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

    pub(crate) fn save(&mut self, step: usize, coded: bool) {
        self.actions.push(Action::Save { step, coded });
    }

    pub(crate) fn restart(&mut self, step: usize) {
        self.actions.push(Action::Restart { step });
    }

    /// Reverses a gap by binomial checkpointing and forgets the state of its start.
    pub(crate) fn gap(&mut self, gap: Gap) {
        let mut open = vec![gap];
        let mut stands = false;
        while let Some(Gap { start, end, inner }) = open.pop() {
            if !std::mem::take(&mut stands) {
                self.restart(start);
            }
            if end - start == 1 || inner == 0 {
                self.without_slots(start, end);
                continue;
            }
            let middle = start + binomial::split(end - start, inner + 1);
            self.forward(start, middle);
            let (before, behind) = (
                Gap {
                    start,
                    end: middle,
                    inner,
                },
                Gap {
                    start: middle,
                    end,
                    inner: inner - 1,
                },
            );
            open.push(before);
            if end - middle == 1 {
                self.actions.push(Action::Reverse { step: middle });
            } else {
                self.save(middle, false);
                open.push(behind);
                stands = true;
            }
        }
    }

    /// Reverses steps from their first state alone, which the working buffer has, and forgets it.
    pub(crate) fn without_slots(&mut self, start: usize, end: usize) {
        for step in (start + 1..end).rev() {
            self.forward(start, step);
            self.actions.push(Action::Reverse { step });
            self.restart(start);
        }
        self.actions.push(Action::Forget { step: start });
        self.actions.push(Action::Reverse { step: start });
    }
}
