//! Errors, sorted by what the caller does next.

use rustix::io::Errno;
use std::path::PathBuf;
use thiserror::Error;

/// The reason why a call failed.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was opened: name or make another directory.
    #[error("the directory {} cannot be used: {source}; name an existing one that you may use", .directory.display())]
    Open {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: Errno,
    },
    /// The device or quota is full: make room, then try again. Nothing written before is affected.
    #[error(
        "{} is full ({bytes} bytes at offset {offset} did not fit): free some space and try again",
        place.as_ref().map_or_else(|| "the storage".to_owned(), |place| format!("the file system of {}", place.display()))
    )]
    Full {
        /// The directory, if there is one.
        place: Option<PathBuf>,
        /// Offset in bytes.
        offset: u64,
        /// Bytes that were to be written.
        bytes: usize,
    },
    /// The write failed: the range is unspecified. Try again, or somewhere else.
    #[error("writing {bytes} bytes at offset {offset} failed: {source}")]
    Write {
        /// Offset in bytes.
        offset: u64,
        /// Bytes that were to be written.
        bytes: usize,
        /// The system's error.
        source: Errno,
    },
    /// The read failed: try again, or another copy.
    #[error("reading {bytes} bytes at offset {offset} failed: {source}")]
    Read {
        /// Offset in bytes.
        offset: u64,
        /// Bytes that were to be read.
        bytes: usize,
        /// The system's error.
        source: Errno,
    },
    /// The storage returned other bytes than were written: read another copy, and check the storage.
    #[error("{bytes} bytes at offset {offset} are not those that were written: see to the storage")]
    Altered {
        /// Offset in bytes.
        offset: u64,
        /// Bytes under the checksum that does not match.
        bytes: usize,
    },
    /// A defect of the caller: see [`Storage::alignment`](crate::Storage::alignment).
    #[error(
        "offset {offset}, length {bytes} and the memory's address must be multiples of {alignment}"
    )]
    Unaligned {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: usize,
        /// The number of bytes of which offset, length and address must be multiples.
        alignment: usize,
    },
    /// Another process or another part of this one writes to the directory: end it, or use another directory.
    #[error(
        "{} is in use: another process, or another engine or repository of this one, writes there; wait for it to end, or name \
         another directory or rank",
        .directory.display()
    )]
    Busy {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory is no longer there: make it again and open it anew. The contents of the old directory are lost.
    #[error("{} was removed or replaced while it was in use: make it again and open it anew", .directory.display())]
    Vanished {
        /// The directory.
        directory: PathBuf,
    },
    /// A file or directory has another owner than this user, or is no plain file: look at it, then remove it.
    #[error("{} is refused: {why}; remove it if you do not know it", .path.display())]
    Refused {
        /// The file or directory that was refused.
        path: PathBuf,
        /// The reason for the refusal.
        why: &'static str,
    },
    /// A file or directory could not be made, opened, synchronised, renamed or removed. Nothing was published.
    #[error("{doing} {} failed: {source}", .path.display())]
    File {
        /// The operation that failed, as in "renaming".
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Errno,
    },
    /// The bytes on the disk are not those that were written: restore `older`, and check the disk.
    #[error("{} is damaged at byte {offset}: {what}; {}", .path.display(), offer(*.older))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first byte of the record or block that fails its check.
        offset: u64,
        /// The fault in words.
        what: &'static str,
        /// The newest older version that is whole, if there is one.
        older: Option<u64>,
    },
    /// There is no whole version of this number: restore another.
    #[error("there is no whole version {version}; {}", offer(*.older))]
    NoVersion {
        /// The number that was asked for.
        version: u64,
        /// The newest older version that is whole, if there is one.
        older: Option<u64>,
    },
    /// A number is never used twice, whether its version is sound or not: take another number, or remove the version first.
    #[error("version {version} is already there: save under another number, or give it up first")]
    Exists {
        /// The number.
        version: u64,
    },
    /// The group continued from an older version and thereby gave up this version and all later ones: save under another number.
    #[error("version {version} was given up: the group went on from an older one")]
    GivenUp {
        /// The number.
        version: u64,
    },
    /// Some ranks of a group did not come: start all ranks, each in its own process or thread, then try again.
    #[error(
        "ranks {ranks:?} did not come within {patience:?}: start all ranks of the group at the same time, each in a process \
         or thread of its own, with the same number of ranks and the same directory"
    )]
    Absent {
        /// The ranks that did not appear; empty if a rank appeared and ended again.
        ranks: Vec<u32>,
        /// The time that the other ranks waited.
        patience: std::time::Duration,
    },
    /// The bytes of a region could not be fetched or passed on: see the caller's own error. Nothing was published.
    #[error("the bytes of a region could not be had: {0}")]
    Region(String),
    /// The caller cancelled the transfer. Nothing was published.
    #[error("it was cancelled: nothing was published; try again if it is wanted after all")]
    Cancelled,
    /// Versions are to become durable in an order, and an earlier one of them could not be kept. Nothing was published: try again
    /// when that version is durable.
    #[error("version {first}, which comes before, could not be kept: see there, and try again")]
    OutOfTurn {
        /// The earlier version.
        first: u64,
    },
    /// Another process that did the work reported an error: see its message, and try again.
    #[error("{0}")]
    Remote(String),
    /// More copies of the version are lost than its redundancy can replace: continue from an older version.
    #[error(
        "version {version} is lost: {why}; {}",
        newest.map_or_else(
            || "no version of all ranks is left: start anew".to_owned(),
            |newest| format!("the newest version that can still be had is {newest}")
        )
    )]
    Lost {
        /// The version.
        version: u64,
        /// The rank whose bytes are lost, and the place where they were.
        why: String,
        /// The newest version that all ranks still have.
        newest: Option<u64>,
    },
    /// A version lies on this node alone, since other ranks do not hold its redundancy yet, or never will: wait longer, or check
    /// the other ranks.
    #[error("it lies on this node alone: {0}")]
    Unprotected(String),
    /// Code of the application panicked: correct it. The bytes that it should have written or read are unspecified.
    #[error("code panicked while {doing}: {message}")]
    Panicked {
        /// The call that panicked, as in "writing".
        doing: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// The call has a wrong argument, a defect of the caller: nothing was written or read.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// Returns true if the process or the system lacked descriptors, memory or time for a moment. The bytes on storage did not
    /// change, and the same call may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        let (Self::Read { source, .. } | Self::File { source, .. }) = self else {
            return false;
        };
        matches!(
            *source,
            Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::NOBUFS
                | Errno::AGAIN
                | Errno::TIMEDOUT
                | Errno::STALE
        )
    }
}

fn offer(older: Option<u64>) -> String {
    older.map_or_else(
        || "there is no older version".to_owned(),
        |version| format!("version {version} is the newest older one"),
    )
}
