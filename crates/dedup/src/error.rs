//! Errors, sorted by what the caller does next.

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons why a call failed. The variant says what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are wrong, and will be wrong again: mend the caller.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The bytes are damaged, or no difference: get another copy.
    #[error("the stored difference{} is damaged: {what}; get another copy", of(.version))]
    Corrupt {
        /// The version, if it could be read.
        version: Option<u64>,
        /// The defect.
        what: &'static str,
    },
    /// The chain lacks a difference on which a version is based: add it.
    #[error(
        "{what} needs the difference with ordinal {ordinal}, which is not in the chain: add it"
    )]
    Missing {
        /// The version that needs the difference.
        what: String,
        /// Ordinal of the missing difference.
        ordinal: u32,
    },
    /// The difference belongs to another lineage than those in the chain: sort them.
    #[error("version {version} is of another lineage: its {what} differs")]
    Foreign {
        /// The version that does not fit.
        version: u64,
        /// The property that differs.
        what: &'static str,
    },
    /// A kernel could not be started in the middle of a checkpoint, so the lineage's device memory is undefined: resume
    /// a lineage from the stored differences.
    #[error("the lineage broke when a kernel could not be started: resume it from what is stored")]
    Broken,
    /// The device failed or refused.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] tierflow_device::Error),
}

/// Errors in the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The chunk size is not supported.
    #[error("chunks of {chunk} bytes: they must be a power of two from 32 to 65536 bytes")]
    Chunk {
        /// Bytes asked for.
        chunk: u32,
    },
    /// The checkpoint has 0 bytes.
    #[error("a checkpoint of 0 bytes: there must be at least one")]
    Empty,
    /// The checkpoint has more chunks than an entry can number.
    #[error("{len} bytes are more than 2^31 chunks of {chunk} bytes: take larger chunks")]
    TooManyChunks {
        /// Bytes of the checkpoint.
        len: u64,
        /// Bytes of a chunk.
        chunk: u32,
    },
    /// The checkpoint's length differs from that of the lineage's checkpoints.
    #[error("a checkpoint of {len} bytes in a lineage of {expected} bytes: start a new lineage")]
    Length {
        /// Bytes given.
        len: u64,
        /// Bytes of the lineage's checkpoints.
        expected: u64,
    },
    /// The version is not larger than the last one.
    #[error("version {version} after version {last}: versions of a lineage must grow")]
    VersionOrder {
        /// The version given.
        version: u64,
        /// The version before it.
        last: u64,
    },
    /// The chain has no such version.
    #[error("version {version} is not in the chain")]
    NoSuchVersion {
        /// The version asked for.
        version: u64,
    },
    /// The chain already has a difference of this version or ordinal.
    #[error("version {version} is in the chain already")]
    Twice {
        /// The version given.
        version: u64,
    },
    /// The lineage has 2^31 − 1 checkpoints, the most possible.
    #[error("a lineage has at most 2^31 - 1 checkpoints: start a new one")]
    TooManyVersions,
    /// The memory is too small for the result.
    #[error("{given} bytes given for a result of up to {needed} bytes")]
    TooSmall {
        /// Bytes given.
        given: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The GPU path does not support this.
    #[error("{what}: use a lineage on the CPU")]
    NotOnGpu {
        /// The operation asked for.
        what: &'static str,
    },
    /// The kernels cannot use the memory.
    #[error("{what}")]
    Memory {
        /// The defect, and memory that would be suitable.
        what: &'static str,
    },
    /// The configuration differs from the one with which the lineage was written.
    #[error("the lineage was written with another {what}")]
    Config {
        /// The property that differs.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn corrupt(version: u64, what: &'static str) -> Self {
        Self::Corrupt {
            version: Some(version),
            what,
        }
    }
}

fn of(version: &Option<u64>) -> String {
    version.map_or_else(String::new, |version| format!(" of version {version}"))
}
