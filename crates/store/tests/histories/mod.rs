//! Helpers for versions whose bytes follow from their numbers.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "helpers of tests; each test file uses a part"
)]

use std::path::{Path, PathBuf};
use tierflow_store::{Region, Repository, Result, Snapshot};
/// Returns the bytes of a version by its number and its length.
pub(crate) use tierflow_testing::noise as bytes_of;

/// Saves a version of one region.
pub(crate) fn try_to_save(repository: &Repository, version: u64, length: usize) -> Result<()> {
    let bytes = bytes_of(version, length);
    let regions = [Region::new("state", &bytes)];
    repository.save(&Snapshot::new(version, &regions))
}

pub(crate) fn save(repository: &Repository, version: u64, length: usize) {
    try_to_save(repository, version, length).unwrap();
}

/// Asserts that a version has the bytes that were saved.
pub(crate) fn version_of(repository: &Repository, version: u64, length: usize) {
    let bytes = repository.piece(version).unwrap().read("state").unwrap();
    assert!(
        bytes == bytes_of(version, length),
        "version {version} is another"
    );
}

/// Returns the file of a large version.
pub(crate) fn path_of(directory: &Path, version: u64) -> PathBuf {
    directory.join(format!("rank-0/v{version:020}.tfc"))
}

/// Makes a directory in memory if the machine has one, for tests that open many times, as each open synchronises.
pub(crate) fn fast_home() -> tempfile::TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}
