//! Tests of hints, the order in which versions are read.

use crate::machine::{Machine, Setup};
use tierflow_plan::AfterRestore;

/// Returns a machine that keeps versions after they were read.
fn machine(capacities: [u64; 2]) -> Machine {
    Machine::new(&Setup {
        after: AfterRestore::Keep,
        ..Setup::new(&capacities)
    })
}

/// Checkpoints versions of these sizes. Each waits until nothing of the one before is under way.
fn write(machine: &mut Machine, first: u64, sizes: impl IntoIterator<Item = u64>) {
    for (version, size) in (first..).zip(sizes) {
        machine.checkpoint(version, size, false);
        machine.settle();
    }
}

#[test]
fn overdue_hints_are_forgotten_a_few_at_a_time() {
    let mut machine = machine([60, 400]);
    machine.hint((1..1000).chain(2000..2020).collect());
    write(&mut machine, 2000, [1; 20]);
    for version in 2000..2020 {
        let before = machine.plan().hinted().count();
        machine.restore(version, false);
        machine.settle();
        assert!(machine.plan().hinted().count() + 100 >= before);
    }
}

#[test]
fn the_hinted_order_decides_what_stays() {
    for (order, stays) in [
        ((0..8).collect::<Vec<_>>(), 0..3),
        ((0..8).rev().collect(), 5..8),
    ] {
        let mut machine = machine([20, 400]);
        machine.hint(order);
        write(&mut machine, 0, [5; 8]);
        for version in stays {
            let tiers = machine.tiers_with(version);
            assert!(tiers.contains(&0), "version {version} lies on {tiers:?}");
        }
        machine.read_back();
    }
}

#[test]
fn versions_hinted_next_come_before_all_others() {
    let mut machine = machine([20, 400]);
    machine.hint((0..8).collect());
    write(&mut machine, 0, [5; 8]);
    machine.hint_next(vec![9, 7, 7]);
    machine.prefetch_start();
    machine.settle();
    let order = machine.plan().hinted().collect::<Vec<_>>();
    assert_eq!(order, [7, 6, 5, 4, 3, 2, 1, 0, 7, 7, 9]);
    let tiers = machine.tiers_with(7);
    assert!(tiers.contains(&0), "version 7 lies on {tiers:?}");
    machine.read_back();
}

/// All hinted versions were written, so no checkpoint is expected. The plan keeps the room of one more free all the same.
#[test]
fn a_checkpoint_that_nothing_announces_finds_room() {
    let mut machine = Machine::new(&Setup::new(&[8, 60, 400]));
    machine.hint(vec![1, 0]);
    for version in 0..3 {
        let ticket = machine.checkpoint(version, 5, false);
        assert!(machine.is_granted(ticket), "version {version} waits");
        assert_eq!(machine.tiers_of(ticket), [0].into());
        machine.settle();
    }
    machine.read_back();
}
