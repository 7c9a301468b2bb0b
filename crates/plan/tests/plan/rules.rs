//! Tests of rules that users rely on, with a short history each.

use crate::machine::{Call, Ending, Machine, Setup};
use tierflow_plan::{
    AfterRestore, Differences, ExtentSize, Overhead, Refusal, TierId, TransferFailure,
};
use tierflow_testing::Draws;

fn setup(capacities: &[u64], after: AfterRestore) -> Setup {
    Setup {
        after,
        ..Setup::new(capacities)
    }
}

/// Checkpoints versions of these sizes. Each waits until nothing of the one before is under way.
fn write(machine: &mut Machine, first: u64, sizes: impl IntoIterator<Item = u64>) {
    for (version, size) in (first..).zip(sizes) {
        machine.checkpoint(version, size, false);
        machine.settle();
    }
}

fn read(machine: &mut Machine, versions: impl IntoIterator<Item = u64>) {
    for version in versions {
        machine.restore(version, false);
        machine.settle();
    }
}

fn transfers(machine: &Machine) -> u64 {
    let hops = machine.plan().statistics().hops;
    hops.iter().map(|hop| hop.transfers).sum()
}

/// Fails the first transfer whose destination can fail. Returns false if there is none.
fn fail_writes_down(machine: &mut Machine) -> bool {
    let failure = Some(TransferFailure::Destination);
    let endings = machine.endings().into_iter();
    let found = endings
        .filter(|ending| matches!(ending, Ending::Transfer(_, why) if *why == failure))
        .collect::<Vec<_>>();
    found.first().map(|&ending| machine.end(ending)).is_some()
}

#[test]
fn a_history_that_fits_is_never_written_down() {
    let mut machine = Machine::new(&setup(&[60, 60, 400], AfterRestore::Discard));
    machine.hint((0..10).rev().collect());
    write(&mut machine, 0, [5; 9]);
    assert_eq!(transfers(&machine), 0);
    read(&mut machine, (0..9).rev());
    let statistics = machine.plan().statistics();
    assert_eq!(transfers(&machine), 0);
    assert_eq!(statistics.tiers[0].restores, 9);
    // Without hints about later versions, the plan writes all versions to the lowest tier ahead.
    let mut machine = Machine::new(&setup(&[60, 60, 400], AfterRestore::Discard));
    write(&mut machine, 0, [5; 9]);
    assert!((0..9).all(|version| machine.tiers_with(version).contains(&2)));
}

/// The host has room for nine of ten versions, so it gives up a replica that the device has, too. A version goes back to the host after its
/// reading. If the replica of the one that is read next were given up each time, each reading would move a version down.
#[test]
fn a_kept_history_that_fits_is_moved_down_seldom() {
    let mut machine = Machine::new(&setup(&[20, 45, 400], AfterRestore::Keep));
    machine.hint((0..10).collect());
    write(&mut machine, 0, [5; 10]);
    let moved = |machine: &Machine| machine.plan().statistics().hops[0].bytes;
    let written = moved(&machine);
    read(&mut machine, 0..10);
    assert_eq!(moved(&machine) - written, 15);
}

#[test]
fn an_overflow_is_written_down_before_its_room_is_needed() {
    let mut machine = Machine::new(&setup(&[20, 400], AfterRestore::Discard));
    machine.hint((0..12).rev().collect());
    for version in 0..12 {
        let ticket = machine.checkpoint(version, 5, false);
        assert!(machine.is_granted(ticket), "version {version} waits");
        assert_eq!(machine.tiers_of(ticket), [0].into());
        machine.settle();
    }
    machine.read_back();
}

#[test]
fn a_write_never_waits_while_clean_bytes_can_go() {
    let mut machine = Machine::new(&setup(&[20, 400], AfterRestore::Keep));
    write(&mut machine, 0, [5; 4]);
    machine.wait();
    machine.settle();
    // All versions are on the tier below, so the largest write gets the whole tier at once, without a transfer.
    let before = transfers(&machine);
    let ticket = machine.checkpoint(4, 20, false);
    assert!(machine.is_granted(ticket));
    assert_eq!(machine.tiers_of(ticket), [0].into());
    assert_eq!(transfers(&machine), before);
    machine.read_back();
}

#[test]
fn a_checkpoint_larger_than_a_tier_lies_on_it_in_part() {
    let mut machine = Machine::new(&setup(&[20, 400], AfterRestore::Discard));
    machine.hint(vec![0]);
    let ticket = machine.checkpoint(0, 50, false);
    assert!(machine.is_granted(ticket));
    assert_eq!(machine.tiers_of(ticket), [0, 1].into());
    machine.settle();
    machine.read_back();
}

/// Algorithm 1 of HPDC'23 chooses the window with the largest sum of distances among those that are large enough.
#[test]
fn windows_by_score_make_room_in_one_piece() {
    let mut with_score = setup(&[10, 400], AfterRestore::Keep);
    with_score.policy = 3;
    let mut machine = Machine::new(&with_score);
    machine.hint(vec![0, 2, 1]);
    write(&mut machine, 0, [2, 3, 5]);
    assert!(
        (0..3).all(|version| machine.tiers_with(version) == [0, 1]),
        "each is written down at once"
    );
    // The sum of versions 0 and 1 is 0 + 2, that of 1 and 2 is 2 + 1, and that of 2 alone is 1.
    let ticket = machine.checkpoint(3, 4, false);
    assert!(machine.is_granted(ticket));
    machine.end(Ending::Write(ticket, true));
    let on_device = |version| machine.plan().pieces(version, TierId(0));
    assert_eq!(on_device(3)[0].place.offset, 2);
    assert_eq!(on_device(0).len(), 1);
    assert!(on_device(1).is_empty() && on_device(2).is_empty());
    machine.settle();
    let tiers = [0, 1].map(TierId);
    let pieces = tiers.map(|tier| (0..4).map(|v| machine.plan().pieces(v, tier).len()).max());
    assert!(pieces.iter().all(|&most| most <= Some(1)));
    machine.read_back();
}

/// If no window is on the tier below yet, the checkpoint waits for the window whose transfers end first.
#[test]
fn windows_by_score_wait_for_what_goes_down_first() {
    let mut with_score = setup(&[10, 400], AfterRestore::Keep);
    with_score.policy = 3;
    let mut machine = Machine::new(&with_score);
    for version in 0..2 {
        let ticket = machine.checkpoint(version, 5, false);
        machine.end(Ending::Write(ticket, true));
    }
    let ticket = machine.checkpoint(2, 5, false);
    assert!(!machine.is_granted(ticket));
    while !machine.is_granted(ticket) {
        assert!(machine.end_one(0), "it waits for ever");
    }
    assert!(machine.plan().pieces(0, TierId(0)).is_empty());
    assert_eq!(machine.plan().pieces(1, TierId(0)).len(), 1);
    machine.settle();
    machine.read_back();
}

#[test]
fn a_tier_holds_as_many_more_versions_as_differences_are_smaller() {
    let mut setup = setup(&[20, 40, 400], AfterRestore::Discard);
    setup.differences = Some(Differences {
        below: TierId::FASTEST,
        overhead: Overhead::fixed(2),
        longest: 4,
        ascending: false,
    });
    let mut machine = Machine::new(&setup);
    // The tier has 100 bytes, and a difference takes at most two of them.
    machine.hint((0..20).rev().collect());
    write(&mut machine, 0, [5; 20]);
    let on_file = (0..20).filter(|&version| !machine.plan().pieces(version, TierId(2)).is_empty());
    let on_file = on_file.count();
    // Before the first difference is made, its size is unknown.
    assert!(
        on_file <= 2,
        "{on_file} lie on the lowest tier, and the one between has room"
    );
    machine.read_back();
}

/// The fuzzer found this history. A part that belongs on the middle tier was joined with one that belongs above, evicted with it for
/// another version, and written down again in its place, for ever.
#[test]
fn an_extent_across_a_boundary_is_not_given_up_for_what_belongs_above() {
    for first in 0..32 {
        let mut setup = setup(&[24, 11, 16], AfterRestore::Keep);
        (setup.policy, setup.tiers[2].eager) = (1, true);
        setup.tiers.iter_mut().for_each(|tier| tier.depth = 2);
        setup.extents = ExtentSize { least: 2, most: 4 };
        let mut machine = Machine::new(&setup);
        for (version, size) in [(0, 12), (1, 3), (2, 15), (3, 0)] {
            machine.checkpoint(version, size, false);
        }
        let mut steps = 0;
        while machine.end_one(first + steps * 7 % 32) {
            steps += 1;
            assert!(steps < 400, "it goes round");
        }
    }
}

#[test]
fn a_version_that_belongs_on_a_tier_in_part_is_fetched_in_part() {
    let mut machine = Machine::new(&setup(&[20, 400], AfterRestore::Keep));
    write(&mut machine, 0, [50; 3]);
    machine.wait();
    machine.settle();
    machine.hint(vec![1, 2, 0]);
    read(&mut machine, [1]);
    // Version 2 is read next and is larger than the tier, so the tier is full of its parts.
    let near = machine.plan().pieces(2, TierId(0));
    let near: u64 = near.iter().map(|piece| piece.place.size).sum();
    assert!(near >= 16, "{near} bytes are near");
    machine.read_back();
}

/// A caller waits for a part of a version that is on its way up. The other parts continue to come up, and the caller reads all of them from
/// the fastest tier.
#[test]
fn a_version_that_a_restore_waits_for_continues_to_come_up() {
    let mut setup = setup(&[20, 400], AfterRestore::Keep);
    setup.tiers[1].depth = 2;
    let mut machine = Machine::new(&setup);
    write(&mut machine, 0, [12; 4]);
    machine.wait();
    machine.settle();
    machine.hint(vec![0, 1, 2, 3]);
    machine.prefetch_start();
    let ticket = machine.restore(0, false);
    assert!(
        !machine.is_granted(ticket),
        "its first extent is on its way"
    );
    while !machine.is_granted(ticket) {
        assert!(machine.end_one(0), "nothing is under way");
    }
    assert_eq!(machine.tiers_of(ticket), [0].into());
    machine.read_back();
}

#[test]
fn bytes_on_their_way_to_the_tier_between_go_down_from_there() {
    let mut machine = Machine::new(&setup(&[20, 40, 400], AfterRestore::Discard));
    write(&mut machine, 0, [20, 20]);
    let hops = machine.plan().statistics().hops;
    let carried = |from, to| {
        let ends = (TierId(from), TierId(to));
        let hop = hops.iter().find(|hop| (hop.from, hop.to) == ends);
        hop.map_or(0, |hop| hop.bytes)
    };
    assert_eq!((carried(0, 1), carried(0, 2), carried(1, 2)), (40, 0, 40));
    machine.read_back();
}

/// The gaps between other versions cut a version into pieces of 2 bytes. An extent has at least 4 bytes, so pieces move together.
#[test]
fn short_extents_move_together() {
    let mut setup = setup(&[16, 400], AfterRestore::Keep);
    setup.extents = ExtentSize { least: 4, most: 8 };
    let mut machine = Machine::new(&setup);
    write(&mut machine, 0, [2; 8]);
    for version in [0, 2, 4, 6] {
        machine.drop_version(version);
    }
    machine.settle();
    machine.hint(vec![8]);
    let before = transfers(&machine);
    write(&mut machine, 8, [8]);
    assert_eq!(machine.plan().pieces(8, TierId(0)).len(), 4);
    machine.wait();
    machine.settle();
    assert_eq!(transfers(&machine) - before, 2);
    machine.read_back();
}

/// Versions that are used soonest are written down last, and so are evicted last. A call that waits for all versions, and a tier that
/// outlives the run, need them in the order of writing.
#[test]
fn an_eager_lowest_tier_takes_the_latest_used_first() {
    for (whole, waits, expected) in [
        (false, false, [0, 3, 2, 1]),
        (true, false, [0, 1, 2, 3]),
        (false, true, [0, 1, 2, 3]),
    ] {
        let mut setup = setup(&[40, 400], AfterRestore::Discard);
        (setup.tiers[1].eager, setup.tiers[1].whole) = (true, whole);
        setup.extents = ExtentSize { least: 5, most: 10 };
        let mut machine = Machine::new(&setup);
        machine.hint((0..4).collect());
        for version in 0..4 {
            let ticket = machine.checkpoint(version, 5, false);
            machine.end(Ending::Write(ticket, true));
        }
        waits.then(|| machine.wait());
        let mut came: Vec<u64> = Vec::new();
        while machine.end_one(0) {
            let there = (0..4).filter(|&version| machine.tiers_with(version).contains(&1));
            let new = there.filter(|version| !came.contains(version));
            came.extend(new.collect::<Vec<_>>());
        }
        assert_eq!(came, expected, "whole: {whole}, waits: {waits}");
        machine.read_back();
    }
}

#[test]
fn a_wait_is_never_stalled_on_a_healthy_machine() {
    let mut setup = setup(&[7, 3, 4, 30], AfterRestore::Discard);
    for extents in [
        ExtentSize { least: 1, most: 2 },
        ExtentSize { least: 2, most: 4 },
    ] {
        setup.extents = extents;
        for whole in [false, true] {
            setup.tiers[3].whole = whole;
            for order in 0..3 {
                let mut machine = Machine::new(&setup);
                for shot in 0..4 {
                    let versions: Vec<_> = (shot * 9..shot * 9 + 9).collect();
                    let mut order_of_reads = versions.clone();
                    match order {
                        0 => order_of_reads.reverse(),
                        1 => order_of_reads.rotate_left(4),
                        _ => {}
                    }
                    machine.hint(order_of_reads.clone());
                    for &version in &versions {
                        machine.checkpoint(version, 1 + version % 5, false);
                        machine.end_one(version as usize);
                        let is_waited_for = version % 4 == 1;
                        is_waited_for.then(|| machine.wait());
                        machine.settle();
                    }
                    let wait = machine.wait();
                    machine.settle();
                    assert!(machine.is_done(wait));
                    read(&mut machine, order_of_reads);
                }
                assert_eq!(machine.refusals(), []);
            }
        }
    }
}

/// The lowest tier has room for all versions that were ever written, and nothing fails. Calls come while copies and transfers are under way.
#[test]
fn a_healthy_machine_refuses_no_checkpoint_and_no_wait() {
    let mut draws = Draws(1);
    let mut random = |below: u64| draws.below(below);
    for history in 0..600 {
        let capacities: &[u64] = [&[7, 3, 4, 30][..], &[5, 30], &[6, 8, 30]][random(3) as usize];
        let mut setup = setup(capacities, AfterRestore::Discard);
        let least = 1 + random(2);
        setup.extents = ExtentSize {
            least,
            most: 2 * least,
        };
        let last = capacities.len() - 1;
        setup.tiers[last].eager = random(2) == 0;
        setup.tiers[last].shared = random(2) == 0;
        if random(2) == 0 {
            setup.after = AfterRestore::Keep;
        }
        let mut machine = Machine::new(&setup);
        machine.checks = history % 10 == 0;
        let (mut next, mut written) = (0, 0);
        for _ in 0..60 {
            let held = machine.held();
            match random(10) {
                0..=2 if written < 26 => {
                    let size = 1 + random(5);
                    machine.checkpoint(next, size, false);
                    (next, written) = (next + 1, written + size);
                }
                3 if !held.is_empty() => {
                    machine.restore(held[random(held.len() as u64) as usize], false);
                }
                4 => machine.hint((0..random(6)).map(|_| random(next + 4)).collect()),
                5 => drop(machine.wait()),
                _ => drop(machine.end_one(random(1_000) as usize)),
            }
        }
        machine.settle();
        assert_eq!(machine.refusals(), [], "{setup:?}");
    }
}

#[test]
fn a_wait_stalls_while_the_lowest_tier_fails_and_not_after() {
    let mut machine = Machine::new(&setup(&[40, 400], AfterRestore::Keep));
    machine.hint(vec![0, 1]);
    write(&mut machine, 0, [5; 2]);
    machine.wait();
    while fail_writes_down(&mut machine) {}
    let stalled = Refusal::Stalled { versions: 2 };
    assert_eq!(machine.refusals(), [(Call::Wait, stalled)]);
    // No transfer goes to the failing tier meanwhile.
    machine.prefetch_start();
    assert_eq!(machine.endings(), []);
    let wait = machine.wait();
    machine.settle();
    assert!(machine.is_done(wait));
    machine.read_back();
}

#[test]
fn a_wait_stalls_when_the_lowest_tier_is_full() {
    let mut machine = Machine::new(&setup(&[20, 8], AfterRestore::Keep));
    write(&mut machine, 0, [4; 3]);
    machine.wait();
    machine.settle();
    let stalled = Refusal::Stalled { versions: 1 };
    assert_eq!(machine.refusals(), [(Call::Wait, stalled)]);
    machine.drop_version(0);
    let wait = machine.wait();
    machine.settle();
    assert!(machine.is_done(wait));
    machine.read_back();
}

#[test]
fn a_rule_takes_nothing_that_is_asked_for() {
    let mut machine = Machine::new(&setup(&[8, 400], AfterRestore::Keep));
    write(&mut machine, 0, [4; 6]);
    machine.hint(vec![1]);
    machine.restore(2, false);
    machine.prune((0..5).collect());
    assert_eq!(machine.held(), [1, 2, 5]);
    assert_eq!(machine.plan().statistics().pruned, 3);
    machine.settle();
    machine.prune((0..5).collect());
    assert_eq!(machine.held(), [1, 5], "it was restored");
    read(&mut machine, [1]);
    machine.prune((0..5).collect());
    assert_eq!(machine.held(), [5], "the hint came true");
    assert_eq!(machine.plan().statistics().pruned, 5);
    machine.read_back();
}

#[test]
fn hints_for_what_is_never_written_hold_no_room_for_ever() {
    let mut machine = Machine::new(&setup(&[20, 400], AfterRestore::Keep));
    machine.hint(vec![90, 91, 92, 93, 94, 0, 1, 2]);
    write(&mut machine, 0, [5; 6]);
    read(&mut machine, 0..3);
    // The hinted versions that were never written will not be read before these, so they no longer reserve room.
    let near = (0..6).filter(|&v| machine.tiers_with(v).contains(&0));
    assert!(near.count() >= 2, "room is held for what never came");
    let mut machine = Machine::new(&setup(&[20, 400], AfterRestore::Discard));
    machine.hint((100..200).collect());
    machine.forget_hints();
    write(&mut machine, 0, [4; 3]);
    read(&mut machine, (0..3).rev());
    assert_eq!(machine.plan().statistics().tiers[0].restores, 3);
}

#[test]
fn abandoned_calls_free_what_they_held() {
    let mut machine = Machine::new(&setup(&[10, 400], AfterRestore::Keep));
    let first = machine.checkpoint(0, 10, false);
    let second = machine.checkpoint(1, 10, false);
    let third = machine.checkpoint(2, 5, false);
    assert!(machine.is_granted(first) && !machine.is_granted(second));
    machine.abandon(second);
    machine.end(Ending::Write(first, false));
    assert!(machine.is_granted(third), "nothing stands before it");
    machine.end(Ending::Write(third, true));
    // The number and the room are free again.
    write(&mut machine, 1, [10]);
    let fourth = machine.checkpoint(3, 5, false);
    machine.end(Ending::Write(fourth, true));
    let wait = machine.wait();
    assert!(!machine.is_done(wait));
    machine.abandon(wait);
    machine.settle();
    assert!(
        !machine.is_done(wait),
        "given up, and answered all the same"
    );
    assert_eq!(machine.held(), [1, 2, 3]);
    assert_eq!(machine.refusals(), []);
    machine.read_back();
}
