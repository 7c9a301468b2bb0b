//! The payloads of the store's own records: lists of other records, 32 bytes a row.

use super::head::u64_at;

const ROW: usize = 32;

/// A row of a list: a [`ManifestRow`] or an [`IndexRow`].
pub trait Row: Sized {
    /// Returns the four words of the row.
    fn words(&self) -> [u64; 4];
    /// Makes a row of its four words.
    fn from_words(words: [u64; 4]) -> Self;
}

/// A rank's piece, in a [`Kind::Manifest`](super::Kind::Manifest). The four words together identify exactly one record, wherever it
/// lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestRow {
    /// The rank whose piece it is.
    pub rank: u64,
    /// The piece's [`Head::sequence`](super::Head::sequence).
    pub sequence: u64,
    /// The piece's [`Head::created`](super::Head::created).
    pub created: u64,
    /// The piece's length in bytes.
    pub record_length: u64,
}

/// A record of a segment, in a [`Kind::Index`](super::Kind::Index).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexRow {
    /// The version of the record.
    pub version: u64,
    /// The offset of the record in the segment, in bytes.
    pub position: u64,
    /// The record's [`Head::sequence`](super::Head::sequence).
    pub sequence: u64,
    /// The length of the record in bytes.
    pub record_length: u64,
}

impl Row for ManifestRow {
    fn words(&self) -> [u64; 4] {
        [self.rank, self.sequence, self.created, self.record_length]
    }

    fn from_words([rank, sequence, created, record_length]: [u64; 4]) -> Self {
        Self {
            rank,
            sequence,
            created,
            record_length,
        }
    }
}

impl Row for IndexRow {
    fn words(&self) -> [u64; 4] {
        [
            self.version,
            self.position,
            self.sequence,
            self.record_length,
        ]
    }

    fn from_words([version, position, sequence, record_length]: [u64; 4]) -> Self {
        Self {
            version,
            position,
            sequence,
            record_length,
        }
    }
}

/// Returns the rows of a region. Bytes after the last full row are ignored.
pub fn rows<R: Row>(region: &[u8]) -> impl Iterator<Item = R> + '_ {
    let rows = region.as_chunks::<ROW>().0.iter();
    rows.map(|row| R::from_words([0, 8, 16, 24].map(|at| u64_at(row, at))))
}

/// Encodes rows as a region that [`rows`] reads.
pub(crate) fn encode<R: Row>(rows: impl IntoIterator<Item = R>) -> Vec<u8> {
    let words = rows.into_iter().flat_map(|row| row.words());
    words.flat_map(u64::to_le_bytes).collect()
}
