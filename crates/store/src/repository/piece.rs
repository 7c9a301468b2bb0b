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

/// The piece of one rank of a version. Pruning leaves it readable.
#[derive(Debug)]
pub struct Piece {
    head: Head,
    source: PieceSource,
    threads: usize,
    older: Option<u64>,
    stop: CancelCheck,
}

/// Says whether a piece is not to be read any further.
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

/// Bytes that are in no file of a repository, such as an object's, read by several threads at a time.
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

/// A part of the payload and where its bytes go.
pub(super) struct Part<'a> {
    pub(super) offset: u64,
    pub(super) length: usize,
    /// The range of the part that the bytes come from, and their destination.
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
                })
            }
            Some(Found::Record(_)) => Err(damaged("another record lies in the place of this one")),
            Some(Found::Damage { what, .. }) => Err(damaged(what.what())),
            None => Err(damaged("the file is cut off")),
        }
    }

    /// A piece that is the one record of `source`, called `name` in errors, and read by `threads`; `older` is the version
    /// that they offer.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is no such record, and what `source` fails with.
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

    /// The same piece, whose reads end with [`Error::Cancelled`] between two blocks once it `is_cancelled`: whoever reads or
    /// copies it, and whatever stands between.
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

    /// The version's number.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.head.version
    }

    /// Whose piece of how many.
    #[must_use]
    pub fn rank(&self) -> (u32, u32) {
        (self.head.rank, self.head.ranks)
    }

    /// All that the head says.
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

    /// The file in which it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The elements, or the parts, of which it consists.
    #[must_use]
    pub fn regions(&self) -> &[RegionInfo] {
        &self.head.regions
    }

    /// The checkpoint's own regions: what it consists of or, if it is encoded, what it becomes, with offsets in that; none if that is
    /// not known.
    #[must_use]
    pub fn layout(&self) -> &[RegionInfo] {
        match self.head.decoded() {
            Some(_) => &self.head.parts,
            None => &self.head.regions,
        }
    }

    /// Threads that read it side by side.
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

    /// Returns one region in memory of its own.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        // No more than the file is long.
        let mut bytes = vec![0; self.region(name)?.length as usize];
        self.restore(&mut [(name, &mut bytes)])?;
        Ok(bytes)
    }

    /// Fills memory with regions, each as long as the region is. Every block that it takes from the disk is checked.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown name or a wrong length, before anything is read; [`Error::Damaged`], naming
    /// an older version to go on with, and [`Error::Read`] leave the memory unspecified.
    pub fn restore(&self, into: &mut [(&str, &mut [u8])]) -> Result<()> {
        let mut targets = Vec::with_capacity(into.len());
        // Regions mostly are asked for in their order: of very many, each need not be looked for.
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
        targets.sort_by_key(|(offset, _)| *offset);
        self.read_parts(self.cut(targets, false), &|_| {})
    }

    /// Fills memory with parts of a region, each from its own offset; they do not overlap. Of the disk, the blocks that they lie in
    /// are taken, and checked.
    ///
    /// # Errors
    /// As [`restore`](Self::restore); [`Error::Argument`] for parts that overlap, or that the region does not have.
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

    /// [`restore_parts`](Self::restore_parts) of all regions, as if each began where the one before ends.
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

    /// Fills `bytes` with the payload from `offset`, the start of a block, to the end of one.
    pub(super) fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.go_on()?;
        if let PieceSource::Other(source, _) = &self.source {
            guarded("reading", || source.read(self.place_of(offset), bytes))?;
            return self.check(offset, bytes);
        }
        let mut memory = Aligned::default();
        bytes.copy_from_slice(self.checked(offset, bytes.len(), &mut memory)?);
        Ok(())
    }

    /// Returns the offset of a byte of the payload in the file.
    fn place_of(&self, offset: u64) -> u64 {
        self.head.position + u64::from(self.head.length) + offset
    }

    /// Checks every block. `progress` is called with how many bytes more were checked, by several threads.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Read`].
    pub fn verify(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<()> {
        self.read_parts(self.cut(Vec::new(), true), progress)
    }

    /// The parts of the payload that hold something wanted, or `all`.
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

    /// A part of the payload, of whole blocks, each of which matches its checksum.
    pub(super) fn checked<'m>(
        &self,
        offset: u64,
        length: usize,
        memory: &'m mut Aligned,
    ) -> Result<&'m [u8]> {
        self.go_on()?;
        let bytes = self.source.read(self.place_of(offset), length, memory)?;
        self.check(offset, bytes)?;
        Ok(bytes)
    }

    /// Returns true if the blocks of the payload from this one on match their checksums.
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
