#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod flow;
mod problem;
mod schedule;
pub mod stores;
mod strategy;
mod time;
mod topology;

pub use error::{PlacementError, TopologyError};
pub use problem::{Problem, Share};
pub use schedule::{Bound, Cut, Destination, Route, Schedule, Transfer};
pub use strategy::{Greedy, LocalOnly, MinTimeMaxFlow, Strategy, UnitIncrement};
pub use time::ExactTime;
pub use topology::{GpuId, HostId, HostLinkId, Limit, LinkId, SwitchId, Topology};

/// The most bytes that one problem may place: 4 EiB.
pub const MAX_BYTES: u64 = 1 << 62;
/// The fastest link, in bytes per second: 1 PB/s.
pub const MAX_BANDWIDTH: u64 = 1_000_000_000_000_000;
/// The most bytes per second that all links and limits of a topology may add up to.
pub const MAX_TOTAL_BANDWIDTH: u64 = 1 << 62;
