use super::{ChunkId, ProducerId};

/// The result of the module's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a [`Backend`](super::Backend) could not do something. The variant says what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stores, the policy or the sizes do not go together: see there.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A local store or the external storage failed: see there. The checkpoints of this backend are lost.
    #[error(transparent)]
    Store(#[from] tierflow_store::Error),
    /// The chunk size is not a multiple of the alignment of a store: choose one that is.
    #[error(
        "chunks of {chunk_size} bytes are not multiples of the {alignment} bytes that a store writes"
    )]
    ChunkSize {
        /// The chunk size in bytes.
        chunk_size: usize,
        /// The store's alignment in bytes.
        alignment: usize,
    },
    /// The system gives no thread.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Why the [`ChunkPlacement`](super::ChunkPlacement) refused; it is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlacementError {
    /// Chunks of no bytes.
    #[error("chunks of 0 bytes hold nothing: give them a size")]
    NoChunkSize,
    /// The policy has no store that it may use and that holds a chunk.
    #[error("the policy {policy} has no store with room for one chunk: give it one")]
    NoStore {
        /// The policy's name.
        policy: &'static str,
    },
    /// A chunk that is larger than chunks are, or empty.
    #[error("{producer} asked for a chunk of {bytes} bytes: chunks have 1 to {most}")]
    BadChunk {
        /// The producer that asked.
        producer: ProducerId,
        /// The bytes that were asked for.
        bytes: u64,
        /// The size of chunks in bytes.
        most: u64,
    },
    /// The producer waits for a store or writes to one: it asks again when its chunk is written.
    #[error("{0} has asked already: it asks again when its chunk is written")]
    Busy(ProducerId),
    /// The chunk is not being written.
    #[error("{0} is not being written")]
    NotWriting(ChunkId),
    /// The chunk is not being flushed.
    #[error("{0} is not being flushed")]
    NotFlushing(ChunkId),
}
