//! Tests of waits, for all versions and for one.

use crate::machine::{Call, Ending, Machine, Setup};
use tierflow_plan::{AfterRestore, Refusal, TierConfig, TierId, TransferFailure};

/// Returns a machine of two tiers with versions 0 and 1, both on their way down.
fn two_under_way() -> Machine {
    let mut setup = Setup::new(&[40, 400]);
    setup.tiers[1] = TierConfig {
        eager: true,
        depth: 4,
        ..setup.tiers[1]
    };
    let mut machine = Machine::new(&setup);
    for version in 0..2 {
        let ticket = machine.checkpoint(version, 4, false);
        machine.end(Ending::Write(ticket, true));
    }
    let is_transfer = |ending: &&Ending| matches!(ending, Ending::Transfer(_, None));
    assert_eq!(machine.endings().iter().filter(is_transfer).count(), 2);
    machine
}

/// Ends the first of the transfers under way.
fn end_first(machine: &mut Machine, failure: Option<TransferFailure>) {
    let endings = machine.endings();
    let first = endings
        .into_iter()
        .find(|ending| matches!(ending, Ending::Transfer(_, how) if *how == failure));
    machine.end(first.unwrap());
}

#[test]
fn a_wait_for_a_version_ends_with_that_version() {
    let mut machine = two_under_way();
    let waits = [0, 1, 0].map(|version| machine.wait_for(version));
    end_first(&mut machine, None);
    let first = u64::from(machine.plan().is_settled(1));
    let is_done = |version| machine.is_done(waits[version as usize]);
    assert!(is_done(first) && !is_done(1 - first));
    let settled = machine.wait_for(first);
    assert!(machine.is_done(settled), "what is there is not waited for");
    end_first(&mut machine, None);
    assert!(waits.into_iter().all(|wait| machine.is_done(wait)));
}

#[test]
fn a_wait_for_a_version_that_goes_or_cannot_arrive_is_refused() {
    let mut machine = two_under_way();
    machine.wait_for(7);
    assert_eq!(
        machine.refusals(),
        [(Call::WaitFor(7), Refusal::Unknown)],
        "at once"
    );
    machine.wait_for(0);
    machine.drop_version(0);
    assert_eq!(
        machine.refusals()[1..],
        [(Call::WaitFor(0), Refusal::Discarded)]
    );
    machine.wait_for(1);
    while !machine.endings().is_empty() {
        let fails = machine.endings().into_iter().find(|ending| {
            matches!(
                ending,
                Ending::Transfer(_, Some(TransferFailure::Destination))
            )
        });
        machine.end(fails.unwrap());
    }
    let stalled = Refusal::Stalled { versions: 1 };
    assert_eq!(machine.refusals()[2..], [(Call::WaitFor(1), stalled)]);
    let again = machine.wait_for(1);
    machine.settle();
    assert!(machine.is_done(again), "who waits again has it tried again");
}

#[test]
fn an_abandoned_wait_is_not_answered() {
    let mut machine = two_under_way();
    let (given_up, waits) = (machine.wait_for(0), machine.wait_for(0));
    machine.abandon(given_up);
    machine.settle();
    assert!(machine.is_done(waits) && !machine.is_done(given_up));
}

#[test]
fn a_source_that_failed_without_damage_is_read_again_when_the_application_asks_for_something() {
    let fails = Some(TransferFailure::Source);
    let mut machine = two_under_way();
    end_first(&mut machine, fails);
    machine.settle();
    assert!(!machine.plan().is_settled(0) && machine.plan().is_settled(1));
    assert!(machine.endings().is_empty(), "not by itself");
    machine.checkpoint(2, 4, false);
    machine.settle();
    assert!(machine.plan().is_settled(0), "by the next checkpoint");
    let mut machine = two_under_way();
    end_first(&mut machine, fails);
    let waits = machine.wait_for(0);
    machine.settle();
    assert!(machine.is_done(waits), "by the next wait");
    // The machine reports damage of version 1, which has no other copy.
    let mut machine = two_under_way();
    end_first(&mut machine, None);
    let waits = machine.wait_for(1);
    end_first(&mut machine, fails);
    machine.checkpoint(2, 4, false);
    machine.settle();
    assert!(!machine.is_done(waits) && !machine.plan().is_settled(1));
}

/// Returns a machine of three tiers with a version on the first two.
fn above_two(is_eager: bool, is_whole: bool) -> Machine {
    let mut setup = Setup::new(&[4, 400, 4_000]);
    setup.after = AfterRestore::Keep;
    setup.tiers[1].eager = true;
    setup.tiers[2].eager = is_eager;
    setup.tiers[2].whole = is_whole;
    let mut machine = Machine::new(&setup);
    let ticket = machine.checkpoint(0, 4, false);
    machine.end(Ending::Write(ticket, true));
    end_first(&mut machine, None);
    machine
}

/// Asserts that the third tier did not get the bytes that the second tier had first.
fn assert_not_read(machine: &Machine, case: &str) {
    let hops = machine.plan().statistics().hops;
    let carried = |from, to| {
        let mut hops = hops.iter();
        let hop = hops.find(|hop| (hop.from, hop.to) == (TierId(from), TierId(to)));
        hop.map_or(0, |hop| hop.transfers)
    };
    let (again, on) = (carried(0, 1) - 1, carried(1, 2));
    assert!(on <= again, "{case}: {on} of {again}");
}

#[test]
fn bytes_that_are_damaged_on_a_tier_between_are_written_from_above() {
    for (is_eager, is_whole) in [(true, true), (true, false), (false, true), (false, false)] {
        let case = format!("eager: {is_eager}, whole: {is_whole}");
        let mut machine = above_two(is_eager, is_whole);
        let waits = machine.wait_for(0);
        end_first(&mut machine, Some(TransferFailure::Source));
        assert!(!machine.is_done(waits) && machine.damaged.contains(&0));
        machine.settle();
        assert!(machine.plan().is_settled(0), "{case}");
        assert_not_read(&machine, &case);
    }
}

#[test]
fn a_replica_above_a_damaged_one_makes_room_once_its_bytes_are_written_again() {
    let mut machine = above_two(false, false);
    end_first(&mut machine, Some(TransferFailure::Source));
    machine.checkpoint(1, 3, false);
    machine.settle();
    assert_eq!((machine.refusals(), machine.held()), (&[][..], vec![0, 1]));
    let hops = machine.plan().statistics().hops;
    let down = hops.iter().filter(|hop| hop.from == TierId::FASTEST);
    let bytes: u64 = down.map(|hop| hop.bytes).sum();
    assert!(
        bytes >= 4 + 4,
        "{bytes} bytes went down: version 0 only once"
    );
}

/// Parts of a version come up side by side from a damaged tier. The plan does not read them there again, as the tier below has all of the
/// version.
#[test]
fn a_restore_of_parts_that_are_damaged_reads_the_tier_below() {
    let mut setup = Setup::new(&[12, 400, 4_000]);
    setup.after = AfterRestore::Keep;
    setup.tiers[1].depth = 3;
    setup.tiers[2].eager = true;
    setup.tiers[2].whole = true;
    let mut machine = Machine::new(&setup);
    for version in 0..2 {
        machine.checkpoint(version, 12, false);
        machine.settle();
    }
    assert_eq!(machine.tiers_with(0), [1, 2]);
    machine.hint(vec![0]);
    machine.prefetch_start();
    let restore = machine.restore(0, false);
    let mut failures = 0;
    while !machine.is_granted(restore) {
        assert!(failures < 10, "the damaged parts are read again and again");
        end_first(&mut machine, Some(TransferFailure::Source));
        failures += 1;
    }
    assert!(failures > 1, "one part");
    assert_eq!(machine.tiers_of(restore), [2].into());
    machine.read_back();
}

/// A write-back and a caller's read would each take twice as long side by side, so the write-back waits. If the next checkpoint finds no
/// room, write-backs do not wait.
#[test]
fn over_a_shared_link_write_backs_wait_for_a_caller_that_reads_from_below() {
    for (room, shared, waits) in [(16, false, false), (16, true, true), (10, true, false)] {
        let mut setup = Setup {
            after: AfterRestore::Keep,
            ..Setup::new(&[room, 100, 400])
        };
        setup.tiers[1].shared = shared;
        let mut machine = Machine::new(&setup);
        for version in 0..4 {
            machine.checkpoint(version, 5, false);
            machine.settle();
        }
        let below = (0..4).find(|&version| machine.tiers_with(version)[0] == 1);
        let reading = machine.restore(below.unwrap(), false);
        let writing = machine.checkpoint(4, 5, false);
        machine.end(Ending::Write(writing, true));
        let goes_down = |machine: &Machine| {
            let endings = machine.endings().into_iter();
            let moves =
                |ending| matches!(ending, Ending::Transfer(id, None) if machine.goes_to(id) > 0);
            endings.filter(|&ending| moves(ending)).count() > 0
        };
        assert_eq!(goes_down(&machine), !waits);
        machine.end(Ending::Read(reading, true));
        assert!(goes_down(&machine));
        machine.read_back();
    }
}

/// A transfer past the middle tier holds the device's room for as long as the lowest tier takes, and the middle tier is about to get the
/// bytes. So versions go past it only if the lowest tier would be idle otherwise.
#[test]
fn bytes_pass_the_tier_between_only_rather_than_leave_the_lowest_one_idle() {
    let (used_last, used_first) = ((0..40).rev().collect(), (0..40).collect());
    for (eager, order, begun) in [(false, used_last, vec![1, 2]), (true, used_first, vec![1])] {
        let mut setup = Setup::new(&[30, 60, 400]);
        setup.tiers[2].depth = 4;
        setup.tiers[2].eager = eager;
        let mut machine = Machine::new(&setup);
        machine.hint(order);
        for version in 0..3 {
            let ticket = machine.checkpoint(version, 5, false);
            machine.end(Ending::Write(ticket, true));
        }
        let endings = machine.endings().into_iter();
        let moves = endings.filter_map(|ending| match ending {
            Ending::Transfer(id, None) => Some(machine.goes_to(id)),
            _ => None,
        });
        assert_eq!(moves.collect::<Vec<_>>(), begun, "eager: {eager}");
        machine.settle();
        assert!((0..3).all(|version| !eager || machine.plan().is_settled(version)));
        machine.read_back();
    }
}

#[test]
fn a_wait_is_over_when_what_was_taken_in_before_it_is_down() {
    let mut machine = Machine::new(&Setup {
        after: AfterRestore::Keep,
        ..Setup::new(&[60, 400])
    });
    machine.hint((0..7).collect());
    for version in 0..3 {
        machine.checkpoint(version, 5, false);
        machine.settle();
    }
    let wait = machine.wait();
    assert!(!machine.is_done(wait));
    // Other callers take checkpoints meanwhile, and the wait is not for these versions.
    let mut next = 3;
    while !machine.is_done(wait) {
        if next < 7 {
            let ticket = machine.checkpoint(next, 5, false);
            assert!(machine.is_granted(ticket), "a wait holds up others");
            machine.end(Ending::Write(ticket, true));
            next += 1;
        }
        assert!(machine.end_one(0), "the wait is never over");
    }
    assert!((0..3).all(|version| machine.plan().is_settled(version)));
    assert!((3..next).any(|version| !machine.plan().is_settled(version)));
    machine.read_back();
}
