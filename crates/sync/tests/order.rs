//! A build with debug assertions panics at a lock that is taken against the order, and the message names both places.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tierflow_sync::model::Monitor;
use tierflow_sync::{Condvar, Mutex, RwLock, rank};

/// Returns the message of the panic with which `work` ends.
fn panic_of(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn locks_are_taken_upwards() {
    let plan: Mutex<u32, { rank::PLAN }> = Mutex::new(1);
    let queue: Mutex<u32, { rank::QUEUE }> = Mutex::new(2);
    let leaf: Mutex<u32> = Mutex::new(3);
    let (first, second, third) = (plan.lock(), queue.lock(), leaf.lock());
    assert_eq!((*first, *second, *third), (1, 2, 3));
    // Guards may be dropped in any order.
    drop(first);
    drop(third);
    drop(leaf.lock());
    drop(second);
    drop(plan.lock());
}

#[test]
fn a_lock_against_the_order_panics_and_names_both_places() {
    let plan: Mutex<(), { rank::PLAN }> = Mutex::default();
    let leaf: Mutex<()> = Mutex::default();
    let held = leaf.lock();
    let message = panic_of(|| drop(plan.lock()));
    assert!(message.contains("a lock of rank 2 is taken"), "{message}");
    assert!(
        message.contains(&format!("rank {} at", rank::LEAF)),
        "{message}"
    );
    assert!(message.contains("order.rs"), "{message}");
    drop(held);
    drop(plan.lock());
}

#[test]
fn two_locks_of_one_rank_are_never_held_together() {
    let (one, other) = (Mutex::<_>::new(1), Mutex::<_>::new(2));
    let _held = one.lock();
    panic_of(|| drop(other.lock()));
    let shared = RwLock::<_>::new(3);
    panic_of(|| drop(shared.read()));
    panic_of(|| drop(shared.write()));
}

#[test]
fn an_attempt_has_no_order_and_is_held_like_any_other() {
    let plan: Mutex<(), { rank::PLAN }> = Mutex::default();
    let queue: Mutex<(), { rank::QUEUE }> = Mutex::default();
    let leaf: Mutex<()> = Mutex::default();
    let held = leaf.lock();
    let tried = plan.try_lock().unwrap();
    drop(held);
    drop(queue.lock());
    panic_of(|| drop(plan.lock()));
    drop(tried);
}

#[test]
fn no_thread_waits_with_the_plan_locked() {
    let plan: Mutex<(), { rank::PLAN }> = Mutex::default();
    let value: Mutex<u32> = Mutex::default();
    let changed = Condvar::new();
    let past = Instant::now();
    assert!(changed.wait_until(&mut value.lock(), past).timed_out());
    assert!(
        changed
            .wait_for(&mut value.lock(), Duration::ZERO)
            .timed_out()
    );
    let _held = plan.lock();
    let message = panic_of(|| changed.wait(&mut value.lock()));
    assert!(
        message.contains("a thread waits that locked the plan"),
        "{message}"
    );
}

#[test]
fn each_thread_has_an_order_of_its_own() {
    let plan: Mutex<u32, { rank::PLAN }> = Mutex::default();
    let monitor: Monitor<u32> = Monitor::default();
    std::thread::scope(|scope| {
        let leaf: Mutex<()> = Mutex::default();
        let _held = leaf.lock();
        scope.spawn(|| {
            *plan.lock() += 1;
            monitor.change(|value| *value = 7);
        });
    });
    assert_eq!(monitor.wait(|value| (*value > 0).then_some(*value)), 7);
    assert_eq!(*plan.lock(), 1);
}
