use thiserror::Error;

use super::{ChunkId, ProducerId, StoreId};

/// Why samples do not make a [`Calibration`](super::Calibration): measure again.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum CalibrationError {
    /// There is no sample.
    #[error("no sample was given: measure the store with at least one number of writers")]
    NoSamples,
    /// The numbers of writers must start at 1 or later and rise.
    #[error(
        "{first} writers in steps of {step} is no series: start with 1 or more, step by 1 or more"
    )]
    BadSteps {
        /// Writers in the first sample.
        first: u32,
        /// Writers from one sample to the next.
        step: u32,
    },
    /// A throughput is zero, negative, infinite or not a number.
    #[error("{throughput} bytes/s with {writers} writers is no throughput: measure that again")]
    BadSample {
        /// Writers in the sample.
        writers: u64,
        /// What was given, in bytes per second.
        throughput: f64,
    },
}

/// Why the [`ChunkPlacement`](super::ChunkPlacement) refused; it is unchanged.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlacementError {
    /// Chunks of no bytes.
    #[error("chunks of 0 bytes hold nothing: give them a size")]
    NoChunkSize,
    /// A flush bandwidth that is zero, negative, infinite or not a number.
    #[error(
        "a flush bandwidth of {0} bytes/s is not valid: give what an earlier run measured, or nothing"
    )]
    BadBandwidth(f64),
    /// The policy has no store that it may use and that holds a chunk.
    #[error("the policy {policy} has no store with room for one chunk: give it one")]
    NoStore {
        /// Its name.
        policy: &'static str,
    },
    /// A chunk that is larger than chunks are, or empty.
    #[error("{producer} asked for a chunk of {bytes} bytes: chunks have 1 to {most}")]
    BadChunk {
        /// The producer that asked.
        producer: ProducerId,
        /// What was asked for.
        bytes: u64,
        /// The size of chunks in bytes.
        most: u64,
    },
    /// The producer waits for a store or writes to one: it asks again when its chunk is written.
    #[error("{0} has asked already: it asks again when its chunk is written")]
    Busy(ProducerId),
    /// The producer does not wait.
    #[error("{0} does not wait for a store")]
    DoesNotWait(ProducerId),
    /// The chunk is not being written.
    #[error("{0} is not being written")]
    NotWriting(ChunkId),
    /// The chunk is not being flushed.
    #[error("{0} is not being flushed")]
    NotFlushing(ChunkId),
    /// There is no such store.
    #[error("there is no {0}")]
    NoSuchStore(StoreId),
}
