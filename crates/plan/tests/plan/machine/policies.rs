//! Policies by number, including one without an order.

use tierflow_plan::{Fifo, Lru, Policy, Residency, Score, Standing, Usage};

/// A policy that gives all versions equal standings.
#[derive(Debug)]
struct Alike;

impl Policy for Alike {
    fn standing(&self, _: &Usage) -> Standing {
        Standing::Waiting(7)
    }

    fn name(&self) -> &'static str {
        "alike"
    }
}

pub(super) fn policy(kind: usize) -> Box<dyn Policy> {
    match kind {
        0 => Box::new(Residency),
        1 => Box::new(Lru),
        2 => Box::new(Fifo),
        3 => Box::new(Score),
        _ => Box::new(Alike),
    }
}
