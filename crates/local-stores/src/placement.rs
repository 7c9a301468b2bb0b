//! Which local store a producer writes its next chunk to, and when that chunk is flushed.
//!
//! Several local stores (a memory file system, an SSD …) stand in front of one external storage.
//! Checkpoints are cut into chunks of one size. A producer asks for a store before each chunk; the
//! [`ChunkPlacement`] answers in the order of asking, by a [`StorePolicy`] that knows what a
//! [`Calibration`] predicts for each store and how fast flushes have been lately
//! (*VeloC: Towards High Performance Adaptive Asynchronous Checkpointing at Large Scale*, Nicolae et
//! al., IPDPS'19, §IV).
//!
//! Nothing here reads, writes, waits or looks at a clock: [`Event`]s come in with a time, [`Command`]s
//! go out.
//!
//! ```
//! use tierflow_local_stores::placement::{
//!     ChunkPlacement, Calibration, Command, Event, HybridOpt, ProducerId, Store, StoreId,
//! };
//!
//! // Bytes per second of all writers together, with 1, 5, 9 and 13 of them.
//! let memory = Calibration::new(1, 4, &[9e9, 20e9, 24e9, 25e9])?;
//! let ssd = Calibration::new(1, 4, &[0.9e9, 0.7e9, 0.5e9, 0.45e9])?;
//! let stores = vec![Store::new(memory, 1), Store::new(ssd, 1000)];
//! let mut backend = ChunkPlacement::new(64 << 20, stores, Box::new(HybridOpt))?;
//!
//! let mut commands = Vec::new();
//! for (producer, bytes) in [(1, 64 << 20), (2, 64 << 20)] {
//!     let ask = Event::ChunkAsked { producer: ProducerId(producer), bytes };
//!     backend.handle(0, ask, &mut commands)?;
//! }
//! // The memory has room for one chunk. Nothing was flushed yet, so the SSD is better than waiting.
//! let is_for = |command: &Command, wanted: usize| {
//!     matches!(command, Command::Write { store: StoreId(store), .. } if *store == wanted)
//! };
//! assert!(is_for(&commands[0], 0) && is_for(&commands[1], 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backend;
mod calibration;
mod chunk_map;
mod clock;
mod error;
mod event;
mod flush_bandwidth;
mod policy;
mod store;

pub use backend::ChunkPlacement;
pub use calibration::Calibration;
pub use chunk_map::{ChunkMap, Extent, Placed};
pub use error::{CalibrationError, PlacementError};
pub use event::{ChunkId, Command, Event, ProducerId, StoreId};
pub use flush_bandwidth::FlushBandwidth;
pub use policy::{
    Backlog, CacheOnly, FlushOrder, HybridNaive, HybridOpt, HybridRoom, ShortestWait, SsdOnly,
    StorePolicy, StoreState,
};
pub use store::{Statistics, Store};
