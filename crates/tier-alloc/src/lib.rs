#![doc = include_str!("../README.md")]
//!
//! # How an arena grows
//!
//! ```text
//! device   reserve addresses ─► map chunk 0 ─► map chunk 1 ─► …            usable: what is mapped
//! host     reserve addresses ─► touch pieces (several threads) ─► pin them in order, with pauses
//!                                                                          usable: all, from the start
//! ```
//!
//! The diagram shows the default. The strategies that it was measured against, those of HiPC'22 and of the driver, need
//! the feature `baselines`: see [`DeviceGrowth`] and [`HostGrowth`].
//!
//! Each arena has a few threads, which end with it. Levels ([`DeviceArena::usable`],
//! [`HostArena::touched`], [`HostArena::pinned`]) rise, and fall only when memory is given back
//! ([`DeviceArena::resize`], [`HostArena::resize`]). Reading a level costs one load.
//!
//! **Absent on purpose.** The crate has no allocator: the owner of the arena decides which offset is used for what.

#![forbid(unsafe_code)]

mod device_arena;
mod directory;
mod error;
mod gate;
mod host_arena;
mod pool;
mod rhythm;
mod ring;
mod sync;
mod watermark;
mod workers;

pub use device_arena::{DeviceArena, DeviceGrowth, DeviceOptions, DeviceReport, Mapped};
pub use error::{Error, Result};
pub use gate::{Gate, Pass};
#[cfg(feature = "baselines")]
pub use host_arena::{Baseline, Figures, Touching};
pub use host_arena::{
    HostArena, HostGrowth, HostOptions, HostReport, NodeObtained, Numa, Pace, PinTurns, Sample,
    Transferring,
};
pub use pool::{HostPool, Lease, PoolMember, PoolOptions, Terms, Wake};
pub use ring::Ring;
