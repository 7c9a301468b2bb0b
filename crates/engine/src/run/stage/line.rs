//! What is done one after the other, in an order that was settled before.

use crate::run::sync::{Mutex, sleep};
use std::collections::BTreeSet;
use std::time::Duration;

/// Pauses between looks at those that come before.
const PAUSES: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];

/// Those that have not had their turn yet: turns are numbered from 0 on, each is one's, and who has one takes it or leaves.
#[derive(Debug, Default)]
pub(super) struct Line {
    standing: Mutex<Standing>,
}

#[derive(Debug, Default)]
struct Standing {
    next: u64,
    /// Those behind the next that left.
    left: BTreeSet<u64>,
}

/// A place in a line, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'l> {
    line: &'l Line,
    number: u64,
}

impl Line {
    pub(super) fn turn(&self, number: u64) -> Turn<'_> {
        Turn { line: self, number }
    }
}

impl Turn<'_> {
    /// Waits for it. False if `is_over` says before that it will not come.
    pub(super) fn comes(&self, is_over: &dyn Fn() -> bool) -> bool {
        wait_until(|| self.line.standing.lock().next == self.number, is_over)
    }
}

/// Waits until something is so. False if `is_over` says before that it will not be.
pub(super) fn wait_until(mut is_so: impl FnMut() -> bool, is_over: &dyn Fn() -> bool) -> bool {
    let [mut pause, longest] = PAUSES;
    while !is_so() {
        if is_over() {
            return false;
        }
        sleep(pause);
        pause = (pause * 2).min(longest);
    }
    true
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut standing = self.line.standing.lock();
        let Standing { next, left } = &mut *standing;
        left.insert(self.number);
        while left.remove(next) {
            *next += 1;
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_whoever_leaves() {
        let line = Line::default();
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|number| line.turn(number));
        assert!(first.comes(&|| true));
        assert!(!second.comes(&|| true));
        drop(third);
        assert!(!fourth.comes(&|| true));
        drop(first);
        assert!(second.comes(&|| true));
        drop(second);
        assert!(fourth.comes(&|| true));
    }

    #[test]
    fn who_waits_goes_on_when_its_turn_comes() {
        let line = Line::default();
        let first = line.turn(0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| line.turn(1).comes(&|| false));
            drop(first);
            assert!(waits.join().is_ok_and(|came| came));
        });
    }
}
