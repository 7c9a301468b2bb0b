//! Pieces that are restored.

use super::PieceInfo;
use super::aligned::Aligned;
use super::damage::CHECKSUM;
use super::directory::Directory;
use super::handle::Handle;
use super::identity::Identity;
use super::record::Record;
use super::threads::{WRITE_BYTES, side_by_side};
use crate::container::{Found, Head, RegionInfo, Source, checksum, scan};
use crate::panics::guarded;
use crate::{Error, Result};
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The piece of one rank of a version. An open piece stays readable after a pruning.
#[derive(Debug)]
pub struct Piece {
    head: Head,
    source: PieceSource,
    threads: usize,
    older: Option<u64>,
    stop: CancelCheck,
    read_failed: Arc<AtomicBool>,
}

/// Tells whether to stop reading a piece.
#[derive(Default)]
struct CancelCheck(Option<Box<dyn Fn() -> bool + Send + Sync>>);

impl Debug for CancelCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CancelCheck")
    }
}

/// The source of a piece's bytes.
#[derive(Debug)]
enum PieceSource {
    File(Handle),
    Other(Box<dyn ByteSource>, PathBuf),
}

/// Bytes outside the files of a repository, such as those of an object. Several threads read them at the same time.
pub trait ByteSource: Source<Error = Error> + Debug + Send + Sync {}

impl<S: Source<Error = Error> + Debug + Send + Sync> ByteSource for S {}

impl PieceSource {
    fn path(&self) -> &Path {
        match self {
            Self::File(handle) => handle.path(),
            Self::Other(_, name) => name,
        }
    }

    fn read<'m>(&self, offset: u64, length: usize, memory: &'m mut Aligned) -> Result<&'m [u8]> {
        match self {
            Self::File(handle) => handle.read(offset, length, memory),
            Self::Other(source, _) => {
                let bytes = memory.get_mut(length);
                guarded("reading", || source.read(offset, bytes))?;
                Ok(bytes)
            }
        }
    }
}

/// A part of the payload, and the destinations of its bytes.
pub(super) struct Part<'a> {
    pub(super) offset: u64,
    pub(super) length: usize,
    /// For each destination: the offset in the part from which its bytes come, and the memory.
    targets: Vec<(usize, &'a mut [u8])>,
}

impl Part<'_> {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length as u64
    }
}

impl Piece {
    pub(super) fn open(
        directory: &Directory,
        record: &Record,
        threads: usize,
        older: Option<u64>,
    ) -> Result<Self> {
        let handle = directory.read_by_either_name(record.file)?;
        let handle = handle.ok_or(Error::NoVersion {
            version: record.version,
            older,
        })?;
        let mut found = None;
        if record.position < handle.plain.size()? {
            scan(&handle.plain, record.position, |first| {
                found = Some(first);
                Ok(false)
            })?;
        }
        let damaged = |what| Error::Damaged {
            path: handle.path().to_path_buf(),
            offset: record.position,
            what,
            older,
        };
        match found {
            Some(Found::Record(head))
                if (head.version, Identity::of(&head)) == (record.version, record.identity) =>
            {
                Ok(Self {
                    head: *head,
                    source: PieceSource::File(handle),
                    threads,
                    older,
                    stop: CancelCheck::default(),
                    read_failed: Arc::default(),
                })
            }
            Some(Found::Record(_)) => Err(damaged("another record lies in the place of this one")),
            Some(Found::Damage { what, .. }) => Err(damaged(what.what())),
            None => Err(damaged("the file is cut off")),
        }
    }

    /// Opens a piece that is the only record of `source`. `name` denotes the source in errors, `threads` threads read it, and
    /// `older` is the version that errors offer instead.
    ///
    /// # Errors
    /// [`Error::Damaged`] if `source` is no such record, and the errors of `source`.
    pub fn elsewhere(
        source: impl ByteSource + 'static,
        name: impl Into<PathBuf>,
        threads: usize,
        older: Option<u64>,
    ) -> Result<Self> {
        let (mut found, name) = (None, name.into());
        scan(&source, 0, |first| {
            found = Some(first);
            Ok(false)
        })?;
        let what = match found {
            Some(Found::Record(head)) => {
                return Ok(Self {
                    head: *head,
                    source: PieceSource::Other(Box::new(source), name),
                    threads: threads.max(1),
                    older,
                    stop: CancelCheck::default(),
                    read_failed: Arc::default(),
                });
            }
            Some(Found::Damage { what, .. }) => what.what(),
            None => "it is empty",
        };
        Err(Error::Damaged {
            path: name,
            offset: 0,
            what,
            older,
        })
    }

    /// Returns the same piece, whose reads fail with [`Error::Cancelled`] between two blocks once `is_cancelled` returns true. So
    /// every caller that reads or copies the piece stops.
    #[must_use]
    pub fn unless(self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            stop: CancelCheck(Some(Box::new(is_cancelled))),
            ..self
        }
    }

    /// Succeeds unless the piece [is cancelled](Self::unless).
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn go_on(&self) -> Result<()> {
        match &self.stop.0 {
            Some(is_cancelled) if is_cancelled() => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    /// Returns a flag that is set once bytes of the piece could not be read or verified. With it, a caller that gave the piece away
    /// tells a failure of this piece from other failures.
    #[must_use]
    pub fn read_failed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.read_failed)
    }

    /// Sets the flag if a read failed.
    fn noted<T>(&self, read: Result<T>) -> Result<T> {
        read.inspect_err(|_| self.read_failed.store(true, Relaxed))
    }

    /// Returns the number of the version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.head.version
    }

    /// Returns the rank of the piece, and the number of ranks.
    #[must_use]
    pub fn rank(&self) -> (u32, u32) {
        (self.head.rank, self.head.ranks)
    }

    /// Returns the head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the number, size and identity of the piece.
    #[must_use]
    pub fn info(&self) -> PieceInfo {
        PieceInfo {
            version: self.head.version,
            ranks: self.head.ranks,
            identity: Identity::of(&self.head),
            bytes: self.head.regions.iter().map(|region| region.length).sum(),
            decoded: self.head.decoded(),
        }
    }

    /// Returns the piece if all its regions together have `bytes` bytes. A caller that knows the length notices so that another
    /// piece took the place of the one it kept.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the piece has another length.
    pub fn of_length(self, bytes: u64) -> Result<Self> {
        match self.info().bytes == bytes {
            true => Ok(self),
            false => Err(Error::Damaged {
                path: self.path().to_path_buf(),
                offset: self.head.position,
                what: "it has another length than the version that was kept here",
                older: self.older,
            }),
        }
    }

    /// Returns the path of the file that holds the piece.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns the regions of the payload.
    #[must_use]
    pub fn regions(&self) -> &[RegionInfo] {
        &self.head.regions
    }

    /// Returns the regions of the checkpoint. For an encoded piece, these are the regions of the decoded payload, with their
    /// offsets in it; none if they are not known.
    #[must_use]
    pub fn layout(&self) -> &[RegionInfo] {
        match self.head.decoded() {
            Some(_) => &self.head.parts,
            None => &self.head.regions,
        }
    }

    /// Returns the number of threads that read the piece at the same time.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    pub(super) fn region(&self, name: &str) -> Result<&RegionInfo> {
        let mut regions = self.head.regions.iter();
        regions.find(|region| region.name == name).ok_or_else(|| {
            Error::Argument(format!(
                "version {} has no region {name:?}: see what regions() lists",
                self.head.version
            ))
        })
    }

    /// Returns the bytes of one region.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        // The length is at most that of the file.
        let mut bytes = vec![0; self.region(name)?.length as usize];
        self.restore(&mut [(name, &mut bytes)])?;
        Ok(bytes)
    }

    /// Fills memory with regions. Each memory must have the length of its region. Every block that is read from the disk is
    /// verified.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown name, a name given twice or a wrong length, before anything is read. [`Error::Damaged`], which names an older
    /// version to continue with, and [`Error::Read`]; both leave the memory unspecified.
    pub fn restore(&self, into: &mut [(&str, &mut [u8])]) -> Result<()> {
        let mut targets = Vec::with_capacity(into.len());
        // Regions are usually given in their order, so most are found without a search.
        let mut in_order = self.head.regions.iter();
        for (name, bytes) in into {
            let next = in_order.next().filter(|region| region.name == *name);
            let region = next.map_or_else(|| self.region(name), Ok)?;
            if region.length != bytes.len() as u64 {
                return Err(Error::Argument(format!(
                    "region {name:?} has {} bytes, and the memory for it {}",
                    region.length,
                    bytes.len()
                )));
            }
            if !bytes.is_empty() {
                targets.push((region.offset, &mut **bytes));
            }
        }
        self.restore_apart(targets)
    }

    /// Fills memory with parts of a region, each from its own offset. The parts must not overlap. The blocks around the parts are
    /// read whole and verified.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), and [`Error::Argument`] for parts that overlap, or that exceed the region.
    pub fn restore_parts(&self, name: &str, into: &mut [(u64, &mut [u8])]) -> Result<()> {
        let region = self.region(name)?;
        let mut targets = Vec::with_capacity(into.len());
        for (offset, bytes) in into {
            let end = offset.checked_add(bytes.len() as u64);
            if end.is_none_or(|end| end > region.length) {
                return Err(Error::Argument(format!(
                    "region {name:?} has {} bytes, and {} from {offset} on were asked for",
                    region.length,
                    bytes.len()
                )));
            }
            if !bytes.is_empty() {
                targets.push((region.offset + *offset, &mut **bytes));
            }
        }
        self.restore_apart(targets)
    }

    /// Fills memory like [`restore_parts`](Self::restore_parts), from all regions as if each began where the previous one ends.
    ///
    /// # Errors
    /// As [`restore_parts`](Self::restore_parts).
    pub fn restore_range_parts(&self, into: &mut [(u64, &mut [u8])]) -> Result<()> {
        let mut targets = Vec::with_capacity(into.len());
        let regions = &self.head.regions;
        let starts = self.starts();
        for (offset, bytes) in into {
            let (mut offset, mut rest) = (*offset, &mut **bytes);
            let first = starts.partition_point(|start| *start <= offset);
            let first = first.saturating_sub(1);
            for (region, start) in regions.iter().zip(&starts).skip(first) {
                if rest.is_empty() {
                    break;
                }
                let within = offset - start;
                let left = usize::try_from(region.length.saturating_sub(within));
                let length = rest.len().min(left.unwrap_or(usize::MAX));
                let (part, behind) = rest.split_at_mut(length);
                if length > 0 {
                    targets.push((region.offset + within, part));
                }
                (offset, rest) = (offset + length as u64, behind);
            }
            if !rest.is_empty() {
                return Err(Error::Argument(format!(
                    "version {} has not as many bytes as were asked for: see what regions() lists",
                    self.head.version
                )));
            }
        }
        self.restore_apart(targets)
    }

    fn restore_apart(&self, mut targets: Vec<(u64, &mut [u8])>) -> Result<()> {
        targets.sort_by_key(|(offset, _)| *offset);
        let pairs = targets.iter().zip(targets.iter().skip(1));
        for ((offset, bytes), (next, _)) in pairs {
            if offset + bytes.len() as u64 > *next {
                let version = self.head.version;
                return Err(Error::Argument(format!(
                    "parts of version {version} overlap: ask for each byte once"
                )));
            }
        }
        self.read_parts(self.cut(targets, false), &|_| {})
    }

    /// Fills `bytes` with the payload from `offset` on. The range begins at the start of a block and ends at the end of one.
    pub(super) fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.go_on()?;
        if let PieceSource::Other(source, _) = &self.source {
            let read = guarded("reading", || source.read(self.place_of(offset), bytes));
            return self.noted(read.and_then(|()| self.check(offset, bytes)));
        }
        let mut memory = Aligned::default();
        bytes.copy_from_slice(self.checked(offset, bytes.len(), &mut memory)?);
        Ok(())
    }

    /// Returns the offset in the file of a byte of the payload.
    fn place_of(&self, offset: u64) -> u64 {
        self.head.position + u64::from(self.head.length) + offset
    }

    /// Verifies every block. Calls `progress`, from several threads, with the number of bytes verified since the last call.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Read`].
    pub fn verify(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<()> {
        self.read_parts(self.cut(Vec::new(), true), progress)
    }

    /// Returns the parts of the payload that contain bytes for `targets`, or all parts if `all` is true.
    pub(super) fn cut<'a>(&self, targets: Vec<(u64, &'a mut [u8])>, all: bool) -> Vec<Part<'a>> {
        let block = u64::from(self.head.block_bytes);
        let step = block * (WRITE_BYTES / block).max(1);
        let mut parts: Vec<Part<'a>> = Vec::new();
        let mut targets = targets.into_iter().peekable();
        let mut rest: Option<(u64, &'a mut [u8])> = None;
        let mut at = 0;
        while at < self.head.payload_length {
            let end = self.head.payload_length.min(at.saturating_add(step));
            let mut part = Part {
                offset: at,
                length: (end - at) as usize,
                targets: Vec::new(),
            };
            while let Some((offset, bytes)) = rest.take().or_else(|| targets.next()) {
                if offset >= end {
                    rest = Some((offset, bytes));
                    break;
                }
                let (now, later) = bytes.split_at_mut(bytes.len().min((end - offset) as usize));
                let more = !later.is_empty();
                part.targets.push(((offset - at) as usize, now));
                if more {
                    rest = Some((end, later));
                    break;
                }
            }
            if all || !part.targets.is_empty() {
                parts.push(part);
            }
            at = end;
        }
        parts
    }

    fn read_parts(&self, parts: Vec<Part<'_>>, progress: &(dyn Fn(u64) + Sync)) -> Result<()> {
        let threads = self.threads.min(parts.len());
        let read = |memory: &mut Aligned, part: Part<'_>| {
            let bytes = self.checked(part.offset, part.length, memory)?;
            for (from, target) in part.targets {
                target.copy_from_slice(&bytes[from..from + target.len()]);
            }
            progress(part.length as u64);
            Ok(())
        };
        side_by_side(threads, parts.into_iter(), Aligned::default, read)
    }

    /// Reads a part of the payload that consists of whole blocks, and verifies each of them.
    pub(super) fn checked<'m>(
        &self,
        offset: u64,
        length: usize,
        memory: &'m mut Aligned,
    ) -> Result<&'m [u8]> {
        self.go_on()?;
        let read = self.source.read(self.place_of(offset), length, memory);
        self.noted(read.and_then(|bytes| self.check(offset, bytes).map(|()| &*bytes)))
    }

    /// Verifies the blocks of the payload from `offset` on.
    fn check(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let block = self.head.block_bytes as usize;
        let first = (offset / block as u64) as usize;
        let sums = &self.head.blocks[first..];
        for (number, (bytes, sum)) in bytes.chunks(block).zip(sums).enumerate() {
            if checksum(bytes) != *sum {
                return Err(Error::Damaged {
                    path: self.source.path().to_path_buf(),
                    offset: self.place_of(offset) + (number * block) as u64,
                    what: CHECKSUM,
                    older: self.older,
                });
            }
        }
        Ok(())
    }
}
