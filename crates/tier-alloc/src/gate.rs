//! Priority: the application's copies go before the arena's own work.

use std::time::{Duration, Instant};

use crate::rhythm::Rhythm;
use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, fence};

/// A gate that makes an arena's background work wait while the application copies.
///
/// Pinning a piece of host memory makes every other call into the driver wait, and the driver's lock is not fair. A thread
/// holds a [`Pass`] while it makes a copy that its caller waits for, and the arena pins its next piece when no pass is held.
/// Entering never waits, so the gate can be part of no deadlock. The arena waits for a limited time, so it cannot starve.
///
/// Flushes and prefetches run in the background, and have passes of another kind: pinning does not wait for them, but a
/// strategy that touches only in idle time does.
///
/// ```
/// # use tierflow_tier_alloc::Gate;
/// let gate = Gate::default();
/// let pass = gate.enter();
/// // ... a blocking copy ...
/// drop(pass);
/// let pass = gate.enter_transfer();
/// // ... a flush or a prefetch ...
/// drop(pass);
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    callers: Occupancy,
    transfers: Occupancy,
    /// The times of the callers' copies, to predict the next one.
    rhythm: Rhythm,
}

/// The right to go before the arena's work, until the pass is dropped.
#[derive(Debug)]
#[must_use = "the pass ends when it is dropped"]
pub struct Pass<'gate> {
    occupancy: &'gate Occupancy,
}

impl Gate {
    /// Returns a pass for a copy that the application waits for. Never waits; costs some tens of nanoseconds.
    pub fn enter(&self) -> Pass<'_> {
        self.rhythm.beat(Instant::now());
        self.callers.enter()
    }

    /// Returns a pass to hold while a copy between tiers is handed to the driver. Pinning waits meanwhile, as pinning a
    /// piece first would delay the copy by the time that pinning takes. Never waits; costs a few nanoseconds.
    pub(crate) fn enter_submission(&self) -> Pass<'_> {
        self.callers.enter()
    }

    /// Returns a pass for a copy between tiers. Never waits; costs a few nanoseconds.
    pub fn enter_transfer(&self) -> Pass<'_> {
        self.transfers.enter()
    }

    /// Waits until the application copies nothing, for `timeout` at most. Returns true if it copies nothing.
    pub(crate) fn wait_empty(&self, timeout: Duration) -> bool {
        self.callers.wait_empty(timeout)
    }

    /// Waits for an interval in which work that blocks all copies delays none: the application copies nothing, and is not
    /// expected to begin a copy for `least`. Returns the expected length of the interval, at most `wanted`. Returns
    /// `wanted` after `timeout`, so that the work does not starve.
    pub(crate) fn wait_quiet(
        &self,
        least: Duration,
        wanted: Duration,
        timeout: Duration,
    ) -> Duration {
        /// No work begins in this time before the expected time of a copy.
        const BEFORE: Duration = Duration::from_micros(100);
        /// A copy that does not come is awaited for this time after its expected time.
        const AFTER: Duration = Duration::from_micros(300);
        /// Time between two checks whether the copy has come.
        const POLL_INTERVAL: Duration = Duration::from_micros(30);
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.wait_empty(left) || left.is_zero() {
                return wanted;
            }
            let Some(next) = self.rhythm.expected() else {
                return wanted;
            };
            let margin = next.tolerance + BEFORE;
            if least + margin > next.interval / 2 {
                // Copies come so often that no interval is long enough.
                return wanted;
            }
            let now = Instant::now();
            let late = next.at + next.tolerance + AFTER;
            if now > late {
                return wanted;
            }
            let quiet = next.at.saturating_duration_since(now + margin);
            if quiet > least {
                return quiet.min(wanted);
            }
            let until = late.min(deadline);
            while Instant::now() < until && self.rhythm.count() == next.count {
                std::thread::sleep(POLL_INTERVAL);
            }
            if Instant::now() >= until {
                return wanted;
            }
        }
    }

    /// Returns true if the application copies, but in no rhythm from which its next copy can be predicted.
    pub(crate) fn is_unforeseen(&self) -> bool {
        /// An application that copied longer ago than this copies so rarely that pinning hardly delays it.
        const RECENT: Duration = Duration::from_secs(1);
        let lately = self
            .rhythm
            .last()
            .is_some_and(|last| last.elapsed() < RECENT);
        lately && self.rhythm.expected().is_none()
    }

    #[cfg(any(feature = "baselines", loom))]
    /// Waits until nothing moves between tiers, for `timeout` at most. Returns true if nothing moves.
    pub(crate) fn wait_no_transfer(&self, timeout: Duration) -> bool {
        self.transfers.wait_empty(timeout)
    }

    #[cfg(feature = "baselines")]
    /// Returns true if something moves between tiers now.
    pub(crate) fn is_transferring(&self) -> bool {
        self.transfers.is_occupied()
    }
}

/// Counts the passes held, and wakes the threads that wait for none to be held.
#[derive(Debug, Default)]
struct Occupancy {
    inside: AtomicUsize,
    /// Number of threads that wait until no pass is held. While the number is 0, dropping a pass takes no lock.
    watchers: AtomicUsize,
    lock: Mutex<()>,
    empty: Condvar,
}

impl Occupancy {
    fn enter(&self) -> Pass<'_> {
        self.inside.fetch_add(1, Ordering::Relaxed);
        Pass { occupancy: self }
    }

    /// Returns true if a pass is held. The load acquires: the caller sees the writes made under the dropped passes.
    fn is_occupied(&self) -> bool {
        self.inside.load(Ordering::Acquire) != 0
    }

    fn wait_empty(&self, timeout: Duration) -> bool {
        if !self.is_occupied() {
            return true;
        }
        let deadline = Instant::now() + timeout;
        let mut guard = self.lock.lock();
        self.watchers.fetch_add(1, Ordering::Relaxed);
        // The fence pairs with that of `Pass::drop`: either the drop sees the watcher and takes the lock, or this thread
        // sees that the pass is gone.
        fence(Ordering::SeqCst);
        let mut late = false;
        while self.is_occupied() && !late {
            late = self.empty.wait_until(&mut guard, deadline).timed_out();
        }
        self.watchers.fetch_sub(1, Ordering::Relaxed);
        !self.is_occupied()
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let last = self.occupancy.inside.fetch_sub(1, Ordering::Release) == 1;
        if !last {
            return;
        }
        // Pairs with the fence of `wait_empty`.
        fence(Ordering::SeqCst);
        if self.occupancy.watchers.load(Ordering::Relaxed) != 0 {
            let _guard = self.occupancy.lock.lock();
            self.occupancy.empty.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
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
    fn transfers_and_callers_do_not_stand_in_for_each_other() {
        let gate = Gate::default();
        let transfer = gate.enter_transfer();
        assert!(gate.wait_empty(Duration::ZERO), "pinning waits for a flush");
        assert!(!gate.wait_no_transfer(Duration::from_millis(1)));
        assert!(gate.is_transferring());
        drop(transfer);
        let _caller = gate.enter();
        assert!(gate.wait_no_transfer(Duration::ZERO) && !gate.is_transferring());
    }

    #[test]
    fn copies_without_a_rhythm_are_unforeseen() {
        let gate = Gate::default();
        assert!(!gate.is_unforeseen(), "nothing is copied");
        // The beats lie in the future, so that the test does not depend on the time it takes.
        let first = Instant::now() + LONG;
        gate.rhythm.beat(first);
        assert!(gate.is_unforeseen());
        for beat in 1..4 {
            gate.rhythm.beat(first + beat * Duration::from_millis(20));
        }
        assert!(!gate.is_unforeseen(), "once every 20 ms");
    }

    #[test]
    fn work_waits_for_a_copy_that_is_expected_and_not_for_ever() {
        let gate = Gate::default();
        let now = Instant::now();
        for ago in [75, 55, 35, 15] {
            gate.rhythm.beat(now - Duration::from_millis(ago));
        }
        let last = gate.rhythm.expected().expect("a rhythm").at;
        // The next copy is due before the work would be done. The copy does not come, so the work begins after its time.
        let ms = Duration::from_millis;
        assert_eq!(gate.wait_quiet(ms(6), ms(7), LONG), ms(7));
        assert!(Instant::now() >= last);
        let before = Instant::now();
        assert_eq!(gate.wait_quiet(ms(1), ms(2), LONG), ms(2));
        assert!(before.elapsed() < LONG);
    }

    #[test]
    fn a_quiet_interval_lasts_until_the_next_copy() {
        let gate = Gate::default();
        let now = Instant::now();
        // The next copy is due in 59 seconds.
        for ago in 0..4 {
            let ago = Duration::from_secs(60 * (3 - ago) + 1);
            gate.rhythm
                .beat(now.checked_sub(ago).expect("the clock runs"));
        }
        let quiet = gate.wait_quiet(LONG / 60, LONG * 100, LONG);
        assert!(quiet > LONG / 60 && quiet < LONG, "{quiet:?}");
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
