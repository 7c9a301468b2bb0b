//! Errors, sorted by the next step of the caller.

use rustix::io::Errno;
use std::path::PathBuf;
use thiserror::Error;

/// Why storage did not do as asked.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was opened: choose or make another directory.
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
        /// The offset in bytes.
        offset: u64,
        /// How many bytes were to be written.
        bytes: usize,
    },
    /// The write failed: the range is unspecified. Try again, or somewhere else.
    #[error("writing {bytes} bytes at offset {offset} failed: {source}")]
    Write {
        /// The offset in bytes.
        offset: u64,
        /// How many bytes were to be written.
        bytes: usize,
        /// The system's error.
        source: Errno,
    },
    /// The read failed: try again, or another copy.
    #[error("reading {bytes} bytes at offset {offset} failed: {source}")]
    Read {
        /// The offset in bytes.
        offset: u64,
        /// How many bytes were wanted.
        bytes: usize,
        /// The system's error.
        source: Errno,
    },
    /// Storage gave back other bytes than were written: read another copy, and see to the storage.
    #[error("{bytes} bytes at offset {offset} are not those that were written: see to the storage")]
    Altered {
        /// The offset in bytes.
        offset: u64,
        /// How many bytes are under the checksum that does not match.
        bytes: usize,
    },
    /// A defect of the caller: see [`Storage::alignment`](crate::Storage::alignment).
    #[error(
        "offset {offset}, length {bytes} and the memory's address must be multiples of {alignment}"
    )]
    Unaligned {
        /// The offset in bytes.
        offset: u64,
        /// How many bytes.
        bytes: usize,
        /// The bytes of which all three must be multiples.
        alignment: usize,
    },
    /// The directory is written already, by another process or by this one: end that, or use another directory.
    #[error(
        "{} is in use: another process, or another engine or repository of this one, writes there; wait for it to end, or name \
         another directory or rank",
        .directory.display()
    )]
    Busy {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory is no longer there: make it again and open it anew. What it held is lost with it.
    #[error("{} was removed or replaced while it was in use: make it again and open it anew", .directory.display())]
    Vanished {
        /// The directory.
        directory: PathBuf,
    },
    /// Something lies there that this user did not put there, or that is no plain file: look at it, then remove it.
    #[error("{} is refused: {why}; remove it if you do not know it", .path.display())]
    Refused {
        /// The file or directory that was refused.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A file or directory could not be made, opened, synchronised, renamed or removed. Nothing was published.
    #[error("{doing} {} failed: {source}", .path.display())]
    File {
        /// The attempt, as in "renaming".
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Errno,
    },
    /// The bytes on the disk are not those that were written: restore `older`, and see to the disk.
    #[error("{} is damaged at byte {offset}: {what}; {}", .path.display(), offer(*.older))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first byte of the record or block that fails its check.
        offset: u64,
        /// The fault, in words.
        what: &'static str,
        /// The newest older version that is whole, if there is one.
        older: Option<u64>,
    },
    /// There is no whole version of this number: restore another.
    #[error("there is no whole version {version}; {}", offer(*.older))]
    NoVersion {
        /// The number asked for.
        version: u64,
        /// The newest older version that is whole, if there is one.
        older: Option<u64>,
    },
    /// A version is never written again, sound or not: take another number, or give this one up first.
    #[error("version {version} is already there: save under another number, or give it up first")]
    Exists {
        /// The number.
        version: u64,
    },
    /// The group went on from an older version, and gave this one up with all above it: save under another number.
    #[error("version {version} was given up: the group went on from an older one")]
    GivenUp {
        /// The number.
        version: u64,
    },
    /// Not all ranks of a group came: start them all, each in a process or thread of its own, then try again.
    #[error(
        "ranks {ranks:?} did not come within {patience:?}: start all ranks of the group at the same time, each in a process \
         or thread of its own, with the same number of ranks and the same directory"
    )]
    Absent {
        /// The ranks of which nothing was heard; none if one came and went again.
        ranks: Vec<u32>,
        /// How long they were waited for.
        patience: std::time::Duration,
    },
    /// Bytes to be saved or restored could not be fetched or passed on: see the error of the caller. Nothing was published.
    #[error("the bytes of a region could not be had: {0}")]
    Region(String),
    /// The caller does not want the transfer any more. Nothing was published.
    #[error("it was cancelled: nothing was published; try again if it is wanted after all")]
    Cancelled,
    /// A version that comes before it, in an order in which versions are to be durable, could not be kept. Nothing was
    /// published: try again when that one is there.
    #[error("version {first}, which comes before, could not be kept: see there, and try again")]
    OutOfTurn {
        /// The version that comes before.
        first: u64,
    },
    /// Another process that was asked to do it could not: see there, and try again.
    #[error("{0}")]
    Remote(String),
    /// Go on from an older version: more of its copies are lost than others kept redundancy for.
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
        /// Whose bytes are lost, and where they were.
        why: String,
        /// The newest version that all ranks still have.
        newest: Option<u64>,
    },
    /// Wait longer, or see what the other ranks do: what was saved on this node is not kept by others yet, or will not be.
    #[error("it lies on this node alone: {0}")]
    Unprotected(String),
    /// Code of the application's panicked: mend it. What it was to write is unspecified, what it was to read, too.
    #[error("code panicked while {doing}: {message}")]
    Panicked {
        /// The call, as in "writing".
        doing: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// A defect of the caller: nothing was written or read.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// Returns true if the process or the system lacked descriptors, memory or time for a moment: the bytes on storage are as they
    /// were, and the same call may succeed later.
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
