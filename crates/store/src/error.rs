//! What can go wrong, sorted by what the caller does next.

use rustix::io::Errno;
use std::path::PathBuf;
use thiserror::Error;

/// Why storage did not do as asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was opened: choose or make another directory.
    #[error("no scratch file could be made in {}: {source}; name an existing directory that you may write to", .directory.display())]
    Open {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: Errno,
    },
    /// The device or quota is full: make room, then try again. Nothing written before is affected.
    #[error(
        "the storage is full ({bytes} bytes at offset {offset} did not fit): free some space and try again"
    )]
    Full {
        /// Where.
        offset: u64,
        /// How many bytes were to be written.
        bytes: usize,
    },
    /// The write failed: the range is unspecified. Try again, or somewhere else.
    #[error("writing {bytes} bytes at offset {offset} failed: {source}")]
    Write {
        /// Where.
        offset: u64,
        /// How many bytes were to be written.
        bytes: usize,
        /// What the system said.
        source: Errno,
    },
    /// The read failed: try again, or another copy.
    #[error("reading {bytes} bytes at offset {offset} failed: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// How many bytes were wanted.
        bytes: usize,
        /// What the system said.
        source: Errno,
    },
    /// A defect of the caller: see [`Storage::alignment`](crate::Storage::alignment).
    #[error(
        "offset {offset}, length {bytes} and the memory's address must be multiples of {alignment}"
    )]
    Unaligned {
        /// Where.
        offset: u64,
        /// How many bytes.
        bytes: usize,
        /// What they must be multiples of.
        alignment: usize,
    },
}
