//! Lets threads run in an order that was fixed before.

use std::collections::BTreeSet;
use tierflow_sync::model::Monitor;

/// Lets threads run in the order of their numbers, from 0. Each number is used or given up exactly once.
#[derive(Debug, Default)]
pub(super) struct Sequencer {
    state: Monitor<SequencerState>,
}

#[derive(Debug, Default)]
struct SequencerState {
    next: u64,
    /// Numbers after `next` that were used or given up.
    left: BTreeSet<u64>,
    is_closed: bool,
}

/// The turn of one number. Dropping it lets the next number come.
#[derive(Debug)]
pub(super) struct SequencerTurn<'s> {
    sequencer: &'s Sequencer,
    number: u64,
}

impl Sequencer {
    pub(super) fn turn(&self, number: u64) -> SequencerTurn<'_> {
        SequencerTurn {
            sequencer: self,
            number,
        }
    }

    /// Ends all waits. Only the number whose turn it is still gets it.
    pub(super) fn close(&self) {
        self.state.change(|state| state.is_closed = true);
    }
}

impl SequencerTurn<'_> {
    /// Waits for the turn. Returns false if the sequencer is closed before.
    pub(super) fn comes(&self) -> bool {
        self.sequencer.state.wait(|state| {
            let is_next = state.next == self.number;
            (is_next || state.is_closed).then_some(is_next)
        })
    }
}

impl Drop for SequencerTurn<'_> {
    fn drop(&mut self) {
        self.sequencer.state.change(|state| {
            let SequencerState { next, left, .. } = state;
            left.insert(self.number);
            while left.remove(next) {
                *next += 1;
            }
        });
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_whoever_leaves() {
        let line = Sequencer::default();
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|number| line.turn(number));
        assert!(first.comes());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let came = (second.comes(), line.state.lock().next);
                drop(second);
                came
            });
            drop(third);
            assert_eq!(line.state.lock().next, 0);
            drop(first);
            assert!(waits.join().is_ok_and(|came| came == (true, 1)));
        });
        assert!(fourth.comes());
    }

    #[test]
    fn who_waits_for_a_turn_that_does_not_come_hears_so() {
        let line = Sequencer::default();
        let first = line.turn(0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| line.turn(1).comes());
            line.close();
            assert!(waits.join().is_ok_and(|came| !came));
        });
        assert!(first.comes());
    }
}
