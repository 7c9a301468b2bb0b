#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod builder;
mod engine;
mod error;
mod flush;
mod in_place;
mod kind;
mod lasting;
mod metrics;
pub mod plan;
mod region;
mod run;
mod seeing;
mod timeline;

pub use builder::EngineBuilder;
pub use engine::Engine;
pub use error::{Error, Result};
pub use flush::Flush;
pub use in_place::{ConsumeSlot, ProduceSlot};
pub use lasting::Damage;
pub use metrics::{Calls, Evictions, HopMetrics, Metrics, Stalls, TierMetrics};
pub use plan::{AfterRestore, PrefetchDistance};
pub use region::{Region, RegionMut};
pub use tierflow_store::Retention;
pub use timeline::{Timeline, TimelineLane, What};

/// The number of a checkpoint. It names one content for the whole life of an engine and is never used again.
pub type Version = u64;
