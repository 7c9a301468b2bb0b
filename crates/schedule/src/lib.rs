#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod action;
#[cfg(feature = "engine")]
pub mod adjoint;
mod binomial;
mod blocking;
mod bound;
mod estimate;
mod machine;
mod online;
mod plan;
mod replay;
mod residency;
mod reversal;
mod schedule;
mod search;
mod shape;
mod simplex;
mod stream;

pub use action::Action;
pub use bound::Bound;
pub use estimate::Estimate;
pub use machine::{Codec, Machine, Tier};
pub use plan::Plan;
pub use schedule::Schedule;
