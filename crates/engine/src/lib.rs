#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod blocked;
mod builder;
mod call;
mod clock;
mod close;
mod deadline;
mod engine;
mod error;
mod explain;
mod families;
mod flush;
mod hints;
mod history;
mod kind;
mod metrics;
mod notice;
mod policy_guard;
mod region;
mod report;
mod run;
mod slot;
mod suspend;
mod version_regions;

pub use blocked::{Calls, Cause, Times};
pub use builder::{EngineBuilder, MemoryCache, Tier};
pub use call::Call;
pub use deadline::Awaited;
pub use engine::{Cache, Engine};
pub use error::{BuildError, Error, PartError, Result};
pub use flush::Flush;
pub use hints::Hints;
pub use history::{Damage, Group, read_piece, read_regions};
pub use metrics::{CompressionMetrics, HopMetrics, Metrics, Reports, TierMetrics, Waits};
pub use notice::Notice;
pub use region::{Region, RegionMut};
#[cfg(feature = "stage")]
pub use run::encode::{Bound, CompressedTiers, Compression, Differences, NvcompCodec, Value};
pub use slot::{ConsumeSlot, ProduceSlot};
pub use suspend::Suspension;
pub use tierflow_plan as plan;
pub use tierflow_plan::timeline::{Timeline, TimelineLane, What};
pub use tierflow_plan::{AfterRestore, PrefetchDistance, Version};
pub use tierflow_store::Retention;
pub use tierflow_store::container::{Element, RegionInfo};
pub use tierflow_transfer::{DirectIo, StraightStatistics, WayBytes};
