//! Blobs: named runs of bytes in a place that is no directory, such as an object store.

use crate::{ByteSource, Ready, RecordBytes, Result};
use std::fmt::Debug;
use std::path::PathBuf;

/// The state of a blob, by which a changed one is told from the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobStamp {
    /// The length of the blob, in bytes.
    pub size: u64,
    /// A number that changes with the bytes; 0 if the place did not say it.
    pub tag: u64,
    /// True if an answer to [`put`](Blobs::put) has the same tag; false if the tag is made of the time of the last write.
    pub is_exact: bool,
}

/// The blobs over which a record may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutRule {
    /// No blob: the name is free.
    Absent,
    /// The one that has the name.
    Replace,
}

/// The outcome of a [put](Blobs::put).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Another blob has the name, and [`PutRule::Absent`] was asked for.
    Taken,
    /// The record is there; with its tag, 0 if the place did not say it.
    Done(u64),
}

/// A place of named, immutable runs of bytes, each there as a whole or not at all. A [`Repository`](crate::Repository) keeps its versions in
/// them, one record to a blob.
///
/// A list may lag: it may lack blobs that were written a short while ago, and name removed ones. An answer about one name may not.
pub trait Blobs: Debug + Send + Sync {
    /// Calls `found` with the name and stamp of each blob.
    ///
    /// # Errors
    /// [`Error::Remote`](crate::Error::Remote), as for all requests.
    fn list(&self, found: &mut (dyn FnMut(&str, BlobStamp) + Send)) -> Result<()>;

    /// Asks for one blob by its name, whatever lists have of it.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn stamp(&self, name: &str) -> Result<Option<BlobStamp>>;

    /// Opens a blob of `size` bytes, the first `ahead` of which will be read; `None` if there is none of that name.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn open(&self, name: &str, size: u64, ahead: u64) -> Result<Option<Box<dyn ByteSource>>>;

    /// Writes a record and publishes it no sooner than `ready` returns; durable when this returns. After an error, the blob that
    /// was there before is there, or the new one.
    ///
    /// # Errors
    /// As [`list`](Self::list), what `ready` fails with, and what fetching the record's bytes fails with.
    fn put(
        &self,
        name: &str,
        record: &RecordBytes<'_>,
        how: PutRule,
        ready: &Ready<'_>,
    ) -> Result<Written>;

    /// Writes a blob without bytes, whose name says everything.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn note(&self, name: &str) -> Result<()>;

    /// Removes a blob; it need not be there.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn remove(&self, name: &str) -> Result<()>;

    /// The name of a blob as errors and damage have it.
    fn shown(&self, name: &str) -> PathBuf;
}
