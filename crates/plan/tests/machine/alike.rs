//! A policy without an order of its own.

use tierflow_plan::{Policy, Standing, Usage};

/// A policy that gives all versions equal standings.
#[derive(Debug)]
pub(super) struct Alike;

impl Policy for Alike {
    fn standing(&self, _: &Usage) -> Standing {
        Standing::Waiting(7)
    }

    fn name(&self) -> &'static str {
        "alike"
    }
}
