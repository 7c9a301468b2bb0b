//! Streams of actions: the sweep of a line of stored states, and the reversal of the gaps between them.

use crate::action::Action;
use crate::binomial;
use crate::machine::Model;
use std::ops::Range;

/// A state that the sweep stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) at: usize,
    /// Slots for the gap behind it.
    pub(crate) inner: usize,
    /// The state goes down compressed.
    pub(crate) coded: bool,
}

/// The stream that stores the states of a line, and reverses it.
pub(crate) fn stream(line: &[Stored], model: &Model) -> Vec<Action> {
    let mut writer = Writer::new(Vec::new(), 0, model.steps);
    for &Stored { at, coded, .. } in line {
        writer.forward(at);
        writer.save(coded);
    }
    writer.gaps(line, model)
}

/// The next decision about a gap, whose states are stored in some place.
pub(crate) enum Choice<P> {
    /// Each step is reached from the first state.
    Repeat,
    /// The gap has another place.
    Move(P),
    /// The state that is so many steps behind the first one is stored. The steps before it and behind it have these places.
    Split(usize, P, P),
}

pub(crate) struct Writer {
    actions: Vec<Action>,
    /// The step whose state the working buffer has.
    at: Option<usize>,
    steps: usize,
    is_swept: bool,
}

impl Writer {
    /// The writer of a stream that begins with these actions, which lead to the step `at`.
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

    /// The whole stream of a sweep that stored a line: the reversal by binomial checkpointing is its end.
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

    /// The whole stream of a computation that is one gap.
    pub(crate) fn all<P>(
        mut self,
        place: P,
        choose: impl Fn(&P, usize) -> Choice<P>,
    ) -> Vec<Action> {
        self.save(false);
        self.gap(0..self.steps, place, choose);
        self.actions
    }

    /// Reverses the steps of a gap, whose first state is stored, and forgets that. A gap in the sweep ends with it.
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

    /// Brings a stored state to the working buffer, unless it is there.
    fn stand(&mut self, step: usize) {
        if self.at != Some(step) {
            self.actions.push(Action::Restart { step });
            self.at = Some(step);
        }
    }

    /// Reverses steps from their first state alone, and forgets it.
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
