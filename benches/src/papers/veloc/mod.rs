//! VeloC's active backend (IPDPS'19, Algorithms 1 to 3): producers write chunks to local stores, and threads flush them from there to
//! an external storage. Experiment `veloc` compares its policies with ours.
//!
//! Producers ask [`ChunkPlacement`] for a store before each chunk. It is a state machine: [`Event`]s come in with a time, [`Command`]s
//! go out. [`Backend`] has the threads. A storage that fails ends the run, as the paper has none that do. Chunks that
//! are not flushed when the backend is dropped are lost: [`Backend::wait`] first.

mod backend;
mod buffer;
mod error;
mod event;
mod flush;
mod placement;
mod policy;
mod state;
mod statistics;

pub use backend::{Backend, Options, Producer};
pub use buffer::Buffer;
pub use error::{Error, PlacementError, Result};
pub use event::{ChunkId, Command, Event, ProducerId};
pub use placement::ChunkPlacement;
pub use policy::{CacheOnly, HybridNaive, HybridOpt, HybridRoom, SsdOnly};
pub use statistics::Statistics;
