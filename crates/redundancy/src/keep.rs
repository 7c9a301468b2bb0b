//! What a member keeps on its node for the others.

use crate::fresh::Fresh;
use crate::wire::{Reader, Writer};
use crate::{Error, Manifest, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file that says what each rank is on.
const NODES: &str = "nodes";

/// A member's own part of a version, which lies on its node already. It is read once, from its start to its end.
pub trait Part: Sync {
    /// How many bytes it has.
    ///
    /// # Errors
    /// What the system says.
    fn bytes(&self) -> std::io::Result<u64>;

    /// Reads bytes that are within it.
    ///
    /// # Errors
    /// What the system says.
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

/// A directory on a member's node: the parity that it keeps of each version, and what the version consists of.
#[derive(Debug)]
pub struct Keep {
    directory: PathBuf,
}

impl Keep {
    /// Opens a directory that nobody else has open. What was under way when a process was killed is cleared away.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be made or read.
    pub fn open(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory).map_err(Error::io(directory))?;
        let keep = Self {
            directory: directory.to_owned(),
        };
        for name in keep.names()? {
            if name.ends_with(".part") || name.ends_with(".piece") {
                let path = directory.join(name);
                std::fs::remove_file(&path).map_err(Error::io(path))?;
            }
        }
        Ok(keep)
    }

    /// That of a rank beside its versions in a node's directory, as engines have it.
    ///
    /// # Errors
    /// As [`Keep::open`].
    pub fn of_rank(node_local: &Path, rank: u32) -> Result<Self> {
        Self::open(&node_local.join("redundancy").join(rank.to_string()))
    }

    /// Removes what is kept of all other versions than these.
    ///
    /// # Errors
    /// As [`Keep::remove`].
    pub fn retain(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let kept = self.versions()?.into_iter();
        let mut others = kept.filter(|version| !versions.contains(version));
        others.try_for_each(|version| self.remove(version))
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

    /// Where a piece is rebuilt before its repository takes it.
    pub(crate) fn piece_path(&self, version: u64) -> PathBuf {
        self.path(version, "piece")
    }

    /// What a version consists of, if it is protected and known here.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read. What was damaged is not known.
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

    /// The versions that are protected, in ascending order.
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

    /// Removes what is kept of a version. It is not protected any more, if that was so.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be removed.
    pub fn remove(&self, version: u64) -> Result<()> {
        // What tells of the others goes first.
        for kind in ["manifest", "parity", "piece"] {
            let path = self.path(version, kind);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io(path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a version's manifest, so that it is there whole or not at all.
    pub(crate) fn put(&self, manifest: &Manifest) -> Result<()> {
        let path = self.path(manifest.version, "manifest");
        let mut fresh = Fresh::new(&path, 0)?;
        fresh.append(&manifest.encode())?;
        fresh.publish()
    }

    /// What the ranks of the group were on when it was told last; nothing if it never was, or cannot be read.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let bytes = std::fs::read(self.directory.join(NODES)).unwrap_or_default();
        let mut from = Reader(&bytes);
        std::iter::from_fn(|| from.text()).collect()
    }

    /// Tells it, for those who lose what they were on.
    pub(crate) fn put_nodes<'a>(&self, nodes: impl Iterator<Item = &'a str>) -> Result<()> {
        let mut to = Writer::default();
        nodes.for_each(|node| to.text(node));
        let path = self.directory.join(NODES);
        let mut fresh = Fresh::new(&path, 0)?;
        fresh.append(&to.0)?;
        fresh.publish()
    }

    /// The parity that is kept of a version, if it has so many bytes; `None` without one.
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
