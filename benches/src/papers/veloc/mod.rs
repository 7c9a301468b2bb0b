//! VeloC's active backend (IPDPS'19, Algorithms 1 to 3): producers write chunks to local stores, and threads flush them from there to
//! an external storage. Experiment `veloc` compares its policies with ours.
//!
//! [`ChunkPlacement`] decides, and has no thread, clock or file. [`Backend`] has the threads. A storage that fails ends the run, as the
//! paper does not treat failures. Chunks that are not flushed when the backend is dropped are lost: call [`Backend::wait`] first.

mod backend;
mod buffer;
mod placement;
mod policy;

pub use backend::Backend;
pub use buffer::Buffer;
pub use placement::{Chunk, ChunkFlush, ChunkPlacement, ChunkWrite};
pub use policy::{CacheOnly, HybridNaive, HybridOpt, HybridRoom, SsdOnly};
