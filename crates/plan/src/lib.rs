#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod command;
mod config;
mod discarded;
mod event;
mod hints;
mod ids;
mod ledger;
mod order;
mod plan;
mod policy;
mod predictor;
mod record;
mod reuse;
mod scan;
mod space;
mod statistics;
mod sums;
pub mod timeline;
mod traffic;
mod world;

pub use command::{Coding, Command, Difference, Piece, Place, Refusal, Transfer};
pub use config::{
    AfterRestore, ConfigError, Differences, ExtentSize, Overhead, PlanConfig, TierConfig,
};
pub use event::{Event, Misuse, Scope, Stored, TransferFailure};
pub use ids::{Ticket, TierId, TransferId, Version};
#[cfg(any(test, feature = "check"))]
pub use plan::Violation;
pub use plan::{Foreseen, Plan};
pub use policy::{Fifo, Lru, Policy, Residency, Score, Standing, Usage};
pub use reuse::Reuse;
pub use statistics::{
    Eviction, EvictionCause, HopStatistics, PrefetchDistance, Statistics, TierStatistics,
};
/// Windows of contiguous caches, for [`Policy::windows`].
pub use tierflow_evict as evict;
pub use world::{Executor, World};
