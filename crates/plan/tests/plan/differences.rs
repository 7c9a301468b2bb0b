//! Tests of differences under way: the next difference is requested before its base has arrived, and depends on that arrival.

use crate::machine::{Ending, Machine, Setup};
use tierflow_plan::{
    ConfigError, Differences, Overhead, Plan, PlanConfig, Scope, TierId, TransferFailure,
    TransferId, Version,
};

/// Returns a setup with eager tiers of these sizes below the fastest. Two transfers at a time go into each.
fn setup(below: &[u64]) -> Setup {
    let mut setup = Setup::new(&[&[40], below].concat());
    for tier in &mut setup.tiers[1..] {
        tier.depth = 2;
        tier.eager = true;
    }
    setup.differences = Some(Differences {
        below: TierId::FASTEST,
        overhead: Overhead::fixed(1),
        longest: 16,
        ascending: false,
    });
    setup
}

fn machine(below: &[u64]) -> Machine {
    Machine::new(&setup(below))
}

fn write(machine: &mut Machine, version: Version) {
    let ticket = machine.checkpoint(version, 4, false);
    machine.end(Ending::Write(ticket, true));
}

fn under_way(machine: &Machine) -> Vec<TransferId> {
    let transfers = machine.endings().into_iter().filter_map(|end| match end {
        Ending::Transfer(id, None) => Some(id),
        _ => None,
    });
    transfers.collect()
}

fn cancelled(machine: &Machine) -> u64 {
    let hops = machine.plan().statistics().hops;
    hops.iter().map(|hop| hop.cancelled).sum()
}

#[test]
fn a_difference_that_arrives_before_its_base_counts_once_the_base_is_there() {
    let mut machine = machine(&[40]);
    write(&mut machine, 0);
    write(&mut machine, 1);
    let [first, second] = under_way(&machine)[..] else {
        panic!("two are on their way");
    };
    let wait = machine.wait();
    machine.end(Ending::Transfer(second, None));
    assert!(!machine.plan().is_settled(1) && !machine.is_done(wait));
    // The version's number is not free, and its transfer cannot be cancelled.
    machine.drop_version(1);
    write(&mut machine, 3);
    machine.end(Ending::Transfer(first, None));
    machine.read_back();
    assert_eq!(cancelled(&machine), 0);
}

#[test]
fn a_difference_whose_base_failed_is_made_again() {
    for is_there in [true, false] {
        let mut machine = machine(&[40]);
        write(&mut machine, 0);
        write(&mut machine, 1);
        let [first, second] = under_way(&machine)[..] else {
            panic!("two are on their way");
        };
        let fails = Ending::Transfer(first, Some(TransferFailure::Source));
        let arrives = Ending::Transfer(second, None);
        let ends = if is_there {
            [arrives, fails]
        } else {
            [fails, arrives]
        };
        ends.into_iter().for_each(|end| machine.end(end));
        assert_eq!(cancelled(&machine), 1);
        assert!(!machine.plan().is_settled(1));
        assert_eq!(under_way(&machine).len(), 1, "1 is on its way again");
        machine.read_back();
    }
}

/// Version 0 is on the lower tier alone and cannot be read there, so version 1 begins a new chain.
#[test]
fn no_difference_builds_upon_damage() {
    let mut machine = machine(&[40]);
    write(&mut machine, 0);
    machine.settle();
    machine.limit(0, 0);
    let ticket = machine.restore(0, false);
    machine.end(Ending::Read(ticket, false));
    assert!(!machine.plan().is_sound(0));
    machine.limit(0, 40);
    write(&mut machine, 1);
    machine.settle();
    machine.limit(0, 0);
    machine.settle();
    assert_eq!(machine.plan().fastest_tier(1), Some(TierId(1)));
    assert!(machine.plan().is_sound(1));
}

/// Version 4 has little in common with version 3, so its difference has no base.
#[test]
fn a_difference_that_has_no_base_needs_none() {
    let mut machine = machine(&[40]);
    write(&mut machine, 3);
    write(&mut machine, 4);
    let [first, second] = under_way(&machine)[..] else {
        panic!("two are on their way");
    };
    machine.end(Ending::Transfer(first, Some(TransferFailure::Source)));
    machine.end(Ending::Transfer(second, None));
    assert_eq!(cancelled(&machine), 0);
    assert!(machine.plan().is_settled(4));
    machine.read_back();
}

/// Makes a machine with versions 5 and 6 on the middle tier, 6 as a difference from 5. Both are on their way to the lowest tier, whose
/// speed the plan knows.
fn difference_and_base_on_their_way() -> (Machine, [TransferId; 2]) {
    let mut machine = machine(&[40, 40]);
    for version in [0, 1, 3] {
        write(&mut machine, version);
        loop {
            // Each transfer takes some time.
            machine.now += 1_000;
            if !machine.end_one(0) {
                break;
            }
        }
    }
    for version in [5, 6] {
        write(&mut machine, version);
    }
    let [first, second] = under_way(&machine)[..] else {
        panic!("two are on their way");
    };
    machine.end(Ending::Transfer(first, None));
    machine.end(Ending::Transfer(second, None));
    let [base, difference] = under_way(&machine)[..] else {
        panic!("two are on their way to the lowest tier");
    };
    (machine, [base, difference])
}

#[test]
fn a_difference_is_durable_when_what_it_builds_upon_is() {
    for base_is_dropped in [false, true] {
        let (mut machine, [base, difference]) = difference_and_base_on_their_way();
        if base_is_dropped {
            machine.drop_version(5);
        }
        let waits = [machine.wait_for(6), machine.wait()];
        let is_done = |machine: &Machine| waits.map(|wait| machine.is_done(wait));
        machine.end(Ending::Transfer(difference, None));
        assert!(!machine.plan().is_settled(6), "its base is not there");
        assert_eq!(is_done(&machine), [false, false]);
        let suspension = machine.suspend(6, Scope::Version);
        assert!(!machine.is_done(suspension));
        machine.end(Ending::Transfer(base, None));
        assert!(machine.plan().is_settled(6));
        assert_eq!(is_done(&machine), [true, true]);
        assert!(machine.is_done(suspension));
        machine.read_back();
    }
}

#[test]
fn a_wait_for_a_difference_writes_its_discarded_base_down() {
    let (mut machine, [base, difference]) = difference_and_base_on_their_way();
    machine.end(Ending::Transfer(difference, None));
    machine.drop_version(5);
    let wait = machine.wait_for(6);
    machine.end(Ending::Transfer(base, Some(TransferFailure::Destination)));
    assert!(!machine.is_done(wait));
    let again = machine.wait_for(6);
    machine.settle();
    assert!(machine.is_done(again), "{:?}", machine.refusals());
    machine.read_back();
}

#[test]
fn a_suspension_counts_what_its_version_builds_upon() {
    let (mut machine, [base, difference]) = difference_and_base_on_their_way();
    machine.end(Ending::Transfer(difference, None));
    let now = machine.now;
    let ns = |machine: &Machine| {
        let plan = machine.plan();
        let soon = plan.foresee(now, now, Scope::Version);
        let settles = plan.ns_to_settle(now, 6, Scope::Version);
        (settles, soon.map(|foreseen| foreseen.version))
    };
    let (settles, soon) = ns(&machine);
    assert!(settles > Some(0), "the base takes its time: {settles:?}");
    assert_eq!(soon, Some(3), "what is there already");
    machine.end(Ending::Transfer(base, None));
    assert_eq!(ns(&machine), (Some(0), Some(6)));
}

#[test]
fn transfers_further_down_hold_up_no_other() {
    let mut machine = machine(&[30, 40]);
    for version in [0, 1, 3, 5, 6, 8] {
        write(&mut machine, version);
        assert!(machine.end_one(0));
    }
    machine.settle();
    assert_eq!(cancelled(&machine), 0);
    // A difference has one or two bytes. The first version is stored whole.
    let used = machine.plan().statistics().tiers[2].used_bytes;
    assert!(used <= 12, "{used} bytes");
    machine.read_back();
}

/// The plan reserves five bytes for a difference until it is made, and the tier has fourteen. Reservations move towards the made differences,
/// so that no gaps remain.
#[test]
fn differences_under_way_leave_no_gaps_between_them() {
    let mut machine = machine(&[14]);
    for version in [0, 1, 3, 5, 6, 8] {
        write(&mut machine, version);
    }
    let made = |machine: &Machine| {
        let ends = machine.endings().into_iter();
        let mut encoding = ends.filter(|end| matches!(end, Ending::Encoding(_)));
        encoding.next()
    };
    while let Some(first) = made(&machine) {
        machine.end(first);
        let first = under_way(&machine)[0];
        machine.end(Ending::Transfer(first, None));
    }
    machine.settle();
    let mut places: Vec<_> = [0, 1, 3, 5, 6, 8]
        .iter()
        .flat_map(|&version| machine.plan().pieces(version, TierId(1)))
        .map(|piece| (piece.place.offset, piece.place.offset + piece.place.size))
        .collect();
    places.sort_unstable();
    assert_eq!(places.len(), 6);
    assert!(
        places.windows(2).all(|pair| pair[0].1 == pair[1].0),
        "{places:?}"
    );
    machine.read_back();
}

/// Versions are encoded and decoded only by transfers across the boundary, for each place of the boundary.
#[test]
fn versions_are_encoded_and_decoded_at_the_boundary() {
    for below in 0..4 {
        let mut setup = setup(&[40, 40, 40]);
        let differences = setup.differences.as_mut().unwrap();
        (differences.below, differences.longest) = (TierId(below), 1);
        let mut machine = Machine::new(&setup);
        for version in [0, 1, 3] {
            write(&mut machine, version);
            machine.settle();
        }
        for tier in 0..4 {
            let bytes = machine.plan().pieces(0, TierId(tier))[0].place.size;
            assert_eq!(bytes, if tier > below { 1 } else { 4 }, "on tier {tier}");
        }
        // The versions are on the lowest tier alone, and come up tier by tier.
        (0..3).for_each(|tier| machine.limit(tier, 0));
        machine.settle();
        for tier in (0..3).rev() {
            machine.limit(tier, 40);
            machine.hint(vec![0, 1, 3]);
            machine.prefetch_start();
            machine.settle();
        }
        let coding = |from, to| match (from > below, to > below) {
            (false, false) => "plain",
            (false, true) => "encode",
            (true, false) => "decode",
            (true, true) => "stored",
        };
        let codings = machine.codings();
        let expected = codings
            .iter()
            .map(|&(from, to, _)| (from, to, coding(from, to)));
        assert_eq!(*codings, expected.collect());
        for neighbours in [(0, 1), (3, 2), (2, 1), (1, 0)] {
            let mut found = codings.iter().map(|&(from, to, _)| (from, to));
            assert!(found.any(|pair| pair == neighbours), "{codings:?}");
        }
        let made = codings.iter().any(|&(.., name)| name == "encode");
        assert_eq!(made, below < 3);
        machine.read_back();
    }
}

#[test]
fn a_boundary_is_a_tier() {
    let mut setup = setup(&[40]);
    setup.differences.as_mut().unwrap().below = TierId(2);
    let config = PlanConfig {
        differences: setup.differences,
        ..PlanConfig::new(setup.tiers)
    };
    assert_eq!(
        Plan::new(config).err(),
        Some(ConfigError::NoSuchTier { tier: 2, tiers: 2 })
    );
}
