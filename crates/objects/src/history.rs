//! The versions in one place, whatever that is.

use crate::{Objects, Settings};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tierflow_store::{
    Damage, Error, Options, Piece, Place, Pruned, Repository, Result, Retention, Scrubbed, Vault,
    VersionInfo,
};

/// All versions in a directory or an object store, of all ranks: to be read and looked after without an engine.
#[derive(Debug)]
pub enum History {
    /// A directory.
    Directory(Repository),
    /// An object store.
    Store(Objects),
}

impl History {
    /// Opens a place to read it: a path, or a URL as [`Objects::open`] takes it.
    ///
    /// # Errors
    /// The errors of [`Place::of`], [`Repository::read_only`] and [`Objects::open`].
    pub fn open(place: impl AsRef<Path>) -> Result<Self> {
        match Place::of(place)? {
            Place::Directory(path) => {
                Repository::read_only(path, Options::default()).map(Self::Directory)
            }
            Place::Url(url) => Objects::open(&url, Settings::default()).map(Self::Store),
        }
    }

    /// Opens a place to remove versions, while no process writes there: a directory is locked, an object store is not.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Busy`](tierflow_store::Error::Busy).
    pub fn maintain(place: impl AsRef<Path>) -> Result<Self> {
        match Place::of(place)? {
            Place::Directory(path) => {
                Repository::maintain(path, Options::default()).map(Self::Directory)
            }
            Place::Url(url) => Objects::open(&url, Settings::default()).map(Self::Store),
        }
    }

    /// A place to write to as one `rank` of `ranks`; a directory is made if it is missing.
    ///
    /// # Errors
    /// As [`maintain`](Self::maintain).
    pub fn writer(place: impl AsRef<Path>, rank: u32, ranks: u32) -> Result<Box<dyn Vault>> {
        Ok(match Place::of(place)? {
            Place::Directory(path) => {
                let options = Options::default().rank(rank, ranks);
                Box::new(Repository::open(path, options)?)
            }
            Place::Url(url) => {
                let settings = Settings::default().group(rank, ranks, 0);
                Box::new(Objects::open(&url, settings)?)
            }
        })
    }

    /// The places directly below one: directories, or prefixes of an object store.
    ///
    /// # Errors
    /// [`Error::File`](tierflow_store::Error::File) if a directory cannot be read, and as [`Objects::open`].
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
                let store = Objects::open(&url, Settings::default())?;
                store.prefixes()?.into_iter().map(OsString::from).collect()
            }
        };
        Ok(names.into_iter().map(|name| place.join(name)).collect())
    }

    /// Returns true if nothing was ever saved there.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn is_empty(&self) -> Result<bool> {
        match self {
            Self::Directory(directory) => {
                Ok(directory.ranks()?.is_empty() && directory.damage().is_empty())
            }
            Self::Store(store) => store.is_empty(),
        }
    }

    /// The whole versions, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn versions(&self) -> Result<Vec<VersionInfo>> {
        match self {
            Self::Directory(directory) => directory.versions(),
            Self::Store(store) => store.versions(),
        }
    }

    /// The newest whole version; with `before`, the newest one of a smaller number than that.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn latest(&self, before: Option<u64>) -> Result<Option<u64>> {
        match self {
            Self::Directory(directory) => directory.latest(before),
            Self::Store(store) => store.latest(before),
        }
    }

    /// A rank's piece of a whole version.
    ///
    /// # Errors
    /// [`Error::NoVersion`](tierflow_store::Error::NoVersion), [`Error::Damaged`](tierflow_store::Error::Damaged), or
    /// [`Error::Argument`](tierflow_store::Error::Argument) for a rank that the version does not have.
    pub fn piece_of(&self, version: u64, rank: u32) -> Result<Piece> {
        match self {
            Self::Directory(directory) => directory.piece_of(version, rank),
            Self::Store(store) => store.whole_piece_of(version, rank),
        }
    }

    /// The piece of a version of a group of one, even if what it is a difference against lies elsewhere.
    ///
    /// # Errors
    /// As [`piece_of`](Self::piece_of).
    pub fn own_piece(&self, version: u64) -> Result<Piece> {
        match self {
            Self::Directory(directory) => directory.own_piece(version),
            Self::Store(store) => store.piece(version),
        }
    }

    /// Returns the damage that is known without reading payloads.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        match self {
            Self::Directory(directory) => directory.damage(),
            Self::Store(store) => store.damage(),
        }
    }

    /// Reads all pieces (of one `version`, if it is named) and checks every checksum. `progress` is told how many bytes of how many
    /// are done.
    ///
    /// # Errors
    /// When nothing can be read; what is wrong with a piece is in the outcome.
    pub fn verify(
        &self,
        version: Option<u64>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Scrubbed> {
        match self {
            Self::Directory(directory) => directory.scrub(version, progress),
            Self::Store(store) => store.verify(version, progress),
        }
    }

    /// Returns the versions that [`prune`](Self::prune) would give up.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn would_prune(&self, retention: &Retention) -> Result<Pruned> {
        match self {
            Self::Directory(directory) => directory.would_prune(retention),
            Self::Store(store) => store.would_prune(retention),
        }
    }

    /// Gives up what `retention` does not keep; of what stays, at least one version is read, and its checksums match.
    ///
    /// # Errors
    /// When some could not be given up. What is to stay is there.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned> {
        match self {
            Self::Directory(directory) => directory.prune(retention),
            Self::Store(store) => store.prune(retention),
        }
    }

    /// Gives up these versions, as far as nothing that stays is a difference against them.
    ///
    /// # Errors
    /// When some may still be there.
    pub fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.remove(versions),
            Self::Store(store) => store.remove_all_ranks(versions),
        }
    }
}
