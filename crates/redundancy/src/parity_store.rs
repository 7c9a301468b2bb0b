//! The directory in which a member stores parity and manifests on its node.

use crate::manifest::Digester;
use crate::truncations::{Truncation, Truncations, make, remove};
use crate::wire::{Reader, Wire, Writer};
use crate::{CHUNK, Error, Manifest, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tierflow_store::{create_dir_durably, replace_file};
use tierflow_sync::{Mutex, MutexGuard, rank};

/// The file with the node of each rank.
const NODES: &str = "nodes";

/// A member's own part of a version, which is durable on its node. A call reads it once, from its start to its end.
pub trait Part: Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn bytes(&self) -> std::io::Result<u64>;

    /// Fills `into` with the part's bytes from `offset` on. The part has all of these bytes.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()>;
}

impl Part for File {
    fn bytes(&self) -> std::io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

impl Part for &[u8] {
    fn bytes(&self) -> std::io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let from = from.and_then(|from| from.get(..into.len()));
        into.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Part for Vec<u8> {
    fn bytes(&self) -> std::io::Result<u64> {
        self.as_slice().bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.as_slice().read_at(offset, into)
    }
}

/// A directory on a member's node: the parity that the member stores of each version, and the version's manifest.
#[derive(Debug)]
pub struct ParityStore {
    directory: PathBuf,
    truncations: Mutex<Truncations, { rank::LIST }>,
    /// The lock of the thread that makes and removes files of truncations. A save takes it only if the save has files to make.
    changing: Mutex<(), { rank::GATE }>,
    /// Directories on this node of ranks that run elsewhere now, and that received the whole content.
    left: Mutex<Vec<PathBuf>, { rank::CHORE }>,
}

/// The name of the directory in a node's directory that has the directories of its ranks.
const HOME: &str = "redundancy";
/// The names of the directories in a node's directory that have the pieces of its ranks, up to their numbers.
pub(crate) const PIECES: &str = "rank-";

impl ParityStore {
    /// Opens a directory, which one process uses at a time. Removes files that a killed process had not finished.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be made or read.
    pub fn open(directory: &Path) -> Result<Self> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.is_dir();
        let above = directory.ancestors().skip(1).take_while(is_missing);
        let mut made: Vec<&Path> = above.collect();
        made.insert(0, directory);
        for path in made.into_iter().rev() {
            create_dir_durably(path).map_err(|error| Error::io(path)(error.into()))?;
        }
        let store = Self::as_it_is(directory)?;
        for name in store.names()? {
            if [".part", ".piece", ".new"]
                .iter()
                .any(|end| name.ends_with(end))
            {
                let path = directory.join(name);
                std::fs::remove_file(&path).map_err(Error::io(path))?;
            }
        }
        Ok(store)
    }

    fn as_it_is(directory: &Path) -> Result<Self> {
        let store = Self {
            directory: directory.to_owned(),
            truncations: Mutex::default(),
            changing: Mutex::default(),
            left: Mutex::default(),
        };
        *store.truncations() = Truncations::of(&store.names()?);
        Ok(store)
    }

    /// Opens the directory of a rank in a node's directory for reading, and changes nothing in it. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be read.
    pub fn existing(node_local: &Path, rank: u32) -> Result<Option<Self>> {
        let directory = node_local.join(HOME).join(rank.to_string());
        let is_there = directory.is_dir();
        is_there.then(|| Self::as_it_is(&directory)).transpose()
    }

    /// Returns the ranks that have directories in a node's directory.
    ///
    /// # Errors
    /// [`Error::Io`] if the node's directory cannot be read, or has no directory of redundancy.
    pub fn ranks(node_local: &Path) -> Result<BTreeSet<u32>> {
        ranks_in(&node_local.join(HOME), "")
    }

    /// Returns true if a run of this rank gave up the version of this manifest.
    #[must_use]
    pub fn gave_up(&self, manifest: &Manifest) -> bool {
        let truncations = self.truncations();
        let mut known = truncations.known().iter();
        known.any(|known| known.hits(manifest.version, manifest.start))
    }

    /// Returns true if the parity that a rank stores here has the checksum in a manifest. Reads the whole parity.
    ///
    /// # Errors
    /// [`Error::Io`] if the parity cannot be read.
    pub fn has_parity(&self, manifest: &Manifest, rank: u32) -> Result<bool> {
        let Some(expected) = manifest.parity_of(rank) else {
            return Ok(false);
        };
        let Some(file) = self.parity(manifest.version, expected.bytes)? else {
            return Ok(expected.bytes == 0);
        };
        let mut digester = Digester::default();
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while at < expected.bytes {
            let length = usize::try_from(expected.bytes - at)
                .unwrap_or(CHUNK)
                .min(CHUNK);
            let chunk = chunk.get_mut(..length).unwrap_or_default();
            let read = file.read_exact_at(chunk, at);
            read.map_err(Error::io(self.parity_path(manifest.version)))?;
            digester.update(chunk);
            at += length as u64;
        }
        Ok(digester.finish() == expected)
    }

    /// Locks and returns the truncations of all runs, this run included.
    pub(crate) fn truncations(&self) -> MutexGuard<'_, Truncations, { rank::LIST }> {
        self.truncations.lock()
    }

    /// Changes the truncations and their files. `decide` enters new truncations, and returns the old ones, which are removed once the new
    /// ones are on the disk.
    fn change(&self, decide: impl FnOnce(&mut Truncations) -> BTreeSet<Truncation>) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        let mut truncations = self.truncations();
        let old = decide(&mut truncations);
        let new = truncations.take_unmade();
        drop(truncations);
        let made = make(&self.directory, &new);
        self.truncations().end_making(new, made.is_ok());
        made?;
        old.iter().try_for_each(|one| {
            remove(&self.directory.join(one.name()))?;
            self.truncations().forget(one);
            Ok(())
        })
    }

    /// Notes the versions that this run gives up, before it writes its first version.
    pub(crate) fn note_truncation(&self) -> Result<()> {
        let is_due = self.truncations().is_change_due();
        match is_due {
            true => self.change(Truncations::note),
            false => Ok(()),
        }
    }

    /// Notes that versions are discarded, before any of their files is removed. Protection of these versions from before `start` does not
    /// count for any rank from now on. Calls `at_once` at a moment from which no version can be [taken back](Self::take_back) until the note
    /// is made.
    pub(crate) fn note_discarded(
        &self,
        versions: &BTreeSet<u64>,
        start: u64,
        at_once: impl FnOnce(),
    ) -> Result<()> {
        self.change(|truncations| {
            at_once();
            truncations.discard(start, versions)
        })
    }

    /// Takes back the note that a version is discarded, before the version is protected anew in `start`. Does nothing unless `wanted`
    /// returns true.
    pub(crate) fn take_back(
        &self,
        version: u64,
        start: u64,
        wanted: impl FnOnce() -> bool,
    ) -> Result<()> {
        self.change(|truncations| match wanted() {
            true => truncations.take_back(start, version),
            false => BTreeSet::new(),
        })
    }

    /// Removes the files of versions that this run, or another rank, gave up. Called once a version of this run is there to stay.
    pub(crate) fn remove_given_up(&self) {
        let untidy = self.truncations().take_untidy();
        if untidy.is_empty() {
            return;
        }
        for version in self.versions().unwrap_or_default() {
            // A damaged manifest counts as one of start 0.
            let start = self.manifest(version).ok().flatten();
            let start = start.map_or(0, |manifest| manifest.start);
            if untidy.iter().any(|one| one.hits(version, start)) {
                // If this fails, the version does not count nevertheless, and is overwritten if its number is used again.
                let _takes_space = self.remove(version);
            }
        }
    }

    /// Enters the directories that a rank left in a node's directory, to be removed once a version of this run is protected.
    pub(crate) fn enter_left(&self, node_local: &Path, rank: u32) {
        let parity = node_local.join(HOME).join(rank.to_string());
        let pieces = node_local.join(format!("{PIECES}{rank}"));
        self.left.lock().extend([parity, pieces]);
    }

    /// Removes the directories that ranks left. If a directory stays, later runs prefer the directories to which this run wrote.
    pub(crate) fn remove_left(&self) {
        let mut left = self.left.lock();
        // The truncations of these directories are on the disk here before the directories are removed.
        if left.is_empty() || self.change(|_| BTreeSet::new()).is_err() {
            return;
        }
        for directory in left.drain(..) {
            // If this fails, a later run that moves the rank gives the space back.
            let _takes_space = std::fs::remove_dir_all(directory);
        }
    }

    /// Opens the directory of a rank in a node's directory, beside the rank's versions, where engines have it.
    ///
    /// # Errors
    /// As [`ParityStore::open`].
    pub fn of_rank(node_local: &Path, rank: u32) -> Result<Self> {
        Self::open(&node_local.join(HOME).join(rank.to_string()))
    }

    /// Discards versions: first notes that in a file, which counts for all ranks, and then removes the files of the versions.
    ///
    /// # Errors
    /// As [`ParityStore::remove`].
    pub fn discard(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let mut start = 0;
        for version in versions {
            let manifest = self.manifest(*version)?;
            start = start.max(manifest.map_or(0, |manifest| manifest.start));
        }
        if !versions.is_empty() {
            self.note_discarded(versions, start.saturating_add(1), || ())?;
        }
        versions
            .iter()
            .try_for_each(|version| self.remove(*version))
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.directory).map_err(Error::io(&self.directory))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(Error::io(&self.directory))?.file_name();
            names.extend(name.into_string());
        }
        Ok(names)
    }

    fn path(&self, version: u64, kind: &str) -> PathBuf {
        self.directory.join(format!("{version:020}.{kind}"))
    }

    pub(crate) fn parity_path(&self, version: u64) -> PathBuf {
        self.path(version, "parity")
    }

    /// Returns the path at which a piece is rebuilt before it is copied into its repository.
    pub(crate) fn piece_path(&self, version: u64) -> PathBuf {
        self.path(version, "piece")
    }

    /// Returns the manifest of a version; `None` if there is none, or it is damaged. The next start makes a damaged one again from other
    /// members' copies.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read.
    pub fn manifest(&self, version: u64) -> Result<Option<Manifest>> {
        let path = self.path(version, "manifest");
        match std::fs::read(&path) {
            Ok(bytes) => {
                let manifest = Manifest::decode(&bytes);
                Ok(manifest.filter(|manifest| manifest.version == version))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path)(error)),
        }
    }

    /// Returns the versions that have manifests here, and so are protected, in ascending order.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be read.
    pub fn versions(&self) -> Result<Vec<u64>> {
        let names = self.names()?.into_iter();
        let number = |name: String| name.strip_suffix(".manifest")?.parse::<u64>().ok();
        let mut versions: Vec<u64> = names.filter_map(number).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// Removes the files of a version: this rank's parity protects it no more. Other ranks are not told.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be removed.
    pub fn remove(&self, version: u64) -> Result<()> {
        // The manifest goes first: without it, the version is not protected.
        ["manifest", "parity", "piece"]
            .into_iter()
            .try_for_each(|kind| remove(&self.path(version, kind)))
    }

    /// Writes a version's manifest, whole or not at all.
    pub(crate) fn put(&self, manifest: &Manifest) -> Result<()> {
        let path = self.path(manifest.version, "manifest");
        replace_file(&path, &manifest.encode(), true).map_err(Error::io(path))
    }

    /// Returns the nodes of the group's ranks as stored last; empty if they were never stored, or cannot be read.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let bytes = std::fs::read(self.directory.join(NODES)).unwrap_or_default();
        let mut from = Reader(&bytes);
        std::iter::from_fn(|| Wire::take(&mut from)).collect()
    }

    /// Stores the nodes of the group's ranks, so that a later error names the lost nodes.
    pub(crate) fn put_nodes<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> Result<()> {
        let mut to = Writer::default();
        nodes.for_each(|node| node.put(&mut to));
        let path = self.directory.join(NODES);
        replace_file(&path, &to.0, true).map_err(Error::io(path))
    }

    /// Opens the stored parity of a version; `None` if there is none, or its length is not `bytes`.
    pub(crate) fn parity(&self, version: u64, bytes: u64) -> Result<Option<File>> {
        let path = self.parity_path(version);
        match File::open(&path) {
            Ok(file) => {
                let metadata = file.metadata().map_err(Error::io(path))?;
                Ok((metadata.len() == bytes).then_some(file))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path)(error)),
        }
    }
}

/// Returns the ranks whose numbers follow `prefix` in the names of a directory's entries. `u32::MAX` is no rank, as no group has one
/// more.
pub(crate) fn ranks_in(directory: &Path, prefix: &str) -> Result<BTreeSet<u32>> {
    let entries = std::fs::read_dir(directory).map_err(Error::io(directory))?;
    let mut ranks = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(Error::io(directory))?.file_name();
        let name = name.into_string().unwrap_or_default();
        let rank = name.strip_prefix(prefix);
        let rank = rank.and_then(|rank| rank.parse::<u32>().ok());
        let is_rank = |rank: &u32| *rank < u32::MAX && format!("{prefix}{rank}") == name;
        ranks.extend(rank.filter(is_rank));
    }
    Ok(ranks)
}
