//! Tests of a tier that gets versions from the tier above alone, as external storage does if an agent brings them from the node.

use crate::machine::{Ending, Machine, Setup};
use tierflow_plan::{AfterRestore, Scope, TierConfig, TierId, TransferFailure};

/// Returns a machine with memory, a node of `node` bytes, and external storage that gets versions from the node.
fn fed(node: u64) -> Machine {
    let mut setup = Setup::new(&[24, node, 4_000]);
    setup.after = AfterRestore::Keep;
    for (at, tier) in setup.tiers.iter_mut().enumerate().skip(1) {
        *tier = TierConfig {
            eager: true,
            whole: true,
            from_above: at == 2,
            ..*tier
        };
    }
    Machine::new(&setup)
}

fn take_in(machine: &mut Machine, version: u64, bytes: u64) {
    let ticket = machine.checkpoint(version, bytes, false);
    machine.end(Ending::Write(ticket, true));
}

/// Returns the number of transfers that arrived from one tier on another.
fn carried(machine: &Machine, from: usize, to: usize) -> u64 {
    let hops = machine.plan().statistics().hops;
    let mut hops = hops.iter();
    let hop = hops.find(|hop| (hop.from, hop.to) == (TierId(from), TierId(to)));
    hop.map_or(0, |hop| hop.transfers)
}

/// Ends the first transfer to a tier.
fn end_to(machine: &mut Machine, tier: usize, why: Option<TransferFailure>) {
    let endings = machine.endings().into_iter();
    let is_it = |ending: &Ending| match *ending {
        Ending::Transfer(id, how) => how == why && machine.goes_to(id) == tier,
        _ => false,
    };
    let ending = { endings }.find(is_it).unwrap();
    machine.end(ending);
}

#[test]
fn versions_that_fit_on_the_tier_above_come_from_it() {
    let mut machine = fed(8);
    for version in 0..4 {
        take_in(&mut machine, version, 4);
    }
    machine.settle();
    assert!((0..4).all(|version| machine.plan().is_settled(version)));
    assert_eq!(carried(&machine, 0, 2), 0);
    assert_eq!(carried(&machine, 1, 2), 4);
}

#[test]
fn versions_too_large_for_the_tier_above_come_from_elsewhere() {
    let mut machine = fed(8);
    take_in(&mut machine, 0, 12);
    machine.settle();
    assert!(machine.plan().is_settled(0));
    assert_eq!((carried(&machine, 0, 2), carried(&machine, 1, 2)), (1, 0));
}

#[test]
fn a_suspension_goes_by_the_tier_above_and_makes_room_there() {
    for (node, scope) in [
        (100, Scope::Version),
        (8, Scope::Version),
        (4, Scope::Version),
        (4, Scope::History),
    ] {
        let mut machine = fed(node);
        for version in 0..5 {
            take_in(&mut machine, version, 4);
        }
        let suspended = machine.suspend(4, scope);
        machine.settle();
        assert!(machine.is_done(suspended), "{node}");
        assert!(machine.plan().is_settled(4), "{node}");
        assert_eq!(carried(&machine, 0, 2), 0, "{node}");
    }
}

#[test]
fn a_discarded_version_goes_from_external_storage_though_its_transfer_failed() {
    let mut machine = fed(100);
    take_in(&mut machine, 0, 4);
    end_to(&mut machine, 1, None);
    end_to(&mut machine, 2, Some(TransferFailure::Destination));
    assert_eq!(machine.tiers_with(0), [0, 1]);
    machine.drop_version(0);
    assert_eq!(machine.removed(), [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn a_version_discarded_during_its_transfer_goes_from_external_storage() {
    let mut machine = fed(100);
    take_in(&mut machine, 0, 4);
    end_to(&mut machine, 1, None);
    machine.drop_version(0);
    end_to(&mut machine, 2, Some(TransferFailure::Destination));
    assert!(machine.removed().ends_with(&[(0, 1), (0, 2)]));
}

#[test]
fn no_later_version_passes_one_that_waits_for_room_above() {
    let mut machine = fed(8);
    // Version 0 fills the node. Version 1 waits for its room, and version 2 is too large for the node.
    take_in(&mut machine, 0, 8);
    end_to(&mut machine, 1, None);
    take_in(&mut machine, 1, 4);
    take_in(&mut machine, 2, 12);
    while !machine.plan().is_settled(1) {
        assert!(!machine.plan().is_settled(2));
        let mut endings = machine.endings();
        endings.retain(|ending| matches!(ending, Ending::Transfer(_, None)));
        let to = |ending: &Ending| match *ending {
            Ending::Transfer(id, _) => machine.goes_to(id),
            _ => 0,
        };
        endings.sort_by_key(to);
        machine.end(endings.pop().unwrap());
    }
    machine.settle();
    assert!(machine.plan().is_settled(2));
    assert_eq!((carried(&machine, 0, 2), carried(&machine, 1, 2)), (1, 2));
}
