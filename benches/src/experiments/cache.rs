//! The paper's histories in the engine itself, and the names of their orders and hints.

use tierflow_sim::{Hints, Order};

mod inputs;
pub mod real;

pub(crate) use inputs::recorded_shots;

const ORDERS: [(&str, Order); 3] = [
    ("sequential", Order::Sequential),
    ("reverse", Order::Reverse),
    ("irregular", Order::Irregular(1)),
];

/// Returns the hints of this name.
fn hints_of(name: &str) -> Hints {
    match name {
        "single" => Hints::Single,
        "all" => Hints::All,
        _ => Hints::None,
    }
}
