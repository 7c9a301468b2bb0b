//! VeloC's active backend: its decisions, and its threads on real files.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod backend;
mod orders;
mod placement;
mod store;
mod virtual_time;
