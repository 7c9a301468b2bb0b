//! Runs the watermark and the gate through every order of their steps:
//! `RUSTFLAGS="--cfg loom" cargo test -p tierflow-tier-alloc --release --test loom`.
//!
//! Loom's time limits never pass, so a lost wake-up is a deadlock here, which loom reports.

#![cfg(loom)]
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/rhythm.rs"]
mod rhythm;
#[path = "../src/watermark.rs"]
mod watermark;

/// The types of `src/sync.rs`, made of loom's.
mod sync {
    use std::time::Instant;

    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering, fence};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> std::ops::Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_deref().unwrap()
        }
    }

    impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_deref_mut().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    pub(crate) struct Never;

    impl Never {
        pub(crate) fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(held).unwrap());
        }

        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> Never {
            self.wait(guard);
            Never
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use std::time::Duration;

use gate::Gate;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use watermark::{End, Watermark};

/// Runs `check` in every order with at most three switches away from a thread that could continue, or `LOOM_MAX_PREEMPTIONS`. Bugs need
/// few switches, and the number of orders explodes.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(check);
}

/// Bytes behind a watermark. Loom reports every access that may happen before another thread's.
struct Arena {
    usable: Watermark,
    bytes: [UnsafeCell<u8>; 2],
}

#[test]
fn a_reader_of_the_level_sees_the_writes_before_it_rose() {
    model(|| {
        let arena = Arc::new(Arena {
            usable: Watermark::default(),
            bytes: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let grower = Arc::clone(&arena);
        let growing = thread::spawn(move || {
            for (at, byte) in grower.bytes.iter().enumerate() {
                // Loom fails the test if another thread may be here. The closure needs to write nothing.
                byte.with_mut(|_| {});
                grower.usable.raise(at + 1);
            }
            grower.usable.finish(End::Complete);
        });
        let seen = arena.usable.level();
        arena.bytes[..seen]
            .iter()
            .for_each(|byte| byte.with(|_| {}));
        arena.usable.wait(2).unwrap();
        arena.bytes.iter().for_each(|byte| byte.with(|_| {}));
        assert_eq!(arena.usable.wait(3), Err(End::Complete));
        growing.join().unwrap();
    });
}

#[test]
fn no_thread_waits_for_a_level_that_is_not_raised_any_more() {
    model(|| {
        let level = Arc::new(Watermark::default());
        let raiser = Arc::clone(&level);
        let raising = thread::spawn(move || {
            let _raising = raiser.raising();
            raiser.raise(1);
        });
        assert_eq!(level.wait(2), Err(End::Stopped));
        assert_eq!(level.wait_end(), End::Stopped);
        assert_eq!(level.level(), 1);
        raising.join().unwrap();
    });
}

#[test]
fn the_last_to_leave_wakes_the_waiting_thread() {
    model(|| {
        let gate = Arc::new(Gate::default());
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || drop(gate.enter()))
            })
            .collect();
        // A lost wake-up would be a deadlock here.
        gate.wait_empty(Duration::ZERO);
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(gate.wait_empty(Duration::ZERO));
    });
}

#[test]
fn two_may_wait_for_one_gate() {
    model(|| {
        let gate = Arc::new(Gate::default());
        let pass = gate.enter_transfer();
        let waiting = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || assert!(gate.wait_no_transfer(Duration::ZERO)))
        };
        drop(pass);
        assert!(gate.wait_no_transfer(Duration::ZERO));
        waiting.join().unwrap();
    });
}
