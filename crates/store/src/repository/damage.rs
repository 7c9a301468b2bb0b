//! What is not as it was written.

use crate::container::UNREADABLE;
use std::path::PathBuf;

pub(super) const CHECKSUM: &str = "a block's checksum does not match";

/// Something in a repository that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The version that is damaged, if it can be identified.
    pub version: Option<u64>,
    /// What is wrong.
    pub what: &'static str,
}

impl Damage {
    /// Whether it could only not be read, and may be sound.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.what == UNREADABLE.what()
    }
}

/// A stretch of a file that is not whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) offset: u64,
    /// Where its record starts, if that has a sound head.
    pub(super) record: Option<(u64, u64)>,
    pub(super) what: &'static str,
}

impl Stretch {
    pub(super) fn is_unreadable(&self) -> bool {
        self.what == UNREADABLE.what()
    }
}
