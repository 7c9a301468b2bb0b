//! Tests of calls whose copies end before the plan hears of the calls.

use crate::machine::{Ending, Machine, Setup};
use tierflow_plan::{AfterRestore, Plan, TierId};
use tierflow_testing::Draws;

/// A plan that hears of small calls when they are over ends in the same state as a plan that grants them. (Over several tiers, a plan
/// that grants begins transfers between a grant and the end of the copy.)
#[test]
fn calls_at_once_leave_the_plan_as_granted_ones_do() {
    let mut at_once = 0;
    for seed in 0..60_u64 {
        let mut setup = Setup::new(&[40]);
        setup.after = match seed % 2 {
            0 => AfterRestore::Keep,
            _ => AfterRestore::Discard,
        };
        setup.policy = seed as usize % 5;
        let machines = &mut [Machine::new(&setup), Machine::new(&setup)];
        let mut draws = Draws(seed);
        for version in 0..60 {
            let size = 1 + draws.below(6);
            let read = machines[0].held();
            let read = read.get(draws.below(20) as usize).copied();
            for (machine, is_asked) in machines.iter_mut().zip([true, false]) {
                if is_asked || !machine.write_at_once(version, size) {
                    let ticket = machine.checkpoint(version, size, false);
                    if machine.is_granted(ticket) {
                        machine.end(Ending::Write(ticket, true));
                    }
                } else {
                    at_once += 1;
                }
                machine.settle();
                let Some(read) = read else { continue };
                if is_asked || !machine.read_at_once(read) {
                    let ticket = machine.restore(read, false);
                    if machine.is_granted(ticket) {
                        machine.end(Ending::Read(ticket, true));
                    }
                } else {
                    at_once += 1;
                }
                machine.settle();
            }
            let [asked, told] = machines.each_ref().map(|machine| machine.plan());
            let at = format!("version {version} of seed {seed}");
            assert_eq!(asked.statistics(), told.statistics(), "{at}");
            let pieces = |plan: &Plan| {
                let versions = 0..=version;
                let pieces = versions.map(|version| plan.pieces(version, TierId::FASTEST));
                pieces.collect::<Vec<_>>()
            };
            assert_eq!(pieces(asked), pieces(told), "{at}");
        }
    }
    assert!(at_once > 2_000, "{at_once}");
}
