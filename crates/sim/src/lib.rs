#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bound;
mod client;
pub mod cluster;
mod error;
mod hardware;
mod network;
mod ordered;
mod outcome;
mod recorder;
pub mod scale;
mod simulation;
pub mod sweep;
mod workload;

pub use bound::{Bound, fluid_bound};
pub use error::{Error, Result};
pub use hardware::{Hardware, Hop, Link, Tier, UNLIMITED};
pub use outcome::{ClientOutcome, Outcome, Stalls};
pub use simulation::Simulation;
pub use workload::{
    Hints, Mistake, Mistakes, Op, Order, Schedule, Shot, Workload, made_up_sizes, sizes_from_csv,
};
