//! A channel for one value. The receiver sleeps without spinning: it waits as long as a copy or a disk takes, and with many waiting
//! threads, spinning ones take processor time from those that were woken.

use crate::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug)]
enum AnswerState<T> {
    Waiting,
    Sent(T),
    /// The value was received, or will never be sent.
    Over,
}

#[derive(Debug)]
struct Slot<T> {
    state: Mutex<AnswerState<T>>,
    changed: Condvar,
}

/// The sending end. Dropping it without a value tells the receiver that none will come.
#[derive(Debug)]
pub struct ReplySender<T>(Arc<Slot<T>>);

/// The receiving end.
#[derive(Debug)]
pub struct ReplyReceiver<T>(Arc<Slot<T>>);

/// Makes a channel for one value.
pub fn answer<T>() -> (ReplySender<T>, ReplyReceiver<T>) {
    let slot = Arc::new(Slot {
        state: Mutex::new(AnswerState::Waiting),
        changed: Condvar::new(),
    });
    (ReplySender(Arc::clone(&slot)), ReplyReceiver(slot))
}

impl<T> ReplySender<T> {
    /// Sends the value, and wakes the receiver.
    pub fn send(self, value: T) {
        *self.0.state.lock() = AnswerState::Sent(value);
    }
}

impl<T> Drop for ReplySender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, AnswerState::Waiting) {
            *state = AnswerState::Over;
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

impl<T> ReplyReceiver<T> {
    /// Returns true if `recv` would not wait.
    pub fn is_there(&self) -> bool {
        !matches!(*self.0.state.lock(), AnswerState::Waiting)
    }

    /// Waits for the value and returns it; `None` if it will never be sent, or not before the deadline.
    pub fn recv(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = self.0.state.lock();
        while matches!(*state, AnswerState::Waiting) {
            match deadline {
                None => self.0.changed.wait(&mut state),
                Some(deadline) if self.0.changed.wait_until(&mut state, deadline).timed_out() => {
                    break;
                }
                Some(_) => {}
            }
        }
        match std::mem::replace(&mut *state, AnswerState::Waiting) {
            AnswerState::Sent(value) => {
                *state = AnswerState::Over;
                Some(value)
            }
            before => {
                *state = before;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_value_comes_once_and_whoever_waits_hears_that_none_will() {
        let (sender, receiver) = answer();
        let now = Instant::now();
        assert_eq!(receiver.recv(Some(now + Duration::from_millis(1))), None);
        let thread = std::thread::spawn(move || (receiver.recv(None), receiver.recv(None)));
        sender.send(7);
        assert_eq!(thread.join().unwrap(), (Some(7), None));
        let (sender, receiver) = answer::<u8>();
        let thread = std::thread::spawn(move || receiver.recv(None));
        drop(sender);
        assert_eq!(thread.join().unwrap(), None);
    }
}
