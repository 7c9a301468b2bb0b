//! The pieces of a rank's repository on its node, for which the other members of its set store parity.

mod streamed;

use crate::{Error, Exchange, Manifest, ParityStore, Part, Rebuilt, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
pub(crate) use streamed::RepositorySink;
use tierflow_store::container::{Head, Source};
use tierflow_store::{Identity, Piece, RecordBytes, Repository};
use tierflow_sync::Mutex;

/// Bytes of a block of a payload. Payloads are read in blocks, which start at multiples of this.
const BLOCK: u64 = 1 << 20;
/// If a record's payload has this many bytes or more, the record's head is padded with zeros to a multiple of [`BLOCK`]. So the blocks of
/// the part are blocks of the payload.
const LARGE: u64 = 16 * BLOCK;

/// Returns the offset of the payload in a part that is a record with this head.
fn payload_start(head: &Head) -> u64 {
    let length = u64::from(head.length);
    match head.payload_length >= LARGE {
        true => length.next_multiple_of(BLOCK),
        false => length,
    }
}

/// A repository whose pieces are protected.
///
/// All calls are collective, as those of [`Exchange`] are. At a restart, the members gather the [`versions`](Exchange::versions) that were
/// protected, and rebuild each of them. Then every member has its pieces.
#[derive(Debug)]
pub struct Pieces<'a> {
    repository: &'a Repository,
    exchange: Exchange<'a>,
    store: &'a ParityStore,
}

impl<'a> Pieces<'a> {
    /// Makes the value of a rank. `repository` is the rank's, on its node, open for writing.
    #[must_use]
    pub fn new(repository: &'a Repository, exchange: Exchange<'a>, store: &'a ParityStore) -> Self {
        Self {
            repository,
            exchange,
            store,
        }
    }

    /// Returns the versions that were protected, as [`Exchange::versions`] gathers them.
    ///
    /// # Errors
    /// As [`Exchange::versions`].
    pub fn versions(&self) -> Result<Vec<u64>> {
        self.exchange.versions()
    }

    /// Protects the members' pieces of a version, each of which is durable in its repository.
    ///
    /// # Errors
    /// As [`Exchange::protect`]; [`Error::Store`] if this rank has no such piece: then the other members' calls end with [`Error::Absent`].
    pub fn protect(&self, version: u64) -> Result<Option<Manifest>> {
        let piece = self.repository.own_piece(version)?;
        self.protect_piece(version, &piece)
    }

    pub(crate) fn protect_piece(&self, version: u64, piece: &Piece) -> Result<Option<Manifest>> {
        self.exchange.protect(version, &Record::new(piece)?)
    }

    /// Protects the versions of which all members have pieces and that are not protected yet, as the members ended before. Leaves out the
    /// versions that this rank has `elsewhere`. Returns the protected versions. Call this after lost versions are rebuilt.
    ///
    /// # Errors
    /// As [`Pieces::protect`].
    pub fn protect_rest(&self, elsewhere: &BTreeSet<u64>) -> Result<Vec<u64>> {
        self.protect_but(&self.store.versions()?, elsewhere)
    }

    /// Protects the versions of which all members have pieces, except for those in `protected` and in `need_not`. Returns the versions.
    pub(crate) fn protect_but(
        &self,
        protected: &[u64],
        need_not: &BTreeSet<u64>,
    ) -> Result<Vec<u64>> {
        let own = self.repository.own_pieces()?.into_iter();
        let own = own.map(|piece| piece.version);
        let rest: Vec<u64> = own
            .filter(|version| protected.binary_search(version).is_err())
            .filter(|version| !need_not.contains(version))
            .collect();
        let rest = self.exchange.common(&rest)?;
        for version in &rest {
            self.protect(*version)?;
        }
        Ok(rest)
    }

    /// Rebuilds the members' pieces of a version that are lost or damaged, and the lost parity of the version.
    ///
    /// # Errors
    /// As [`Exchange::rebuild`]; [`Error::Store`] if the repository does not take the piece: the other members have their pieces.
    pub fn rebuild(&self, version: u64) -> Result<Rebuilt> {
        let rebuilt = self.rebuild_piece(version)?;
        if rebuilt.part {
            let piece = self.repository.own_piece(version)?;
            self.repository.follow(&Identity::of(piece.head()))?;
        }
        Ok(rebuilt)
    }

    fn rebuild_piece(&self, version: u64) -> Result<Rebuilt> {
        // A piece that cannot be read counts as lost.
        let piece = self.repository.own_piece(version).ok();
        let record = piece.as_ref().and_then(|piece| Record::new(piece).ok());
        let part = record.as_ref().map(|record| record as &dyn Part);
        let path = self.store.piece_path(version);
        let Some(piece) = &piece else {
            // The piece is copied while it is rebuilt.
            return std::thread::scope(|scope| {
                self.exchange.rebuild_to(version, part, &mut |bytes| {
                    let sink = RepositorySink::start(scope, self.repository, path.clone(), bytes)?;
                    Ok(Box::new(sink))
                })
            });
        };
        let rebuilt = self.exchange.rebuild(version, part, &path)?;
        if rebuilt.part {
            // The old piece is removed first, as the repository does not copy a piece whose identity it has.
            self.repository
                .remove_even_bases(&[piece.version()].into())?;
            let file = File::open(&path).map_err(Error::io(&path))?;
            let source = |file, padding| RecordFile {
                file,
                path: path.clone(),
                padding,
            };
            let again = file.try_clone().map_err(Error::io(&path))?;
            let first = Piece::elsewhere(source(again, None), &path, 1, None)?;
            let head = u64::from(first.head().length);
            let padding = (head, payload_start(first.head()) - head);
            let piece = Piece::elsewhere(source(file, Some(padding)), &path, 1, None)?;
            self.repository.copy(&piece)?;
            drop(piece);
            std::fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        Ok(rebuilt)
    }
}

/// A piece as a record, whose bytes do not depend on the repository of the piece.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    encoded: RecordBytes<'a>,
    /// The offset of the payload.
    payload: u64,
    /// The number and the bytes of the payload's block that was read last.
    block: Mutex<Option<(u64, Vec<u8>)>>,
}

impl<'a> Record<'a> {
    pub(crate) fn new(piece: &'a Piece) -> Result<Self> {
        let encoded = RecordBytes::copy(piece, 0)?;
        Ok(Self {
            payload: payload_start(encoded.head()),
            encoded,
            block: Mutex::new(None),
        })
    }

    /// Reads bytes of the payload, up to the end of the block in which they start. Returns their number.
    fn read_payload(&self, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        let number = offset / BLOCK;
        let left = self.encoded.head().payload_length.saturating_sub(offset);
        if offset.is_multiple_of(BLOCK) && into.len() as u64 == left.min(BLOCK) {
            let filled = self.encoded.fill(offset, into);
            return filled.map(|()| into.len()).map_err(std::io::Error::other);
        }
        let last = self.block.lock().take();
        let bytes = match last {
            Some((other, bytes)) if other == number => bytes,
            _ => {
                let payload = self.encoded.head().payload_length;
                let left = payload.saturating_sub(number * BLOCK);
                let length = usize::try_from(left.min(BLOCK)).unwrap_or_default();
                let mut bytes = vec![0; length];
                let filled = self.encoded.fill(number * BLOCK, &mut bytes);
                filled.map_err(std::io::Error::other)?;
                bytes
            }
        };
        let from = usize::try_from(offset % BLOCK).unwrap_or_default();
        let there = bytes.get(from..).unwrap_or_default();
        let length = there.len().min(into.len());
        let (into, there) = (into.get_mut(..length), there.get(..length));
        if let (Some(into), Some(there)) = (into, there) {
            into.copy_from_slice(there);
        }
        *self.block.lock() = Some((number, bytes));
        Ok(length)
    }
}

impl Part for Record<'_> {
    fn bytes(&self) -> std::io::Result<u64> {
        Ok(self.payload + self.encoded.head().payload_length)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let head = self.encoded.head_bytes();
        let (mut offset, mut rest) = (offset, into);
        while !rest.is_empty() {
            let read = match self.payload.checked_sub(offset).filter(|left| *left > 0) {
                Some(left) => {
                    let at = usize::try_from(offset).unwrap_or(usize::MAX);
                    let head = head.get(at..).unwrap_or_default();
                    let left = usize::try_from(left).unwrap_or(usize::MAX);
                    let zeros = std::iter::repeat_n(&0, left.saturating_sub(head.len()));
                    let filled = rest.iter_mut().zip(head.iter().chain(zeros));
                    filled.map(|(into, byte)| *into = *byte).count()
                }
                None => self.read_payload(offset - self.payload, rest)?,
            };
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            offset += read as u64;
            rest = rest.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }
}

/// A file with a rebuilt record, read without the padding of its head.
#[derive(Debug)]
struct RecordFile {
    file: File,
    path: PathBuf,
    /// Number of bytes of the head, and of the zeros behind it; `None` until the head was read.
    padding: Option<(u64, u64)>,
}

impl RecordFile {
    fn failed(&self, doing: &'static str) -> impl FnOnce(std::io::Error) -> tierflow_store::Error {
        let path = self.path.display().to_string();
        move |error| tierflow_store::Error::Remote(format!("{doing} {path}: {error}"))
    }
}

impl Source for RecordFile {
    type Error = tierflow_store::Error;

    fn size(&self) -> std::result::Result<u64, Self::Error> {
        let metadata = self.file.metadata().map_err(self.failed("looking at"))?;
        Ok(metadata.len())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> std::result::Result<(), Self::Error> {
        let padding = self.padding.filter(|(head, _)| offset >= *head);
        let at = offset + padding.map_or(0, |(_, zeros)| zeros);
        let read = self.file.read_exact_at(bytes, at);
        read.map_err(self.failed("reading"))
    }
}
