//! Who goes first: the application's copies before the arena's own work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Lets an arena's background work wait while somebody copies.
///
/// Pinning a piece of host memory makes every other call into the driver wait, and the driver's lock
/// is not fair. Whoever is about to make a copy that somebody waits for holds a [`Pass`] meanwhile;
/// the arena pins its next piece when nobody holds one. Entering never waits, so the gate can be
/// part of no deadlock; and the arena waits only for so long, so it cannot starve.
///
/// ```
/// # use tierflow_tier_alloc::Gate;
/// let gate = Gate::default();
/// let pass = gate.enter();
/// // ... a blocking copy ...
/// drop(pass);
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicUsize,
    /// Whether somebody waits for the gate to be empty. Spares leavers the lock.
    watched: AtomicBool,
    lock: Mutex<()>,
    empty: Condvar,
}

/// The right to go first, until it is dropped.
#[derive(Debug)]
#[must_use = "the pass ends when it is dropped"]
pub struct Pass<'gate> {
    gate: &'gate Gate,
}

impl Gate {
    /// Never waits; costs a few nanoseconds.
    pub fn enter(&self) -> Pass<'_> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        Pass { gate: self }
    }

    /// Waits until nobody is inside, for `patience` at most. Whether nobody is.
    pub(crate) fn wait_empty(&self, patience: Duration) -> bool {
        if self.inside.load(Ordering::SeqCst) == 0 {
            return true;
        }
        let deadline = Instant::now() + patience;
        let mut guard = self.lock.lock();
        // Sequentially consistent with the leaver's two accesses: either it sees `watched` and
        // takes the lock, or we see that it has left.
        self.watched.store(true, Ordering::SeqCst);
        let mut late = false;
        while self.inside.load(Ordering::SeqCst) != 0 && !late {
            late = self.empty.wait_until(&mut guard, deadline).timed_out();
        }
        self.watched.store(false, Ordering::SeqCst);
        self.inside.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let last = self.gate.inside.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.gate.watched.load(Ordering::SeqCst) {
            let _guard = self.gate.lock.lock();
            self.gate.empty.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than a test takes, so that a lost wake-up fails it.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_empty_gate_lets_through_and_a_full_one_does_not() {
        let gate = Gate::default();
        assert!(gate.wait_empty(Duration::ZERO));
        let (one, two) = (gate.enter(), gate.enter());
        assert!(!gate.wait_empty(Duration::from_millis(1)));
        drop(one);
        assert!(!gate.wait_empty(Duration::from_millis(1)));
        drop(two);
        assert!(gate.wait_empty(Duration::ZERO));
    }

    #[test]
    fn the_last_to_leave_wakes_the_waiter() {
        for _ in 0..2000 {
            let gate = Gate::default();
            let passes = [gate.enter(), gate.enter()];
            std::thread::scope(|scope| {
                for pass in passes {
                    scope.spawn(move || drop(pass));
                }
                let start = Instant::now();
                assert!(gate.wait_empty(LONG));
                assert!(
                    start.elapsed() < LONG,
                    "woken by the clock, not by the leaver"
                );
            });
        }
    }
}
