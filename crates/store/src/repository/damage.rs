//! Damage: bytes that are not those that were written.

use crate::container::UNREADABLE;
use std::path::PathBuf;

pub(super) const CHECKSUM: &str = "a block's checksum does not match";

/// Bytes in a repository that are not those that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The version that is damaged, if it can be identified.
    pub version: Option<u64>,
    /// The fault, in words.
    pub what: &'static str,
}

impl Damage {
    /// Returns true if the bytes could not be read; they may be sound.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.what == UNREADABLE.what()
    }
}

/// A range of a file that is damaged.
#[derive(Debug, Clone, Copy)]
pub(super) struct DamagedRange {
    pub(super) offset: u64,
    /// Position and version of the damaged record, if its head is sound.
    pub(super) record: Option<(u64, u64)>,
    pub(super) what: &'static str,
}

impl DamagedRange {
    pub(super) fn is_unreadable(&self) -> bool {
        self.what == UNREADABLE.what()
    }
}
