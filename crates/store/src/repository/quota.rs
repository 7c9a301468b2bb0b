//! The bytes of a limited directory: the lengths of its files, in whole blocks. Bytes are claimed before they are written, so the
//! directory never exceeds its limit. An engine's plan keeps within the part for pieces, so a claim fails only if files take more
//! than the plan knew.

use super::directory::Directory;
use super::segment::SEGMENT_BYTES;
use crate::file::BLOCK;
use crate::{Error, Result};
use rustix::fs::{self, AtFlags, FileType, Stat};
use std::sync::Arc;
use tierflow_sync::Mutex;

/// A segment is closed at the limit divided by this number.
const SEGMENT_PART: u64 = 64;

/// The purpose of claimed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A piece. The bytes for upkeep stay free.
    Piece,
    /// Notes, indexes of segments, and segments that are rewritten so that others can be removed.
    Upkeep,
}

/// Returns the length in bytes at which a segment is closed.
pub(crate) fn segment_bytes(limit: u64) -> u64 {
    let part = limit / SEGMENT_PART / BLOCK as u64 * BLOCK as u64;
    part.clamp(BLOCK as u64, SEGMENT_BYTES)
}

/// Returns the bytes that pieces never get: those of a rewritten segment while the old one still exists, and as many for indexes
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
    /// The most bytes that files may take: the limit, or more if more was found at the start, so that upkeep can remove what was
    /// found.
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

    /// Sets the bytes that existing files take.
    fn found(&self, bytes: u64) {
        let mut used = self.used.lock();
        used.bytes = bytes;
        used.ceiling = self.limit.max(bytes.saturating_add(self.upkeep));
    }
}

impl Directory {
    /// Returns the same directory with a limit for the bytes of its files.
    pub(super) fn within(mut self, quota: Option<Arc<Quota>>) -> Self {
        self.quota = quota;
        self
    }

    /// Claims bytes within the limit, if there is one.
    ///
    /// # Errors
    /// [`Error::Full`] if they exceed the limit.
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

    /// Gives back claimed bytes that no file takes any more.
    pub(super) fn give(&self, bytes: u64) {
        if let Some(quota) = &self.quota {
            quota.give(bytes.next_multiple_of(BLOCK as u64));
        }
    }

    /// Returns the bytes for which a file counts; 0 without a limit, or if there is no such file.
    pub(super) fn counted(&self, name: &str) -> u64 {
        let Some(_) = &self.quota else {
            return 0;
        };
        let stat = fs::statat(&*self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let stat = stat.ok().filter(is_file);
        stat.map_or(0, |stat| stat.st_size as u64)
    }

    /// Counts the existing files. Nothing may be written meanwhile.
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
