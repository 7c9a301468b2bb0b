#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod builder;
mod engine;
mod error;
mod in_place;
mod kind;
mod lasting;
mod metrics;
pub mod plan;
mod region;
mod run;

pub use builder::{EngineBuilder, Flush};
pub use engine::Engine;
pub use error::{Error, Result};
pub use in_place::{ConsumeSlot, ProduceSlot};
pub use metrics::{Calls, HopMetrics, Metrics, TierMetrics};
pub use plan::AfterRestore;
pub use region::{Region, RegionMut};
pub use tierflow_store::Retention;

/// The number of a checkpoint. It names one content for the whole life of an engine and is never used again.
pub type Version = u64;
