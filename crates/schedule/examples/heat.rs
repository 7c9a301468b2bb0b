//! Reverses a heat equation by a plan and compares the gradient with that of stored states, bit by bit.
//!
//! `cargo run -p tierflow-schedule --example heat`

use std::collections::HashMap;
use std::time::Duration;
use tierflow_schedule::{Action, Machine, Plan, Tier};

const CELLS: usize = 64;
const STEPS: usize = 500;

type Field = [f64; CELLS];

/// Computes a step of a heat equation whose conductivity grows with the temperature.
fn forward(field: &Field) -> Field {
    std::array::from_fn(|cell| {
        let at = |cell: usize| field[cell % CELLS];
        let flow = at(cell + 1) - 2.0 * at(cell) + at(cell + CELLS - 1);
        at(cell) + 0.1 * (1.0 + 0.1 * at(cell)) * flow
    })
}

/// Computes the adjoint of a step at its first state.
fn reverse(field: &Field, adjoint: &Field) -> Field {
    let mut before = *adjoint;
    for cell in 0..CELLS {
        let (left, right) = ((cell + CELLS - 1) % CELLS, (cell + 1) % CELLS);
        let flow = field[right] - 2.0 * field[cell] + field[left];
        let by = 0.1 * (1.0 + 0.1 * field[cell]) * adjoint[cell];
        before[right] += by;
        before[left] += by;
        before[cell] += 0.01 * flow * adjoint[cell] - 2.0 * by;
    }
    before
}

/// Returns the gradient of half the sum of squares after the last step.
fn by_plan(plan: &Plan, first: Field) -> Field {
    let (mut work, mut adjoint) = (first, [0.0; CELLS]);
    let mut stored = HashMap::new();
    for action in plan.actions() {
        match action {
            Action::Forward { from, to } => (from..to).for_each(|_| work = forward(&work)),
            Action::Save { step, .. } => drop(stored.insert(step, work)),
            Action::EndForward => adjoint = work,
            Action::Restart { step } => work = stored[&step],
            Action::Forget { step } => drop(stored.remove(&step)),
            Action::Reverse { .. } => adjoint = reverse(&work, &adjoint),
        }
    }
    adjoint
}

fn by_storing_all(first: Field) -> Field {
    let mut states = vec![first];
    for step in 0..STEPS {
        states.push(forward(&states[step]));
    }
    let mut adjoint = states[STEPS];
    for step in (0..STEPS).rev() {
        adjoint = reverse(&states[step], &adjoint);
    }
    adjoint
}

fn main() {
    let machine = Machine {
        forward: Duration::from_micros(100),
        backward: Duration::from_micros(250),
        state: 1 << 20,
        device: 8 << 20,
        tiers: vec![
            Tier {
                room: 64 << 20,
                down: 5e9,
                up: 5e9,
            },
            Tier {
                room: u64::MAX,
                down: 1e9,
                up: 1e9,
            },
        ],
        copy: 1e11,
        codec: None,
    };
    let plan = Plan::best(&machine, STEPS);
    let first = std::array::from_fn(|cell| (cell as f64 / 7.0).sin());
    let equal = by_plan(&plan, first)
        .iter()
        .zip(by_storing_all(first))
        .all(|(a, b)| a.to_bits() == b.to_bits());
    println!(
        "expected {:?}, at least {:?}",
        plan.expected(),
        plan.bound().time
    );
    println!(
        "the best schedule that waits for its transfers: {:?}",
        machine.blocking(STEPS)
    );
    println!("equal to the gradient of stored states, to the bit: {equal}");
    if !equal {
        std::process::exit(1);
    }
}
