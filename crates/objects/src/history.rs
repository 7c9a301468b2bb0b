//! The versions in one place: a directory or an object store.

use crate::blobs::{ObjectBlobs, Settings, maintain, open, read};
use rustix::io::Errno;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierflow_store::{Error, Options, Place, Repository, Result};

/// The longest time of the request that lists prefixes.
const PATIENCE: Duration = Duration::from_secs(60);

/// All versions of all ranks in a directory or an object store, to read and maintain them without an engine.
#[derive(Debug)]
pub struct History(Repository);

impl History {
    /// Opens a place for reading: a path, or a URL as for [`ObjectBlobs::open`].
    ///
    /// # Errors
    /// The errors of [`Place::of`], [`Repository::read_only`] and [`ObjectBlobs::open`].
    pub fn open(place: impl AsRef<Path>) -> Result<Self> {
        Ok(Self(match Place::of(place)? {
            Place::Directory(path) => Repository::read_only(path, Options::default())?,
            Place::Url(url) => read(&url)?,
        }))
    }

    /// Opens a place for removing versions while no process writes there. Locks a directory, but cannot lock an object store.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and [`Error::Busy`](tierflow_store::Error::Busy) if another process has the directory open for writing.
    pub fn maintain(place: impl AsRef<Path>) -> Result<Self> {
        Ok(Self(match Place::of(place)? {
            Place::Directory(path) => Repository::maintain(path, Options::default())?,
            Place::Url(url) => maintain(&url)?,
        }))
    }

    /// Opens a place for writing as one `rank` of `ranks`. Makes a directory that is missing.
    ///
    /// # Errors
    /// The errors of [`maintain`](Self::maintain).
    pub fn writer(place: impl AsRef<Path>, rank: u32, ranks: u32) -> Result<Repository> {
        match Place::of(place)? {
            Place::Directory(path) => {
                let options = Options::default().rank(rank, ranks);
                Repository::open(path, options)
            }
            Place::Url(url) => open(&url, &Settings::default().group(rank, ranks, 0)),
        }
    }

    /// Returns the places directly below `place`: directories, or prefixes of an object store.
    ///
    /// # Errors
    /// [`Error::File`](tierflow_store::Error::File) if a directory cannot be read, and the errors of [`ObjectBlobs::open`].
    pub fn places_below(place: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let place = place.as_ref();
        let names: Vec<OsString> = match Place::of(place)? {
            Place::Directory(path) => {
                let failed = |source: std::io::Error| Error::File {
                    doing: "reading",
                    path: path.clone(),
                    source: Errno::from_io_error(&source).unwrap_or(Errno::IO),
                };
                let entries = std::fs::read_dir(&path).map_err(failed)?;
                let entries = entries.filter_map(std::result::Result::ok);
                let directories = entries.filter(|entry| entry.path().is_dir());
                directories.map(|entry| entry.file_name()).collect()
            }
            Place::Url(url) => {
                let blobs = ObjectBlobs::open(&url, PATIENCE)?;
                blobs.prefixes()?.into_iter().map(OsString::from).collect()
            }
        };
        Ok(names.into_iter().map(|name| place.join(name)).collect())
    }
}

impl Deref for History {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        &self.0
    }
}
