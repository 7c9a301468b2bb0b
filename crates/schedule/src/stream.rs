//! Streams of actions: the sweep of a line of stored states, and the reversal of the gaps between them.

use crate::action::Action;
use crate::binomial;
use crate::machine::Model;
use std::ops::Range;

/// A state that the sweep stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) at: usize,
    /// Slots for the gap after the state.
    pub(crate) inner: usize,
    /// True if the state goes down compressed.
    pub(crate) coded: bool,
}

/// Returns the stream whose sweep stores the states of a line, with its reversal.
pub(crate) fn stream(line: &[Stored], model: &Model) -> Vec<Action> {
    let mut writer = Writer::new(Vec::new(), 0, model.steps);
    for &Stored { at, coded, .. } in line {
        writer.forward(at);
        writer.save(coded);
    }
    writer.gaps(line, model)
}

/// The next decision about a gap, with the place of the gap's states.
pub(crate) enum Choice<P> {
    /// Each step is computed from the gap's first state.
    Repeat,
    /// The gap gets another place.
    Move(P),
    /// The state this number of steps after the first one is stored. The steps before it and after it get these places.
    Split(usize, P, P),
}

pub(crate) struct Writer {
    actions: Vec<Action>,
    /// The step whose state is in the working buffer.
    at: Option<usize>,
    steps: usize,
    is_swept: bool,
}

impl Writer {
    /// Makes the writer of a stream that begins with these actions, which lead to the step `at`.
    pub(crate) fn new(actions: Vec<Action>, at: usize, steps: usize) -> Self {
        Self {
            actions,
            at: Some(at),
            steps,
            is_swept: false,
        }
    }

    fn forward(&mut self, to: usize) {
        if let Some(from) = self.at.filter(|&from| from < to) {
            self.actions.push(Action::Forward { from, to });
            self.at = Some(to);
        }
    }

    fn save(&mut self, coded: bool) {
        let save = |step| Action::Save { step, coded };
        self.actions.extend(self.at.map(save));
    }

    fn end_sweep(&mut self) {
        self.forward(self.steps);
        self.actions.push(Action::EndForward);
        (self.at, self.is_swept) = (None, true);
    }

    fn reverse(&mut self, step: usize) {
        self.actions.push(Action::Reverse { step });
        self.at = None;
    }

    /// Returns the whole stream of a sweep that stored a line. The stream ends with the reversal by binomial checkpointing.
    pub(crate) fn gaps(mut self, line: &[Stored], model: &Model) -> Vec<Action> {
        self.end_sweep();
        let room = model.all_room();
        let mut end = self.steps;
        for (index, &Stored { at, inner, .. }) in line.iter().enumerate().rev() {
            let inner = inner.min(room.saturating_sub(index + 1));
            self.gap(at..end, inner, |&inner, steps| match inner {
                1.. if steps > 1 => {
                    Choice::Split(binomial::split(steps, inner + 1), inner, inner - 1)
                }
                _ => Choice::Repeat,
            });
            end = at;
        }
        self.actions
    }

    /// Returns the whole stream of a computation that is one gap.
    pub(crate) fn all<P>(
        mut self,
        place: P,
        choose: impl Fn(&P, usize) -> Choice<P>,
    ) -> Vec<Action> {
        self.save(false);
        self.gap(0..self.steps, place, choose);
        self.actions
    }

    /// Reverses the steps of a gap, whose first state is stored, and forgets that state. If the sweep has not ended, the gap ends it.
    fn gap<P>(&mut self, steps: Range<usize>, place: P, choose: impl Fn(&P, usize) -> Choice<P>) {
        let mut open = vec![(steps, place)];
        while let Some((Range { start, end }, place)) = open.pop() {
            match choose(&place, end - start) {
                Choice::Repeat => self.repeat(start..end),
                Choice::Move(place) => open.push((start..end, place)),
                Choice::Split(steps, before, behind) => {
                    let middle = start + steps;
                    self.stand(start);
                    self.forward(middle);
                    open.push((start..middle, before));
                    if end - middle == 1 && self.is_swept {
                        self.reverse(middle);
                    } else {
                        self.save(false);
                        open.push((middle..end, behind));
                    }
                }
            }
        }
    }

    /// Restarts from a stored state, unless the working buffer has that state.
    fn stand(&mut self, step: usize) {
        if self.at != Some(step) {
            self.actions.push(Action::Restart { step });
            self.at = Some(step);
        }
    }

    /// Reverses steps from their first state alone, and forgets that state.
    fn repeat(&mut self, steps: Range<usize>) {
        if !self.is_swept {
            self.end_sweep();
        }
        let start = steps.start;
        for step in steps.rev() {
            self.stand(start);
            self.forward(step);
            if step == start {
                self.actions.push(Action::Forget { step });
            }
            self.reverse(step);
        }
    }
}
