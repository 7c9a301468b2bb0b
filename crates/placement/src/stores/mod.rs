//! The spread of chunks over several local stores, such as a memory file system and an SSD.
//!
//! A [`StorePolicy`] chooses the store of the next chunk by the prediction of each store's [`Calibration`] and by the bandwidth of
//! its last writes (*VeloC: Towards High Performance Adaptive Asynchronous Checkpointing at Large Scale*, Nicolae et al.,
//! IPDPS'19, §IV). A [`ChunkMap`] knows the place of each chunk of a volume. `tierflow_transfer::volume` writes and reads there.
//! Times are arguments, in nanoseconds.
//!
//! ```
//! use tierflow_placement::stores::{Calibration, ChunkMap, ShortestWait, Store};
//!
//! // Bytes per second of all writers together, with 1, 5, 9 and 13 of them.
//! let memory = Calibration::new(1, 4, &[9e9, 20e9, 24e9, 25e9])?;
//! let ssd = Calibration::new(1, 4, &[0.9e9, 0.7e9, 0.5e9, 0.45e9])?;
//! let stores = vec![Store::new(memory, 1), Store::new(ssd, 1000)];
//! let mut map = ChunkMap::new(1 << 20, stores, Box::new(ShortestWait), 0);
//! // The memory has room for one chunk, and the SSD for all others.
//! for (at, store) in [0, 1].into_iter().enumerate() {
//!     let start = (at as u64) << 20;
//!     let placed = map.place(0, start..start + (1 << 20), &[]).expect("there is room");
//!     assert_eq!(placed.extent.store.0, store);
//!     map.written(1_000_000, &placed);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calibration;
mod chunk_map;
mod clock;
mod error;
mod flush_bandwidth;
mod policy;
mod store;

pub use calibration::Calibration;
pub use chunk_map::{ChunkMap, Extent, Placed};
pub use error::CalibrationError;
pub use flush_bandwidth::FlushBandwidth;
pub use policy::{Backlog, FlushOrder, ShortestWait, StorePolicy, StoreState};
pub use store::{Store, StoreId, StoreWrite};
