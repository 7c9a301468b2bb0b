//! Tests of de-duplication without a GPU. All are in one program, as each further program would compile the optimised methods anew.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail like tests"
)]

mod algorithm1;
#[path = "../common/mod.rs"]
mod common;
mod consolidation;
mod hostile;
mod lineage;
mod methods;
