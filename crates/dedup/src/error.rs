//! Errors, sorted by what the caller does next.

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. The variant says what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are wrong, and will be wrong again: mend the caller.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The bytes are no difference, or not the ones that were written: get another copy.
    #[error("the stored difference{} is damaged: {what}; get another copy", of(.version))]
    Corrupt {
        /// The version, as far as it could be read.
        version: Option<u64>,
        /// What is wrong.
        what: &'static str,
    },
    /// A difference that this version is based on is not there: add it to the chain.
    #[error(
        "{what} needs the difference with ordinal {ordinal}, which is not in the chain: add it"
    )]
    Missing {
        /// What needs it.
        what: String,
        /// The ordinal of what is missing.
        ordinal: u32,
    },
    /// The difference belongs to another lineage than those in the chain: sort them.
    #[error("version {version} is of another lineage: its {what} differs")]
    Foreign {
        /// The version that does not fit.
        version: u64,
        /// What tells them apart.
        what: &'static str,
    },
    /// A kernel could not be started halfway through a checkpoint, so the lineage's memory on the device
    /// is not to be trusted: resume a lineage from what is stored.
    #[error("the lineage broke when a kernel could not be started: resume it from what is stored")]
    Broken,
    /// The device failed or refused.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] tierflow_device::Error),
}

/// What is wrong with the arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// Not a chunk size that this crate knows.
    #[error("chunks of {chunk} bytes: they must be a power of two from 32 to 65536 bytes")]
    Chunk {
        /// Bytes asked for.
        chunk: u32,
    },
    /// A checkpoint of no bytes.
    #[error("a checkpoint of 0 bytes: there must be at least one")]
    Empty,
    /// More chunks than entries can name.
    #[error("{len} bytes are more than 2^31 chunks of {chunk} bytes: take larger chunks")]
    TooManyChunks {
        /// Bytes of the checkpoint.
        len: u64,
        /// Bytes of a chunk.
        chunk: u32,
    },
    /// All checkpoints of a lineage have one length.
    #[error("a checkpoint of {len} bytes in a lineage of {expected} bytes: start a new lineage")]
    Length {
        /// Bytes given.
        len: u64,
        /// Bytes of the lineage's checkpoints.
        expected: u64,
    },
    /// Versions grow.
    #[error("version {version} after version {last}: versions of a lineage must grow")]
    VersionOrder {
        /// The version given.
        version: u64,
        /// The version before it.
        last: u64,
    },
    /// There is no such version.
    #[error("version {version} is not in the chain")]
    NoSuchVersion {
        /// The version asked for.
        version: u64,
    },
    /// The same version, or the same place in the lineage, twice.
    #[error("version {version} is in the chain already")]
    Twice {
        /// The version given.
        version: u64,
    },
    /// A lineage has at most 2^31 − 1 checkpoints.
    #[error("a lineage has at most 2^31 - 1 checkpoints: start a new one")]
    TooManyVersions,
    /// There are too few bytes for the result.
    #[error("{given} bytes given for a result of up to {needed} bytes")]
    TooSmall {
        /// Bytes given.
        given: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The GPU path cannot do this.
    #[error("{what}: use a lineage on the CPU")]
    NotOnGpu {
        /// What was asked for.
        what: &'static str,
    },
    /// The memory lies where the kernels cannot use it.
    #[error("{what}")]
    Memory {
        /// What is wrong, and what would do.
        what: &'static str,
    },
    /// The configuration is not the one that the lineage was written with.
    #[error("the lineage was written with another {what}")]
    Config {
        /// What differs.
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
