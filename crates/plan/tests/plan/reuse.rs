//! Tests of the places of versions that no hint names.

use crate::machine::{Ending, Machine, Setup};
use tierflow_plan::{AfterRestore, HopStatistics, TierId};

/// Four versions on a device for two, without hints: a version that was read once stays, as it may be read again.
#[test]
fn the_version_read_last_stays_until_another_is_read() {
    let mut machine = Machine::new(&keeping(&[10, 400]));
    let read = |machine: &mut Machine, versions: &[u64]| {
        for &version in versions {
            machine.restore(version, false);
            machine.settle();
        }
    };
    for version in 0..4 {
        machine.checkpoint(version, 5, false);
        machine.settle();
    }
    read(&mut machine, &[3]);
    assert_eq!(machine.tiers_with(3)[0], 0);
    // A program that reads one version after the other scans them: each version makes room for unread ones at once.
    read(&mut machine, &[2, 1]);
    assert_eq!(machine.tiers_with(1), [1]);
    assert_eq!(machine.tiers_with(0)[0], 0);
    // Version 1 is read twice in succession.
    read(&mut machine, &[1, 1]);
    assert_eq!(machine.tiers_with(1)[0], 0);
    machine.read_back();
}

/// Reads 12 versions of 5 bytes twice in the same order, without hints, on a device for four and a host for three.
#[test]
fn a_second_pass_in_the_same_order_is_prefetched() {
    let mut machine = Machine::new(&keeping(&[20, 15, 400]));
    for version in 0..12 {
        machine.checkpoint(version, 5, false);
        machine.settle();
    }
    let order = [7, 2, 11, 5, 0, 9, 3, 10, 1, 6, 4, 8];
    let mut read = |versions: &[u64]| {
        let is_near = |machine: &Machine, version| machine.tiers_with(version)[0] == 0;
        let near = versions.iter().filter(|&&version| {
            let is_there = is_near(&machine, version);
            machine.restore(version, false);
            machine.settle();
            is_there
        });
        near.count()
    };
    let first = read(&order);
    // By its first reads the plan recognises the second pass.
    read(&order[..6]);
    assert_eq!((first < 6, read(&order[6..])), (true, 6));
    assert_eq!(
        machine.plan().hinted().count(),
        0,
        "the application's hints"
    );
    machine.read_back();
}

/// Reads some of 30 versions of 5 bytes, from an end on and at changing steps, without hints, on a device for three and a host for three.
#[test]
fn a_program_that_passes_versions_by_finds_the_next_ones_on_the_device() {
    let passed_by = [0, 2, 3, 5, 8, 9, 11, 12, 15, 17, 18, 21, 23, 24, 27];
    for is_newest_first in [true, false] {
        for after in [AfterRestore::Keep, AfterRestore::Discard] {
            let setup = Setup {
                after,
                ..keeping(&[15, 15, 400])
            };
            let mut machine = Machine::new(&setup);
            for version in 0..30 {
                machine.checkpoint(version, 5, false);
                machine.settle();
            }
            let mut near = 0;
            for from_end in passed_by {
                let version = if is_newest_first {
                    29 - from_end
                } else {
                    from_end
                };
                near += usize::from(machine.tiers_with(version)[0] == 0);
                machine.restore(version, false);
                machine.settle();
            }
            // All reads except the first ones, by which the plan finds the direction.
            assert!(near >= 12, "{near}, {is_newest_first}, {after:?}");
            machine.read_back();
        }
    }
}

/// Makes a machine that writes 40 versions of 5 bytes and reads every fourth one, up to 24. The plan then predicts 28, 32 and others.
fn strides() -> Machine {
    let mut machine = Machine::new(&keeping(&[10, 400]));
    for version in 0..40 {
        machine.checkpoint(version, 5, false);
        machine.settle();
    }
    for version in (0..28).step_by(4) {
        machine.restore(version, false);
        machine.settle();
    }
    assert_eq!(on_device(&machine), [28, 32]);
    machine
}

fn on_device(machine: &Machine) -> Vec<u64> {
    let versions = machine.held().into_iter();
    let is_there = |version: &u64| machine.tiers_with(*version)[0] == 0;
    versions.filter(is_there).collect()
}

/// The program hints each reading when the one before is over, so the device shows the versions that the plan expects after the hinted one.
#[test]
fn readings_behind_a_hint_for_the_next_one_are_predicted() {
    let mut machine = Machine::new(&keeping(&[20, 400]));
    for version in 0..40 {
        machine.checkpoint(version, 5, false);
        machine.settle();
    }
    for version in (0..32).step_by(4) {
        machine.hint(vec![version]);
        machine.settle();
        machine.restore(version, false);
        machine.settle();
    }
    machine.hint(vec![32]);
    machine.settle();
    let hinted: Vec<_> = machine.plan().hinted().collect();
    assert_eq!(hinted, [32], "the application's hints");
    let near = on_device(&machine);
    assert!(near.contains(&32) && near.contains(&36), "{near:?}");
    // A hint for another version than the predicted one ends all predictions.
    machine.hint(vec![3, 2]);
    machine.settle();
    assert_eq!(machine.plan().hinted().collect::<Vec<_>>(), [2, 3, 32]);
    machine.read_back();
}

/// The program reads 12 versions twice in the same order, on a device for four, and hints each reading when the one before is over.
#[test]
fn a_second_pass_is_prefetched_behind_hints_for_the_next_one() {
    for hint in [Machine::hint, Machine::hint_next] {
        let mut machine = Machine::new(&keeping(&[20, 15, 400]));
        for version in 0..12 {
            machine.checkpoint(version, 5, false);
            machine.settle();
        }
        let order = [7, 2, 11, 5, 0, 9, 3, 10, 1, 6, 4, 8];
        let mut near = 0;
        for (at, version) in order.into_iter().chain(order).enumerate() {
            let is_near = machine.tiers_with(version)[0] == 0;
            near += usize::from(at >= 18 && is_near);
            hint(&mut machine, vec![version]);
            machine.settle();
            machine.restore(version, false);
            machine.settle();
        }
        assert_eq!(near, 6);
    }
}

/// The program reads the two newest of 12 versions again and again, and hints each reading when the one before is over. Both stay on a
/// device for three.
#[test]
fn a_program_that_hints_one_ahead_has_its_order_learned() {
    for hint in [Machine::hint, Machine::hint_next] {
        let mut machine = Machine::new(&keeping(&[15, 400]));
        for version in 0..12 {
            machine.checkpoint(version, 5, false);
            machine.settle();
        }
        let mut far = 0;
        for round in 0..40 {
            let version = [2, 7, 2, 5, 7, 2, 5, 5, 7][round % 9];
            hint(&mut machine, vec![version]);
            far += usize::from(round >= 20 && machine.tiers_with(version)[0] > 0);
            machine.restore(version, false);
            machine.settle();
        }
        assert_eq!(far, 0);
        machine.read_back();
    }
}

/// The application hints a version that it will write later, and reads others in an order that it does not hint.
#[test]
fn predicted_readings_leave_hints_for_versions_to_be_written() {
    let mut machine = Machine::new(&keeping(&[20, 400]));
    for version in 0..40 {
        machine.checkpoint(version, 5, false);
        machine.settle();
    }
    machine.hint(vec![100]);
    for version in (0..32).step_by(4) {
        machine.restore(version, false);
        machine.settle();
    }
    assert_eq!(machine.plan().hinted().collect::<Vec<_>>(), [100]);
}

#[test]
fn predictions_give_way_to_hints() {
    let mut machine = strides();
    assert_eq!(machine.plan().hinted().count(), 0);
    machine.hint(vec![2, 3]);
    machine.settle();
    assert_eq!(on_device(&machine), [2, 3]);
    let hinted: Vec<_> = machine.plan().hinted().collect();
    assert_eq!(hinted, [3, 2]);
    machine.read_back();
}

#[test]
fn a_predicted_version_may_be_pruned() {
    let mut machine = strides();
    machine.prune(vec![28]);
    assert!(!machine.held().contains(&28));
}

/// No prediction remains as a hint of the application.
#[test]
fn predictions_end_whatever_becomes_of_their_readings() {
    let ends: [fn(&mut Machine); 3] = [
        |machine| {
            let ticket = machine.restore(28, false);
            machine.end(Ending::Read(ticket, false));
            machine.settle();
            machine.restore(3, false);
        },
        |machine| {
            machine.restore(28, false);
            machine.restore(3, false);
        },
        |machine| {
            machine.restore(28, false);
            machine.checkpoint(50, 5, false);
        },
    ];
    for end in ends {
        let mut machine = strides();
        end(&mut machine);
        assert_eq!(machine.plan().hinted().count(), 0);
        machine.settle();
        for version in (1..30).step_by(4) {
            machine.restore(version, false);
            machine.settle();
        }
        assert!(
            on_device(&machine).contains(&33),
            "the next run is followed"
        );
        machine.read_back();
    }
}

/// The version whose reading failed takes no room from the versions that are read next.
#[test]
fn the_prediction_of_a_reading_that_fails_is_taken_back() {
    let mut machine = strides();
    let ticket = machine.restore(28, false);
    machine.end(Ending::Read(ticket, false));
    machine.settle();
    assert_eq!(on_device(&machine), [32, 36]);
    machine.read_back();
}

fn keeping(capacities: &[u64]) -> Setup {
    Setup {
        after: AfterRestore::Keep,
        ..Setup::new(capacities)
    }
}

/// Hints readings, writes versions of 5 bytes, and reads them as hinted.
fn play(machine: &mut Machine, versions: u64, readings: &[u64]) {
    machine.hint(readings.to_vec());
    for version in 0..versions {
        machine.checkpoint(version, 5, false);
        machine.settle();
    }
    for &version in readings {
        machine.restore(version, false);
        machine.settle();
    }
}

/// Hinted versions have the room of the device before versions that were read and are not hinted again.
#[test]
fn versions_that_were_read_and_are_not_named_again_wait_for_those_that_are() {
    let mut machine = Machine::new(&keeping(&[15, 400]));
    machine.hint(vec![3, 4]);
    play(&mut machine, 5, &[0, 1, 2]);
    let is_above = |version: &u64| machine.tiers_with(*version)[0] == 0;
    let above: Vec<u64> = (0..5).filter(is_above).collect();
    assert_eq!(above, [2, 3, 4]);
    machine.read_back();
}

/// A version that was read goes to the middle tier, where it stays until it is read again. Over a shared link it waits for transfers that
/// come up.
#[test]
fn over_a_shared_link_read_versions_go_down_only_while_none_comes_up() {
    let [apart, shared] = [false, true].map(|shared| {
        let mut setup = keeping(&[40, 20, 400]);
        setup.tiers[1].shared = shared;
        let mut machine = Machine::new(&setup);
        let backwards = (0..12).rev();
        let readings: Vec<u64> = backwards.clone().chain(backwards).collect();
        play(&mut machine, 12, &readings);
        let hops = machine.plan().statistics().hops;
        machine.read_back();
        let down = |hop: &&HopStatistics| (hop.from, hop.to) == (TierId(0), TierId(1));
        hops.iter().find(down).map_or(0, |hop| hop.bytes)
    });
    assert!(shared < apart, "{shared} of {apart}");
}

/// The program reads one version between two checkpoints. The device has room for two versions: the one read next, and the next checkpoint.
#[test]
fn a_version_read_behind_the_next_checkpoint_leaves_it_its_room() {
    // A failed checkpoint and its repetition count as one checkpoint.
    for fails in [false, true] {
        let mut machine = Machine::new(&keeping(&[10, 400]));
        play(&mut machine, 4, &[]);
        machine.hint((0..8).collect());
        for read in [0, 1, 2] {
            machine.restore(read, false);
            machine.settle();
            if fails {
                let ticket = machine.checkpoint(4 + read, 5, false);
                machine.end(Ending::Write(ticket, false));
            }
            machine.checkpoint(4 + read, 5, false);
            machine.settle();
        }
        let tiers = [3, 4].map(|version| machine.tiers_with(version)[0]);
        assert_eq!(tiers, [0, 1], "fails: {fails}");
        machine.read_back();
    }
}
