//! The places of versions that no hint names.

use crate::machine::{Machine, Setup};
use tierflow_plan::AfterRestore;

/// Without hints, on a device for two versions of four: a first reading does not say that the version is read no more.
#[test]
fn the_version_read_last_stays_until_another_is_read() {
    let setup = Setup {
        after: AfterRestore::Keep,
        ..Setup::new(&[10, 400])
    };
    let mut machine = Machine::new(&setup);
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
    // A program that reads on scans: each version gives way at once to those that were not read.
    read(&mut machine, &[2, 1]);
    assert_eq!(machine.tiers_with(1), [1]);
    assert_eq!(machine.tiers_with(0)[0], 0);
    // Read twice in succession.
    read(&mut machine, &[1, 1]);
    assert_eq!(machine.tiers_with(1)[0], 0);
    machine.read_back();
}
