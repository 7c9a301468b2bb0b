//! Errors, sorted by the caller's next step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A member whose part or parity is missing, or does not have the checksum that was protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The member's rank in the group.
    pub rank: u32,
    /// The member's failure domain: its node, unless the user names another.
    pub node: String,
}

/// Why redundancy was not made, or a part not rebuilt.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// Choose another scheme.
    #[error("{scheme}: {why}")]
    Scheme {
        /// The scheme that was chosen.
        scheme: String,
        /// The reason, and a scheme that is possible.
        why: String,
    },
    /// Restart from an older version, or from external storage: more is lost than the code tolerates.
    #[error(
        "version {version} cannot be rebuilt: {}; restart from external storage or from an older version",
        too_many(lost, *tolerates)
    )]
    TooManyLost {
        /// The version.
        version: u64,
        /// The members that lost something.
        lost: Vec<Lost>,
        /// How many members of the set may be lost.
        tolerates: usize,
    },
    /// Restart from an older version, or from external storage: whole sets are lost.
    #[error("version {version} cannot be rebuilt: {}", whole_sets(lost))]
    SetLost {
        /// The version.
        version: u64,
        /// The members that lost something.
        lost: Vec<Lost>,
    },
    /// Ask for another version: no member of the set knows this one.
    #[error("no member of the set knows version {version}")]
    Unknown {
        /// The version.
        version: u64,
    },
    /// Restart from an older version: what was rebuilt is not what was protected.
    #[error(
        "version {version} of rank {rank} was rebuilt from bytes that are not what was protected"
    )]
    Damaged {
        /// The version.
        version: u64,
        /// The rank whose part or parity was rebuilt.
        rank: u32,
    },
    /// See whether the rank still runs, then start all ranks again: it sent or received nothing for so long.
    #[error("rank {rank} did not answer within {patience:?}: start all ranks of its set together")]
    Absent {
        /// The rank that was waited for.
        rank: u32,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Start all ranks again: a rank ended before this rank's versions were protected.
    #[error(
        "rank {rank} ended before all versions were protected: start all ranks of its set together"
    )]
    Ended {
        /// The rank.
        rank: u32,
    },
    /// Wait again, or see what the other ranks do: they did not checkpoint this version, or are slower.
    #[error(
        "version {version} is not protected after {patience:?}: some rank of the set does not have it yet"
    )]
    Unprotected {
        /// The version.
        version: u64,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Start all ranks with the same scheme and version: what a rank sent was not what is sent at this step.
    #[error("rank {rank} sent something else than expected: do all ranks make the same calls?")]
    Message {
        /// The rank that sent it.
        rank: u32,
    },
    /// See what the transport says.
    #[error("the transport to rank {rank} failed: {why}")]
    Transport {
        /// The other rank.
        rank: u32,
        /// The transport's message.
        why: String,
    },
    /// See what the repository says.
    #[error(transparent)]
    Store(#[from] tierflow_store::Error),
    /// See to the storage.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path that was read or written.
        path: PathBuf,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// The version that cannot be rebuilt, if that is the error.
    #[must_use]
    pub fn lost_version(&self) -> Option<u64> {
        match self {
            Self::TooManyLost { version, .. }
            | Self::SetLost { version, .. }
            | Self::Unknown { version }
            | Self::Damaged { version, .. } => Some(*version),
            _ => None,
        }
    }

    /// Why a rank cannot have a version rebuilt, without the version's number.
    pub(crate) fn why_lost(&self, rank: u32) -> String {
        match self {
            Self::TooManyLost {
                lost, tolerates, ..
            } => too_many(lost, *tolerates),
            Self::SetLost { lost, .. } => whole_sets(lost),
            Self::Unknown { .. } => "no member of its set knows it".to_owned(),
            error => format!("rank {rank}: {error}"),
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::Io {
            path,
            source: Arc::new(source),
        }
    }
}

fn too_many(lost: &[Lost], tolerates: usize) -> String {
    format!(
        "{} lost it, and its set tolerates the loss of {tolerates}",
        named(lost)
    )
}

fn whole_sets(lost: &[Lost]) -> String {
    format!(
        "{} lost it, which are whole sets: no parity of it is left",
        named(lost)
    )
}

fn named(lost: &[Lost]) -> String {
    let name = |lost: &Lost| format!("rank {} on {}", lost.rank, lost.node);
    lost.iter().map(name).collect::<Vec<_>>().join(", ")
}
