//! The line of one process, for where there can be none for the machine.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::workers::{LOOK, Stop};

/// First come, first served.
#[derive(Debug)]
pub(crate) struct Line {
    queue: Mutex<Queue>,
    moved: Condvar,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<u64>,
    next: u64,
}

/// One line for the process: what it orders, the driver and the kernel, is the process's too.
pub(super) fn line() -> &'static Line {
    static LINE: Line = Line {
        queue: Mutex::new(Queue {
            waiting: VecDeque::new(),
            next: 0,
        }),
        moved: Condvar::new(),
    };
    &LINE
}

impl Line {
    pub(super) fn join(&'static self) -> Place {
        let mut queue = self.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(number);
        Place { line: self, number }
    }
}

/// A place in the line, left by being dropped.
#[derive(Debug)]
pub(super) struct Place {
    line: &'static Line,
    number: u64,
}

impl Place {
    /// Waits until it is the first. Whether it is: not after the deadline, or a stop.
    pub(super) fn wait(&self, deadline: Instant, stop: &Stop) -> bool {
        let mut queue = self.line.queue.lock();
        while queue.waiting.front() != Some(&self.number) {
            if stop.is_set() || Instant::now() >= deadline {
                return false;
            }
            self.line.moved.wait_for(&mut queue, LOOK);
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = self.line.queue.lock();
        queue.waiting.retain(|&number| number != self.number);
        self.line.moved.notify_all();
    }
}
