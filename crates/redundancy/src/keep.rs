//! What a member keeps on its node for the others.

use crate::wire::{Reader, Writer};
use crate::{Digest, Error, Manifest, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file that says what each rank is on.
const NODES: &str = "nodes";

/// A member's own part of a version, which lies on its node already.
pub trait Part {
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

/// Reads a part from its beginning to its end.
pub(crate) struct Reading<'a> {
    part: &'a dyn Part,
    at: u64,
    end: u64,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(part: &'a dyn Part) -> std::io::Result<Self> {
        let end = part.bytes()?;
        Ok(Self { part, at: 0, end })
    }
}

impl std::io::Read for Reading<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let bytes = left.min(into.len());
        let into = into.get_mut(..bytes).unwrap_or_default();
        self.part.read_at(self.at, into)?;
        self.at += bytes as u64;
        Ok(bytes)
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
        let fresh = Fresh::new(&path, 0)?;
        let written = (&fresh.file).write_all(&manifest.encode());
        written.map_err(Error::io(&path))?;
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
        let fresh = Fresh::new(&path, 0)?;
        (&fresh.file).write_all(&to.0).map_err(Error::io(&path))?;
        fresh.publish()
    }

    /// Length and checksum of the parity of a version; `None` without one.
    pub(crate) fn parity(&self, version: u64) -> Result<Option<(File, Digest)>> {
        let path = self.parity_path(version);
        match File::open(&path) {
            Ok(file) => {
                let digest = Digest::of(&file).map_err(Error::io(path))?;
                Ok(Some((file, digest)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path)(error)),
        }
    }
}

/// A file that is written beside its place, and takes it once it is whole and on the disk. Given up, it is removed.
#[derive(Debug)]
pub(crate) struct Fresh {
    path: PathBuf,
    part: PathBuf,
    pub(crate) file: File,
    is_published: bool,
}

impl Fresh {
    pub(crate) fn new(path: &Path, bytes: u64) -> Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&part).map_err(Error::io(&part))?;
        let fresh = Self {
            path: path.to_owned(),
            part,
            file,
            is_published: false,
        };
        fresh.file.set_len(bytes).map_err(Error::io(&fresh.part))?;
        Ok(fresh)
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(Error::io(&self.part))
    }

    pub(crate) fn digest(&self) -> Result<Digest> {
        let reading = Reading::new(&self.file).and_then(Digest::of);
        reading.map_err(Error::io(&self.part))
    }

    /// Lets it take its place, though it may not be on the disk yet.
    pub(crate) fn put(mut self) -> Result<()> {
        std::fs::rename(&self.part, &self.path).map_err(Error::io(&self.path))?;
        self.is_published = true;
        Ok(())
    }

    pub(crate) fn publish(self) -> Result<()> {
        self.file.sync_all().map_err(Error::io(&self.part))?;
        let path = self.path.clone();
        self.put()?;
        sync_folder(&path)
    }
}

/// That a file's name is on the disk.
fn sync_folder(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) => {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(Error::io(folder))
        }
        None => Ok(()),
    }
}

/// That a file, and its name, are on the disk.
pub(crate) fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(Error::io(path))?;
    sync_folder(path)
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.is_published {
            // The next one of this name takes its place.
            let _left = std::fs::remove_file(&self.part);
        }
    }
}
