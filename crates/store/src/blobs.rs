//! Blobs: named runs of bytes in a place that is no directory, such as an object store.

use crate::{ByteSource, Ready, RecordBytes, Result};
use std::fmt::Debug;
use std::path::PathBuf;

/// The state of a blob. A different stamp shows that the blob changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobStamp {
    /// Length of the blob in bytes.
    pub size: u64,
    /// Number that changes with the bytes; 0 if the place did not report one.
    pub tag: u64,
    /// True if the answer to a [`put`](Blobs::put) has the same tag; false if the tag is made of the time of the last write.
    pub is_exact: bool,
}

/// The condition on the blob that has the name already, under which [`Blobs::put`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutRule {
    /// Writes only if no blob has the name.
    Absent,
    /// Writes over the blob that has the name, if there is one.
    Replace,
}

/// The outcome of a [put](Blobs::put).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Another blob has the name, and [`PutRule::Absent`] was asked for.
    Taken,
    /// The record is written. The value is its tag, or 0 if the place did not report one.
    Done(u64),
}

/// A place of named, immutable runs of bytes, each of which exists as a whole or not at all. A [`Repository`](crate::Repository)
/// keeps its versions in them, one record in each blob.
///
/// A listing may lag: it may lack blobs that were written a short while ago, and contain removed ones. An answer about one name
/// never lags.
pub trait Blobs: Debug + Send + Sync {
    /// Calls `found` with the name and stamp of each blob.
    ///
    /// # Errors
    /// [`Error::Remote`](crate::Error::Remote), as for all requests.
    fn list(&self, found: &mut (dyn FnMut(&str, BlobStamp) + Send)) -> Result<()>;

    /// Returns the stamp of one blob, whether or not listings show it yet; `None` if there is no blob of that name.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn stamp(&self, name: &str) -> Result<Option<BlobStamp>>;

    /// Opens a blob of `size` bytes, of which the caller will read the first `ahead`. Returns `None` if there is no blob of that
    /// name.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn open(&self, name: &str, size: u64, ahead: u64) -> Result<Option<Box<dyn ByteSource>>>;

    /// Writes a record, and publishes it only after `ready` has returned. The record is durable when this returns. After an error,
    /// the name has either the old blob or the new one.
    ///
    /// # Errors
    /// As [`list`](Self::list), and the errors of `ready` and of reading the record's bytes.
    fn put(
        &self,
        name: &str,
        record: &RecordBytes<'_>,
        how: PutRule,
        ready: &Ready<'_>,
    ) -> Result<Written>;

    /// Writes an empty blob; its name carries all information.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn note(&self, name: &str) -> Result<()>;

    /// Removes a blob. A missing blob is no error.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn remove(&self, name: &str) -> Result<()>;

    /// Returns the name of a blob as errors and [`Damage`](crate::Damage) show it.
    fn shown(&self, name: &str) -> PathBuf;
}
