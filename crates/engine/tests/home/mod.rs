//! Directories of versions that outlive an engine.

use std::path::PathBuf;

/// Two directories: one of the node (`near`), and one of external storage (`far`).
pub(crate) struct Home {
    _kept: tempfile::TempDir,
    pub(crate) near: PathBuf,
    pub(crate) far: PathBuf,
}

pub(crate) fn home() -> Home {
    let kept = tempfile::tempdir().unwrap();
    Home {
        near: kept.path().join("near"),
        far: kept.path().join("far"),
        _kept: kept,
    }
}
