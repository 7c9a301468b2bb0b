//! Compares the makespan with the optimum of a linear program, and checks every schedule on its machine, on random machines.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may panic"
)]

mod machine;

use std::collections::HashMap;
use std::num::NonZeroU64;

use machine::{Machine, Resource, machines};
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, SolveOutcome, Variable};
use proptest::prelude::*;
use proptest::strategy::{Strategy as _, ValueTree};
use proptest::test_runner::TestRunner;
use tierflow_placement::{
    Destination, Greedy, LocalOnly, MinTimeMaxFlow, PlacementError, Strategy, UnitIncrement,
};

const CASES: u32 = 10_000;
/// Scales to GB/s and MB, at which 64 bits do not suffice for exact arithmetic.
const SPEED: u64 = 1_000_000_000;
const BYTES: u64 = 1_000_000;

/// Returns the shortest time in which a machine places all bytes, in its own units, or `None` if it cannot.
fn linear_program(machine: &Machine) -> Option<f64> {
    let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
    let time = program.add_var(1.0, (0.0, f64::INFINITY));
    let mut loads: HashMap<Resource, (u64, Vec<Variable>)> = HashMap::new();
    let mut places: HashMap<Destination, Vec<Variable>> = HashMap::new();
    for gpu in 0..machine.shares.len() {
        let mut sent = LinearExpr::empty();
        let remainder = machine.remainder(gpu);
        let ways = if remainder > 0 {
            machine.ways(gpu)
        } else {
            vec![]
        };
        if remainder > 0 && ways.is_empty() {
            return None;
        }
        for way in ways {
            let flow = program.add_var(0.0, (0.0, f64::INFINITY));
            sent.add(flow, 1.0);
            places.entry(machine.end(way)).or_default().push(flow);
            for (resource, bandwidth) in machine.resources(gpu, way) {
                let load = loads.entry(resource).or_insert((bandwidth, vec![]));
                load.1.push(flow);
            }
        }
        if remainder > 0 {
            program.add_constraint(sent, ComparisonOp::Eq, remainder as f64);
        }
    }
    for (bandwidth, flows) in loads.into_values() {
        let mut load: LinearExpr = flows.into_iter().map(|flow| (flow, 1.0)).collect();
        load.add(time, -(bandwidth as f64));
        program.add_constraint(load, ComparisonOp::Le, 0.0);
    }
    for (place, flows) in places {
        let room = match place {
            Destination::Peer(gpu) => Some(machine.spare(gpu.0)),
            Destination::Host(host) => machine.hosts[host.0].0,
        };
        if let Some(room) = room {
            let used: LinearExpr = flows.into_iter().map(|flow| (flow, 1.0)).collect();
            program.add_constraint(used, ComparisonOp::Le, room as f64);
        }
    }
    match program.solve() {
        Ok(SolveOutcome::Solution(solution)) => Some(solution.objective()),
        Err(microlp::Error::Infeasible) => None,
        other => panic!("the LP solver gave up: {other:?}"),
    }
}

fn is_no_place(error: &PlacementError) -> bool {
    matches!(
        error,
        PlacementError::DoesNotFit { .. } | PlacementError::Disconnected { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn the_bound_is_the_linear_programs_optimum(machine in machines()) {
        let topology = machine.topology(SPEED);
        let problem = machine.problem(&topology, BYTES);
        let found = MinTimeMaxFlow::default().schedule(&problem);
        match (linear_program(&machine), found) {
            (None, Err(error)) => prop_assert!(is_no_place(&error), "{error}"),
            (Some(time), Ok(schedule)) => {
                machine.check(&schedule, 1, SPEED, BYTES);
                let bound = schedule.bound().unwrap();
                let wanted = time * BYTES as f64 / SPEED as f64;
                let is = bound.time.as_secs_f64();
                prop_assert!((is - wanted).abs() <= 1e-9 * wanted, "{is} s, not {wanted} s");
                // A schedule of whole bytes takes longer, by about a byte on the slowest link.
                let makespan = schedule.makespan();
                prop_assert!(makespan >= bound.time);
                prop_assert!(makespan.as_secs_f64() <= is + 1.01 / SPEED as f64);
                // The cut alone proves that no schedule is faster.
                let cut = &bound.cut;
                let left = cut.remainder - cut.room;
                prop_assert_eq!(
                    u128::from(left) * u128::from(bound.time.denominator()),
                    u128::from(cut.bandwidth) * u128::from(bound.time.numerator())
                );
            }
            (wanted, found) => prop_assert!(false, "LP: {wanted:?}, we: {found:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The published algorithm is optimal in its units, and this crate's strategy in multiples of the alignment.
    #[test]
    fn whole_multiples_are_placed_as_well_as_unit_by_unit(
        machine in machines(),
        alignment in 1..64_u64,
    ) {
        let topology = machine.topology(1);
        let problem = machine.problem(&topology, 1).aligned_to(alignment).unwrap();
        let by_unit = UnitIncrement::new(NonZeroU64::MIN).schedule(&problem);
        let found = MinTimeMaxFlow::default().schedule(&problem);
        match (by_unit, found) {
            (Err(theirs), Err(ours)) => {
                prop_assert!(is_no_place(&theirs) && is_no_place(&ours), "{theirs} {ours}");
            }
            (Ok(theirs), Ok(ours)) => {
                machine.check(&theirs, alignment, 1, 1);
                machine.check(&ours, alignment, 1, 1);
                // The last part of a multiple counts as a whole one in the placement, but not in the makespan.
                prop_assert_eq!(machine.rounded(&theirs, alignment), machine.rounded(&ours, alignment));
                prop_assert!(ours.makespan() >= ours.bound().unwrap().time);
            }
            (theirs, ours) => prop_assert!(false, "{theirs:?} {ours:?}"),
        }
    }

    /// With any alignment, the bound holds for the bytes themselves, and the optimum for the rounded problem.
    #[test]
    fn baselines_obey_every_capacity_and_beat_neither_the_bound_nor_the_optimum(
        machine in machines(),
        alignment in 1..64_u64,
        large in any::<bool>(),
    ) {
        let (speed, bytes) = if large { (SPEED, BYTES) } else { (1, 1) };
        let topology = machine.topology(speed);
        let problem = machine.problem(&topology, bytes).aligned_to(alignment).unwrap();
        let optimum = MinTimeMaxFlow::default().schedule(&problem);
        if let Ok(best) = &optimum {
            machine.check(best, alignment, speed, bytes);
            prop_assert!(best.makespan() >= best.bound().unwrap().time);
        }
        for strategy in [&mut Greedy as &mut dyn Strategy, &mut LocalOnly] {
            match strategy.schedule(&problem) {
                Ok(schedule) => {
                    machine.check(&schedule, alignment, speed, bytes);
                    let best = optimum.as_ref().unwrap();
                    prop_assert!(schedule.makespan() >= best.bound().unwrap().time);
                    let rounded = |schedule| machine.rounded(schedule, alignment);
                    prop_assert!(rounded(&schedule) >= rounded(best));
                }
                Err(error) => prop_assert!(is_no_place(&error), "{error}"),
            }
        }
    }

    /// A strategy that is used again gives the same schedule as a new one.
    #[test]
    fn scratch_memory_carries_nothing_over(first in machines(), second in machines()) {
        let (a, b) = (first.topology(SPEED), second.topology(SPEED));
        let mut kept = MinTimeMaxFlow::default();
        let _ = kept.schedule(&first.problem(&a, BYTES));
        let problem = second.problem(&b, BYTES);
        prop_assert_eq!(kept.schedule(&problem), MinTimeMaxFlow::default().schedule(&problem));
    }
}

/// The random machines must be neither mostly trivial nor mostly without a schedule, as the tests above would show little then.
#[test]
fn random_machines_are_of_every_kind() {
    let mut runner = TestRunner::deterministic();
    let (mut placed, mut refused, mut several, mut rooms) = (0, 0, 0, 0);
    for _ in 0..1000 {
        let machine = machines().new_tree(&mut runner).unwrap().current();
        let topology = machine.topology(SPEED);
        match MinTimeMaxFlow::default().schedule(&machine.problem(&topology, BYTES)) {
            Ok(schedule) => {
                let cut = &schedule.bound().unwrap().cut;
                placed += u32::from(!schedule.transfers().is_empty());
                several += u32::from(cut.gpus.len() > 1);
                rooms += u32::from(cut.room > 0);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        placed > 250 && refused > 100 && several > 50 && rooms > 20,
        "{placed} {refused} {several} {rooms}"
    );
}
