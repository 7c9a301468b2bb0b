//! The header of a difference: 192 bytes, little-endian.

use crate::error::{Error, Result};
use crate::hash::{Sum, checksum};
use crate::layout::Layout;

/// Bytes of the header, with which a difference starts.
pub const HEADER_BYTES: usize = 192;
pub(crate) const MAGIC: [u8; 8] = *b"\x89TFDIFF\n";
pub(crate) const FORMAT: u16 = 1;
/// Code of the hash XXH3-128, the only one in format 1.
const XXH3_128: u8 = 1;
/// The parent of the first difference of a lineage.
pub(crate) const NO_PARENT: u32 = u32::MAX;
/// Flag in the ordinal of a shifted duplicate's source: all chunks of the region have the bytes of one source chunk.
pub(crate) const REPEATS: u32 = 1 << 31;

const CHECKSUM_AT: usize = HEADER_BYTES - 8;

/// The form in which a difference is stored. `Auto` chooses between `Tree` and `Full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stored {
    /// The whole checkpoint.
    Full,
    /// A bitmap, and the changed chunks.
    Basic,
    /// Entries for chunks, and the chunks that occur for the first time.
    List,
    /// Entries for regions, and the chunks that occur for the first time.
    Tree,
}

impl Stored {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Full => 0,
            Self::Basic => 1,
            Self::List => 2,
            Self::Tree => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Full, Self::Basic, Self::List, Self::Tree]
            .into_iter()
            .find(|stored| stored.code() == code)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) stored: Stored,
    pub(crate) layout: Layout,
    pub(crate) version: u64,
    pub(crate) ordinal: u32,
    pub(crate) parent: u32,
    pub(crate) seed: u64,
    /// Sum of all chunks of the checkpoint, by their places in the checkpoint.
    pub(crate) content: Sum,
    pub(crate) parent_content: Sum,
    /// Sum of all chunks of the payload, by their places in the payload.
    pub(crate) payload: Sum,
    pub(crate) payload_bytes: u64,
    pub(crate) metadata: u64,
    /// Number of entries of first-time occurrences.
    pub(crate) first: u32,
    /// Number of entries of shifted duplicates.
    pub(crate) shifted: u32,
}

/// Bytes of an entry of a shifted duplicate, which names the place of a run of chunks.
pub const SHIFTED_BYTES: u64 = 12;

/// Returns the bytes of the metadata, without the padding before the payload.
pub(crate) fn metadata_bytes(stored: Stored, chunks: u32, first: u32, shifted: u32) -> u64 {
    match stored {
        Stored::Full => 0,
        Stored::Basic => u64::from(chunks.div_ceil(32)) * 4,
        Stored::List | Stored::Tree => u64::from(first) * 4 + u64::from(shifted) * SHIFTED_BYTES,
    }
}

impl Header {
    pub(crate) fn metadata_bytes(&self) -> u64 {
        metadata_bytes(self.stored, self.layout.count, self.first, self.shifted)
    }

    /// Returns the offset of the payload in the container, in bytes.
    pub(crate) fn payload_at(&self) -> u64 {
        super::payload_at(self.metadata_bytes())
    }

    /// Returns the bytes of the whole container.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.payload_at() + self.payload_bytes
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&FORMAT.to_le_bytes());
        put(&[self.stored.code(), XXH3_128]);
        put(&self.layout.chunk.to_le_bytes());
        put(&self.total_bytes().to_le_bytes());
        put(&self.version.to_le_bytes());
        put(&self.ordinal.to_le_bytes());
        put(&self.parent.to_le_bytes());
        put(&self.layout.len.to_le_bytes());
        put(&self.seed.to_le_bytes());
        put(&self.payload_bytes.to_le_bytes());
        put(&self.first.to_le_bytes());
        put(&self.shifted.to_le_bytes());
        for sum in [self.content, self.parent_content, self.payload] {
            put(&sum.low.to_le_bytes());
            put(&sum.high.to_le_bytes());
        }
        put(&self.metadata.to_le_bytes());
        let sum = checksum(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header, and makes all checks that do not need the bytes behind it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        let bad = |what| Error::Corrupt {
            version: None,
            what,
        };
        let bytes: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .ok_or(bad("it is shorter than a header"))?;
        let mut fields = Fields { bytes, at: 0 };
        if fields.take() != MAGIC {
            return Err(bad("it does not start as a difference does"));
        }
        if u16::from_le_bytes(fields.take()) != FORMAT {
            return Err(bad("it is of a format that this release cannot read"));
        }
        let sum = u64::from_le_bytes(
            Fields {
                bytes,
                at: CHECKSUM_AT,
            }
            .take(),
        );
        if checksum(&bytes[..CHECKSUM_AT]) != sum {
            return Err(bad("the checksum of its header does not fit"));
        }
        let [stored, hash] = fields.take();
        let stored = Stored::from_code(stored).ok_or(bad("its method is unknown"))?;
        if hash != XXH3_128 {
            return Err(bad("its hash is unknown"));
        }
        let chunk = fields.u32();
        let total = fields.u64();
        let version = fields.u64();
        let bad = |what| Error::corrupt(version, what);
        let (ordinal, parent) = (fields.u32(), fields.u32());
        let (len, seed, payload_bytes) = (fields.u64(), fields.u64(), fields.u64());
        let (first, shifted) = (fields.u32(), fields.u32());
        let [content, parent_content, payload] = [fields.sum(), fields.sum(), fields.sum()];
        let metadata = fields.u64();
        if bytes[fields.at..CHECKSUM_AT].iter().any(|&byte| byte != 0) {
            return Err(bad("its header has fields that format 1 does not know"));
        }
        if !crate::config::CHUNKS.contains(&chunk) || !chunk.is_power_of_two() {
            return Err(bad("its chunk size is none"));
        }
        let layout = Layout::new(len, chunk).map_err(|_| bad("its length is none"))?;
        if usize::try_from(len).is_err() || usize::try_from(total).is_err() {
            return Err(bad("it is too long for this machine"));
        }
        if ordinal >= REPEATS || (parent != NO_PARENT && parent >= ordinal) {
            return Err(bad("its place in the lineage is impossible"));
        }
        if payload_bytes > len || first > layout.count || shifted > layout.count {
            return Err(bad("it counts more than the checkpoint has"));
        }
        let header = Self {
            stored,
            layout,
            version,
            ordinal,
            parent,
            seed,
            content,
            parent_content,
            payload,
            payload_bytes,
            metadata,
            first,
            shifted,
        };
        if header.total_bytes() != total {
            return Err(bad("its lengths contradict each other"));
        }
        Ok(header)
    }
}

/// A reader of consecutive fields.
struct Fields<'a> {
    bytes: &'a [u8; HEADER_BYTES],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn sum(&mut self) -> Sum {
        Sum {
            low: self.u64(),
            high: self.u64(),
        }
    }
}
