//! A record as bytes for places outside a directory: an object, a stream.

use super::piece::Piece;
use super::snapshot::{Layout, Snapshot, encoded};
use crate::Result;
use crate::container::{Head, Kind, checksum};

/// The fields of a record's [`Head`] that do not depend on its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordLabel {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    pub(crate) epoch: u32,
    pub(crate) created: u64,
    pub(crate) run: u64,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
}

/// A whole record: its head, with the checksums of the payload, and the payload, which is fetched while it is written.
#[derive(Debug)]
pub struct RecordBytes<'a> {
    layout: Layout<'a>,
    head: Vec<u8>,
}

/// Bytes of payload that are fetched at a time for the checksums, a multiple of a block.
const STEP: usize = 4 << 20;

impl<'a> RecordBytes<'a> {
    /// Lays out a snapshot. The snapshot's bytes are fetched twice: once here for their checksums, and once by [`fill`](Self::fill). Both must
    /// be the same.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for invalid names and shapes, and the errors of fetching the bytes.
    pub(crate) fn new(snapshot: &Snapshot<'a>, label: RecordLabel) -> Result<Self> {
        Self::of(Layout::new(snapshot, label, false)?)
    }

    /// Computes the checksums of a layout's payload.
    pub(super) fn of(mut layout: Layout<'a>) -> Result<Self> {
        let (length, block) = (layout.head.payload_length, layout.head.block_bytes as usize);
        let mut memory = vec![0; length.min(STEP as u64) as usize];
        for at in (0..length).step_by(STEP) {
            let part = &mut memory[..(length - at).min(STEP as u64) as usize];
            layout.fill(at, part)?;
            layout.head.blocks.extend(part.chunks(block).map(checksum));
        }
        let head = encoded(&layout.head)?;
        Ok(Self { layout, head })
    }

    /// Returns a copy of a piece, with its identity and checksums. A copy of a format 1 piece gets this `sequence`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if its head contradicts itself.
    pub fn copy(piece: &'a Piece, sequence: u64) -> Result<Self> {
        let layout = Layout::copy(piece, sequence, false)?;
        let head = encoded(&layout.head)?;
        Ok(Self { layout, head })
    }

    /// Returns the head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.layout.head
    }

    /// Returns the bytes of the head, with which the record starts.
    #[must_use]
    pub fn head_bytes(&self) -> &[u8] {
        &self.head
    }

    /// Fills `bytes` with the payload from `offset`, a multiple of 1 MiB.
    ///
    /// # Errors
    /// The errors of fetching or reading the bytes.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.layout.fill(offset, bytes)
    }
}
