//! Errors, sorted by the caller's next step.

use crate::protocol::Failure;
use std::path::PathBuf;
use thiserror::Error;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the agent or of a client. Files on a disk are not affected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no agent: start one, or continue without.
    #[error("no agent answers in {}: {source}; start one with `tierflow agent {}`", .directory.display(), .directory.display())]
    Absent {
        /// The scratch directory.
        directory: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An agent is there already: use that one.
    #[error("another agent serves {}: connect to it, or stop it first", .directory.display())]
    Busy {
        /// The scratch directory.
        directory: PathBuf,
    },
    /// A path was not made by this user's agent: look at it, then remove it.
    #[error("{} is refused: {why}; remove it if you do not know it", .path.display())]
    Refused {
        /// The path that was refused.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The other side does not speak as expected: bring agent and application to the same version.
    #[error(
        "the other side does not speak this protocol: {0}; bring agent and application to the same version"
    )]
    Protocol(&'static str),
    /// The connection broke, or nothing came for too long: connect again, or continue without an agent.
    #[error("the connection to the agent broke: {0}; connect again, or go on without an agent")]
    Connection(#[source] std::io::Error),
    /// The agent could not do what was asked. The message has the reason.
    #[error("the agent failed: {0}")]
    Failed(String),
    /// A file, a directory or a thread of the agent failed.
    #[error("{doing} {} failed: {source}", .path.display())]
    File {
        /// The action that was tried, as in "making".
        doing: &'static str,
        /// The path that it was tried on.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Checkpoints could not be read or written.
    #[error(transparent)]
    Store(#[from] tierflow_store::Error),
}

impl From<Error> for tierflow_store::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error,
            error => Failure::from(&error).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_connection_say_what_to_do() {
        let broken = Error::Connection(std::io::ErrorKind::BrokenPipe.into());
        let text = broken.to_string();
        assert!(
            text.ends_with("connect again, or go on without an agent"),
            "{text}"
        );
        let text = Error::Protocol("a frame is too long").to_string();
        assert!(
            text.ends_with("bring agent and application to the same version"),
            "{text}"
        );
    }
}
