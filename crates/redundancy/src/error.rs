//! Errors, sorted by the caller's next step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A member whose part or parity is missing, or does not have the checksum in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The member's rank in the group.
    pub rank: u32,
    /// The member's failure domain: its node, unless the user names another.
    pub node: String,
}

/// Reasons why a version was not protected, or not rebuilt. The variant says what the caller does next.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The scheme is not possible: choose another one.
    #[error("{scheme}: {why}")]
    Scheme {
        /// The scheme that was chosen.
        scheme: String,
        /// The reason, and a scheme that is possible.
        why: String,
    },
    /// More members are lost than the code tolerates: restart from an older version, or from external storage.
    #[error(
        "version {version} cannot be rebuilt: {}; restart from external storage or from an older version",
        too_many(lost, *tolerates)
    )]
    TooManyLost {
        /// The version.
        version: u64,
        /// The members that lost something.
        lost: Vec<Lost>,
        /// The number of members of the set that may be lost.
        tolerates: usize,
    },
    /// Whole sets are lost: restart from an older version, or from external storage.
    #[error("version {version} cannot be rebuilt: {}", whole_sets(lost))]
    SetLost {
        /// The version.
        version: u64,
        /// The members that lost something.
        lost: Vec<Lost>,
    },
    /// No member of the set knows the version: ask for another one.
    #[error("no member of the set knows version {version}")]
    Unknown {
        /// The version.
        version: u64,
    },
    /// The rebuilt bytes are not the protected ones: restart from an older version.
    #[error(
        "version {version} of rank {rank} was rebuilt from bytes that are not what was protected"
    )]
    Damaged {
        /// The version.
        version: u64,
        /// The rank whose part or parity was rebuilt.
        rank: u32,
    },
    /// A rank sent or received nothing within the patience: check whether it still runs, then start all ranks again.
    #[error("rank {rank} did not answer within {patience:?}: start all ranks of its set together")]
    Absent {
        /// The absent rank.
        rank: u32,
        /// Time for which this rank waited.
        patience: Duration,
    },
    /// A rank ended before this rank's versions were protected: start all ranks again.
    #[error(
        "rank {rank} ended before all versions were protected: start all ranks of its set together"
    )]
    Ended {
        /// The rank.
        rank: u32,
    },
    /// The version is not protected within the patience: wait again, or check the other ranks, which did not checkpoint the version
    /// or are slower.
    #[error(
        "version {version} is not protected after {patience:?}: some rank of the set does not have it yet"
    )]
    Unprotected {
        /// The version.
        version: u64,
        /// Time for which this rank waited.
        patience: Duration,
    },
    /// A rank could not store its parity or its manifest of the version: make room there or mend the storage, then start all ranks again.
    #[error(
        "rank {rank} could not store its parity of version {version}: {why}; make room there, and start all ranks of its set again"
    )]
    Unstored {
        /// The version.
        version: u64,
        /// The rank.
        rank: u32,
        /// The error of the rank's storage.
        why: String,
    },
    /// A rank sent another message than this step of the call needs: start all ranks with the same scheme and version.
    #[error("rank {rank} sent something else than expected: do all ranks make the same calls?")]
    Message {
        /// The rank that sent the message.
        rank: u32,
    },
    /// The transport failed: its message says why.
    #[error("the transport to rank {rank} failed: {why}")]
    Transport {
        /// The other rank.
        rank: u32,
        /// The transport's message.
        why: String,
    },
    /// The repository failed: its error says why.
    #[error(transparent)]
    Store(#[from] tierflow_store::Error),
    /// The storage failed: mend it.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path of the failed access.
        path: PathBuf,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// Returns the version, if the error is that a version cannot be rebuilt.
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

    /// Returns the reason why a rank's piece of a version cannot be rebuilt, without the version's number.
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
