//! What is flushed, and when: what is foreseen to fit is not, and what is read first had better stay.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod world;

use tierflow_engine::plan::AfterRestore;
use world::World;

/// The engine's own policy among those of the world.
const COST: usize = 3;

#[test]
fn a_history_that_fits_costs_no_transfer() {
    let mut world = World::new(&[100, 100, 1_000], 1, 0, 50, AfterRestore::Discard);
    for _ in 0..5 {
        world.checkpoint(10);
        world.settle();
    }
    assert_eq!(world.transfers_started(), 0);
    for _ in 0..5 {
        world.checkpoint(10);
        world.settle();
    }
    assert!(
        world.transfers_started() >= 10,
        "all that is queued goes once the tier is half full"
    );
    world.read_back();
}

#[test]
fn a_history_that_hints_foretell_to_fit_is_not_flushed() {
    let mut world = World::new(&[100, 100, 1_000], 1, 0, 0, AfterRestore::Discard);
    world.hint((0..10).rev().collect());
    for _ in 0..9 {
        world.checkpoint(10);
        world.settle();
    }
    assert_eq!(world.transfers_started(), 0);
    let mut world = World::new(&[100, 100, 1_000], 1, 0, 0, AfterRestore::Discard);
    world.hint((0..11).rev().collect());
    for _ in 0..6 {
        world.checkpoint(10);
        world.settle();
    }
    assert!(world.transfers_started() > 0, "one more than fits");
    let mut world = World::new(&[100, 100, 1_000], 1, 0, 0, AfterRestore::Discard);
    for version in 0..6 {
        world.hint(vec![version]);
        world.checkpoint(10);
        world.settle();
    }
    assert!(
        world.transfers_started() > 0,
        "who tells piece by piece may tell more"
    );
}

#[test]
fn a_history_that_fits_as_the_last_one_did_is_not_flushed() {
    let mut world = World::new(&[100, 100, 1_000], 1, 0, 0, AfterRestore::Discard);
    let mut shot = |versions: u64| {
        let (before, first) = (world.transfers_started(), world.next_version);
        for _ in 0..versions {
            world.checkpoint(10);
            world.settle();
        }
        for version in first..first + versions {
            world.restore(version);
            world.settle();
        }
        world.transfers_started() - before
    };
    assert_eq!(shot(5), 10, "nothing tells");
    assert_eq!(shot(5), 0);
    assert!(shot(7) >= 7, "larger than was expected");
    assert_eq!(shot(7), 0);
}

#[test]
fn what_is_read_first_stays_on_the_fastest_tier_until_somebody_waits() {
    let mut world = World::new(&[400, 1_000, 10_000], 1, COST, 1, AfterRestore::Discard);
    world.hint([5].into_iter().chain((6..16).rev()).chain(0..5).collect());
    for version in 0..16 {
        world.checkpoint(10 + version % 2);
        world.settle();
    }
    assert_eq!(
        world.transfers_started(),
        15 * 2,
        "all but version 5, twice"
    );
    world.wait();
    world.settle();
    assert_eq!(world.transfers_started(), 16 * 2);
    world.read_back();
}

#[test]
fn a_flush_that_pushes_something_out_waits_and_then_goes_past_the_full_tier() {
    let mut world = World::new(&[100, 40, 10_000], 1, COST, 1, AfterRestore::Discard);
    for _ in 0..10 {
        world.checkpoint(10);
        world.settle();
    }
    let before = world.transfers_started();
    assert_eq!(
        before,
        6 * 2,
        "room for five versions is kept free of what is not flushed"
    );
    world.wait();
    world.settle();
    assert_eq!(
        world.transfers_started() - before,
        4,
        "to the last tier at once"
    );
    world.read_back();
}

#[test]
fn waiting_flushes_whatever_the_level() {
    let mut world = World::new(&[100, 100, 1_000], 1, 0, 100, AfterRestore::Keep);
    world.checkpoint(10);
    world.settle();
    world.wait();
    world.settle();
    assert_eq!(world.transfers_started(), 2);
}
