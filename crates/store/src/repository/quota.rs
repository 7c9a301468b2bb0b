//! The bytes of a limited directory: the lengths of its files, in whole blocks. They are claimed before they are written, so the
//! directory never has more than its limit. An engine's plan keeps within what pieces may have, so a claim fails only where files take
//! more than it knew.

use super::directory::Directory;
use super::segment::SEGMENT_BYTES;
use crate::file::BLOCK;
use crate::{Error, Result};
use rustix::fs::{self, AtFlags, FileType, Stat};
use std::sync::Arc;
use tierflow_sync::Mutex;

/// A segment is closed at this part of the limit.
const SEGMENT_PART: u64 = 64;

/// The purpose of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A piece. The room of upkeep stays free.
    Piece,
    /// Notes, lists of segments, and segments that are written anew so that others can go.
    Upkeep,
}

/// Returns the bytes from which on a segment is closed.
pub(crate) fn segment_bytes(limit: u64) -> u64 {
    let part = limit / SEGMENT_PART / BLOCK as u64 * BLOCK as u64;
    part.clamp(BLOCK as u64, SEGMENT_BYTES)
}

/// Returns the bytes that are never given to pieces: those of a segment's successor while both are there, and as many for lists
/// and notes.
pub(crate) fn upkeep(limit: u64) -> u64 {
    2 * segment_bytes(limit)
}

#[derive(Debug)]
pub(crate) struct Quota {
    limit: u64,
    upkeep: u64,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    bytes: u64,
    /// The most bytes: the limit, or more while more was found, so that what was found can be removed.
    ceiling: u64,
}

impl Quota {
    pub(crate) fn new(limit: u64) -> Self {
        let used = Used {
            bytes: 0,
            ceiling: limit,
        };
        Self {
            limit,
            upkeep: upkeep(limit),
            used: Mutex::new(used),
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.lock().bytes
    }

    fn claim(&self, bytes: u64, by: Purpose) -> bool {
        let mut used = self.used.lock();
        let most = match by {
            Purpose::Piece => self.limit.saturating_sub(self.upkeep),
            Purpose::Upkeep => used.ceiling,
        };
        let more = used.bytes.saturating_add(bytes);
        let fits = bytes == 0 || more <= most;
        if fits {
            used.bytes = more;
        }
        fits
    }

    fn give(&self, bytes: u64) {
        let mut used = self.used.lock();
        used.bytes = used.bytes.saturating_sub(bytes);
        let needed = used.bytes.saturating_add(self.upkeep);
        used.ceiling = used.ceiling.min(needed).max(self.limit);
    }

    /// Sets the bytes that are there.
    fn found(&self, bytes: u64) {
        let mut used = self.used.lock();
        used.bytes = bytes;
        used.ceiling = self.limit.max(bytes.saturating_add(self.upkeep));
    }
}

impl Directory {
    /// The same directory, whose files have no more bytes than these.
    pub(super) fn within(mut self, quota: Option<Arc<Quota>>) -> Self {
        self.quota = quota;
        self
    }

    /// Claims bytes of the limit, if there is one.
    ///
    /// # Errors
    /// [`Error::Full`] if the limit has no room for them.
    pub(super) fn claim(&self, bytes: u64, by: Purpose) -> Result<()> {
        let bytes = bytes.next_multiple_of(BLOCK as u64);
        match &self.quota {
            Some(quota) if !quota.claim(bytes, by) => Err(Error::Full {
                place: Some(self.path.clone()),
                offset: 0,
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            }),
            _ => Ok(()),
        }
    }

    /// Gives bytes back that were claimed and are not there any more.
    pub(super) fn give(&self, bytes: u64) {
        if let Some(quota) = &self.quota {
            quota.give(bytes.next_multiple_of(BLOCK as u64));
        }
    }

    /// Returns the bytes that a file counts as; 0 without a limit, or without such a file.
    pub(super) fn counted(&self, name: &str) -> u64 {
        let Some(_) = &self.quota else {
            return 0;
        };
        let stat = fs::statat(&*self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let stat = stat.ok().filter(is_file);
        stat.map_or(0, |stat| stat.st_size as u64)
    }

    /// Counts the files that are there. Nothing is written meanwhile.
    pub(super) fn count(&self) -> Result<()> {
        if let Some(quota) = &self.quota {
            let names = self.names()?;
            let bytes = names.iter().map(|name| self.counted(name));
            let bytes = bytes.map(|bytes| bytes.next_multiple_of(BLOCK as u64));
            quota.found(bytes.sum());
        }
        Ok(())
    }
}
