//! Tests of the plan. All are in one program, as each further program would compile the machine and the plan's optimised code anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod at_once;
mod differences;
mod explore;
mod from_above;
mod hints;
mod histories;
mod machine;
mod misuse;
mod model;
mod reuse;
mod rules;
mod suspending;
mod waits;
